"""What tasks may be called and what they may run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import BadValue, Run, SpeedCurve, Submission, TaskSpec
from bftrain.live.model.schemas import Nodes, state_of
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, is_name


@pytest.mark.parametrize("name", ["a", "0", "a.b-c_d", "a" * 100])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a/b", "a b", "ä", "a\n", "a" * 101, "a\0"])
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"argv": ()}, "must be a script or command"),
        ({"argv": ("a", "")}, "must be a script or command"),
        ({"argv": ("a\0",)}, "NUL"),
        ({"argv": ("a",), "cwd": "b"}, "must be an absolute path"),
        ({"argv": ("a",), "folder": "b"}, "must be an absolute path"),
        ({"argv": ("a",), "env": {"": "x"}}, "must not be empty"),
        ({"argv": ("a",), "env": {"A=B": "x"}}, "nor hold '='"),
        ({"argv": ("a",), "env": {"A": "x\0"}}, "NUL"),
        ({"argv": ("a" * 100_001,)}, "too long"),
        ({"argv": ("a",), "stop_grace_s": -1.0}, "at least 0"),
        ({"argv": ("a",), "workers_per_node": -1}, "at least 0"),
    ],
)
def test_what_cannot_be_run(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Run(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_nodes": 0}, "at least 1"),
        ({"max_nodes": 1_000_001}, "at most 1000000"),
        ({"max_nodes": 2, "min_nodes": 0}, "at least 1"),
        ({"max_nodes": 2, "min_nodes": 3}, "below min_nodes = 3"),
        ({"max_nodes": 2, "name": "a/b"}, "letters, digits"),
    ],
)
def test_what_cannot_be_handed_in(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Submission(run=Run(argv=("a",)), **given)


def test_nodes_have_names() -> None:
    assert Nodes(nodes=("a", "b")).nodes == ("a", "b")
    for given in ((), ("",), ("a", "a")):
        with pytest.raises(BadValue):
            Nodes(nodes=given)


def test_what_is_left_and_how_it_stands() -> None:
    spec = TaskSpec(name="a", curve=SpeedCurve(nodes=(1,), rate=(1.0,)), max_nodes=1, work_samples=10.0)
    whose = {"uid": 1, "user": "u", "launcher": "l"}
    record = LiveTaskRecord(number=1, name="a", spec=spec, guessed=True, run=Run(argv=("a",)), submitted_s=0.0, **whose)
    assert (record.work_left, record.unfinished) == (10.0, True)
    assert (state_of(record, 0), state_of(record, 2)) == ("waiting", "running")
    over = replace(record, state=LiveTaskState.DONE, spec=replace(spec, work_samples=None))
    assert (over.work_left, over.unfinished, state_of(over, 0)) == (None, False, "done")
