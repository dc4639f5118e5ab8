"""The conventions of Gavel's simulator, on small cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain import BadInput, TaskSpec, rounds
from tests.helpers.round_cases import gang

LIKE: dict[str, Any] = {"like": "gavel", "round_s": 360.0}


def ends(nodes: dict[str, int], tasks: list[TaskSpec], **options: object) -> dict[str, float]:
    table = rounds(nodes, tasks, **{**LIKE, **options}).tasks_table
    return dict(zip(table["name"], table["finish_s"], strict=True))


def test_ideal_shares_end_tasks_at_the_next_arrival() -> None:
    tasks = [
        gang("a", 600.0, speeds={"v100": 1.0}),
        gang("b", 600.0, speeds={"v100": 1.0}),
        gang("c", 1.0, submit_s=2000.0, speeds={"v100": 1.0}),
    ]
    found = ends({"v100": 1}, tasks, policy="max-min", like="gavel-ideal")
    assert (found["a"], found["b"]) == (2000.0, 2000.0)  # half of the time each is enough by 1,200 s


def test_ideal_shares_need_a_policy_of_shares() -> None:
    with pytest.raises(BadInput, match="like"):
        rounds({"v100": 1}, [gang("a", 1.0, speeds={"v100": 1.0})], policy="las", like="gavel-ideal", round_s=360.0)


def test_blind_fifo_takes_the_last_kind_of_the_alphabet_and_stays() -> None:
    speeds = {"k80": 2.0, "v100": 1.0}
    tasks = [gang("a", 3600.0, speeds=speeds), gang("b", 3600.0, submit_s=1.0, speeds=speeds)]
    table = rounds({"k80": 1, "v100": 1}, tasks, policy="fifo-blind", **LIKE).tasks_table
    assert table["on_v100_s"][0] == 3600.0
    assert table["moves"] == [0, 0]


def test_allox_uses_a_kind_that_is_left_over_before_its_own() -> None:
    """Nodes listed first are filled first, though the task was given the kind on which it is faster."""
    tasks = [gang("a", 7200.0, speeds={"v100": 1.0, "p100": 2.0})]
    table = rounds({"v100": 1, "p100": 1}, tasks, policy="allox", **LIKE).tasks_table
    assert (table["on_v100_s"][0], table["on_p100_s"][0]) == (7200.0, 0.0)


def test_nodes_granted_to_a_task_that_waits_for_its_shares_stay_idle() -> None:
    tasks = [gang("a", 720.0, speeds={"v100": 1.0}), gang("b", 360.0, submit_s=100.0, speeds={"v100": 1.0})]
    found = ends({"v100": 2}, tasks, policy="max-min")
    assert found["a"] == 720.0
    assert found["b"] == 2160.0 + 360.0  # shares are computed at 0 s, and in the first round after 1,920 s
