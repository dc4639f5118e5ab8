"""Between the decision core and launchers: orders out of actions, events out of what was message."""

from __future__ import annotations

import pytest

from bftrain import (
    Cause,
    Grow,
    NodesJoined,
    NodesLeft,
    Release,
    Shrink,
    Start,
    Stop,
    TaskFailed,
    TaskFinished,
    launcher_orders,
)


def test_orders_are_the_published_json_form_of_actions() -> None:
    actions = [
        Release(nodes=("n1",)),
        Shrink(task="a", nodes=("n1",), cause=Cause.PREEMPTED),
        Stop(task="b", nodes=("n2",)),
        Start(task="c", nodes=("n3",)),
        Grow(task="a", nodes=("n4", "n5")),
    ]
    orders = launcher_orders.orders(actions)
    assert [order["action"] for order in orders] == ["release", "shrink", "stop", "start", "grow"]
    assert orders[1] == {"action": "shrink", "task": "a", "nodes": ("n1",), "cause": "preempted"}
    assert list(orders[4]["nodes"]) == ["n4", "n5"]


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"type": "done", "task": "a", "step": 9}, TaskFinished(time_s=5.0, task="a")),
        (
            {"type": "failed", "task": "a", "reason": "out of memory"},
            TaskFailed(time_s=5.0, task="a", reason="out of memory"),
        ),
        ({"type": "registered", "node": "n1"}, NodesJoined(time_s=5.0, nodes=("n1",))),
        ({"type": "gone", "node": "n1", "reason": "x"}, NodesLeft(time_s=5.0, nodes=("n1",))),
        ({"type": "report", "task": "a", "step": 1}, None),
        ({"type": "paused", "task": "a", "step": 1}, None),
        ({"type": "of a later version"}, None),
    ],
)
def test_a_message_becomes_an_event_if_the_core_needs_it(message: dict[str, object], event: object) -> None:
    assert launcher_orders.event_of(message, 5.0) == event


def test_a_long_reason_keeps_its_end_where_the_error_stands() -> None:
    event = launcher_orders.event_of({"type": "failed", "task": "a", "reason": "x" * 5000 + "ValueError"}, 0.0)
    assert isinstance(event, TaskFailed)
    assert event.reason.endswith("ValueError")
    assert len(event.reason) <= 2000
