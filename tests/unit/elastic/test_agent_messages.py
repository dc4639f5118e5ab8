"""Messages between manager, agent and prefork server: frozen values that are checked when they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire import agent_messages
from bftrain_elastic.wire.agent_messages import (
    FROM_AGENT,
    FROM_MANAGER,
    FROM_PREFORK,
    TO_PREFORK,
    ForgetWorkers,
    PreemptionNotice,
    ProcessEnded,
    RegisterAgent,
    SpawnWorker,
    StopWorker,
    WorkerExited,
)
from bftrain_elastic.wire.messages import MessageTable, TypedMessage, decode, encode

SPAWN = SpawnWorker(
    worker="t/n1/0/1-1",
    task="t",
    argv=("train.py", "--lr", "0.1"),
    env={"A": "b"},
    cwd="/jobs",
    log="/jobs/log",
    place={"generation": 1, "rank": 0, "workers": 2},
    finish_code=7,
)
KINDS = [kind for kind in vars(agent_messages).values() if isinstance(kind, type) and issubclass(kind, TypedMessage)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (FROM_MANAGER, SPAWN),
        (TO_PREFORK, SPAWN),
        (FROM_MANAGER, StopWorker("w", 2.5)),
        (FROM_MANAGER, ForgetWorkers("t", "w")),
        (FROM_AGENT, RegisterAgent(node="n", address="a", slots=2, pid=1, workers=({"worker": "w"},))),
        (FROM_AGENT, WorkerExited("w", -9, "killed", finished=True)),
        (FROM_AGENT, PreemptionNotice(3)),
        (FROM_PREFORK, ProcessEnded("w", 1, asked_to_end=True)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_is_the_same_after_the_way_through_json(table: MessageTable, message: TypedMessage) -> None:
    assert table.read(decode(encode(message.to_dict()))) == message


def test_what_may_be_left_out_has_its_default() -> None:
    assert FROM_MANAGER.read({"type": "stop", "worker": "w"}) == StopWorker("w", 0.0)
    least = {"type": "register", "node": "n", "address": "a", "slots": 1, "pid": 1}
    assert FROM_AGENT.read(least) == RegisterAgent(node="n", address="a", slots=1, pid=1)


def test_messages_and_fields_of_later_versions_are_ignored() -> None:
    assert FROM_MANAGER.read({"type": "dance", "worker": "w"}) is None
    assert FROM_MANAGER.read({"type": ["stop"]}) is None
    assert FROM_MANAGER.read({}) is None
    assert FROM_MANAGER.read({"type": "stop", "worker": "w", "politely": True}) == StopWorker("w")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"worker": 3}, "message 'spawn': 'worker' must be a string"),
        ({"worker": None}, "message 'spawn': 'worker' must be a string"),
        ({"slot": True}, "message 'spawn': 'slot' must be a whole number"),
        ({"slot": 1.0}, "message 'spawn': 'slot' must be a whole number"),
        ({"warm": 1}, "message 'spawn': 'warm' must be true or false"),
        ({"argv": "train.py"}, "message 'spawn': 'argv' must be a list of strings"),
        ({"argv": ["train.py", 3]}, "message 'spawn': 'argv' must be a list of strings"),
        ({"env": {"A": 3}}, "message 'spawn': 'env' must be an object that maps names to strings"),
        ({"place": 3}, "message 'spawn': 'place' must be an object"),
        ({"finish_code": "7"}, "message 'spawn': 'finish_code' must be a whole number"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage) as caught:
        FROM_MANAGER.read(SPAWN.to_dict() | change)
    assert str(caught.value) == words


def test_a_field_that_is_missing_is_refused_by_name() -> None:
    with pytest.raises(BadMessage, match="message 'exited': 'code' must be a whole number"):
        FROM_AGENT.read({"type": "exited", "worker": "w"})
    with pytest.raises(BadMessage, match="message 'notice': 'grace_s' must be a number"):
        FROM_AGENT.read({"type": "notice", "grace_s": "soon"})


def test_lists_become_tuples_and_nothing_can_be_changed() -> None:
    plain = json.loads(json.dumps(SPAWN.to_dict()))
    found = FROM_MANAGER.read(plain)
    assert isinstance(found, SpawnWorker)
    assert found.argv == ("train.py", "--lr", "0.1")
    with pytest.raises(AttributeError, match="cannot be changed"):
        found.slot = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not TypedMessage], ids=lambda kind: kind.__name__)
def test_every_message_says_its_type_and_is_read_by_some_table(kind: type[TypedMessage]) -> None:
    tables = (FROM_MANAGER, FROM_AGENT, TO_PREFORK, FROM_PREFORK)
    assert kind.type
    assert any(kind in table.kinds.values() for table in tables), "no side reads it"


def test_a_message_is_made_of_its_own_fields_only() -> None:
    assert StopWorker("w").replace(grace_s=2.0) == StopWorker("w", grace_s=2.0) != StopWorker("v", 2.0)
    assert repr(StopWorker("w", 2.0)) == "StopWorker(worker='w', grace_s=2.0)"
    makers: list[Any] = [StopWorker]
    for make in makers:
        for values, named in (((), {}), (("w", 1.0, 2.0), {}), (("w",), {"politely": True})):
            with pytest.raises(TypeError, match="StopWorker has the fields worker, grace_s"):
                make(*values, **named)
