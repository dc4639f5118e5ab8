"""What is found out about a script that was watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.tryout.readiness_check import ReadinessFinding, WatchedRun, findings, split_fix
from bftrain_elastic.wire.messages import Message

SCRIPT = Path("fit.py")


def reports(steps: int = 60, **more: Any) -> list[Message]:  # noqa: ANN401 - fields of a report
    """Return what is reports of a training on one, two and one nodes."""
    found: list[Message] = []
    for step in range(1, steps + 1):
        size = 2 if steps / 3 < step <= 2 * steps / 3 else 1
        if step in {1, steps // 3 + 1, 2 * steps // 3 + 1}:
            found.append({"type": "confirmed", "size": size, "step": step - 1})
        line = {"type": "report", "step": step, "size": size, "samples": 8, "loss": 1 / step, "nan": False}
        found += [line | more, {"type": "on_disk", "step": step}]
    return found


def failing(messages: list[Message], seen: WatchedRun | None = None) -> dict[str, ReadinessFinding]:
    found = list(findings(messages, seen or WatchedRun([1, 2, 1]), SCRIPT))
    return {one.name: one for one in found if not one.ok}


def test_a_training_that_is_ready_lacks_nothing() -> None:
    assert failing(reports(), WatchedRun([1, 2, 1])) == {}


def test_a_launcher_that_restarts_lets_a_script_keep_checkpoints_of_its_own() -> None:
    messages = [one for one in reports() if one["type"] != "on_disk"]
    assert [one.name for one in findings(messages, WatchedRun([1, 2, 1]), SCRIPT) if not one.ok] == ["commits"]
    assert all(one.ok for one in findings(messages, WatchedRun([1, 2, 1]), SCRIPT, restarts=True))
    again = [*messages, *[one for one in reports(6) if one["type"] != "on_disk"]]
    (found,) = [one for one in findings(again, WatchedRun([1, 2, 1]), SCRIPT, restarts=True) if not one.ok]
    assert (found.name, "checkpoint" in found.fix) == ("keeps its progress", True)


@pytest.mark.parametrize(
    ("text", "words", "fix"),
    [
        (
            "no step for 31 s: rank 0 waits in state.commit(), which every rank must call; the stacks are in its logs",
            "no step for 31 s: rank 0 waits in state.commit(), which every rank must call",
            "not inside of 'if state.rank == 0'",
        ),
        (
            "no step for 31 s: rank 1 on node2 is in script at fit.py:3 in train",
            "fit.py:3",
            "every worker must take part",
        ),
    ],
)
def test_a_hang_is_reported_with_where_it_hangs(text: str, words: str, fix: str) -> None:
    messages = [one for one in reports() if one.get("step", 0) < 20]
    found = failing([*messages, {"type": "note", "text": text}], WatchedRun([1]))
    assert set(found) == {"keeps going", "resizes"}
    assert words in found["keeps going"].detail
    assert "stacks" not in found["keeps going"].detail
    assert fix in found["keeps going"].fix
    assert "train longer" not in found["resizes"].fix


def test_workers_that_train_different_models_are_reported() -> None:
    note = {"type": "note", "text": "the models of its workers differ at step 23: rank 1 is not as rank 0 (do this)"}
    found = failing([*reports(), note])
    assert set(found) == {"workers agree"}
    assert (found["workers agree"].detail, found["workers agree"].fix) == (note["text"].partition(" (")[0], "do this")


def steps(*inputs: str, weights: str = "", caller: str = "native", **more: object) -> list[Message]:
    """Return the records of one worker's steps: a letter for each digest."""
    where = {"where": ["fit.py:9", caller], "rows_differ": True, "exchanges": False}
    return [{"inputs": one, "weights": (weights or "wxyz")[place], **where, **more} for place, one in enumerate(inputs)]


@pytest.mark.parametrize(
    ("own", "others", "missing", "fix"),
    [
        (steps(*"abcd"), steps(*"abcd"), "divides the work", "model = state.parallel()"),
        (steps(*"abcd", caller="transformers"), steps(*"abcd"), "divides the work", "bftrain_elastic.huggingface"),
        (steps(*"abcd", caller="lightning"), steps(*"abcd"), "divides the work", "bftrain_elastic.lightning"),
        (steps(*"abcd", exchanges=True), steps(*"abcd"), "divides the work", "give each worker its share"),
        (steps(*"abcd", rows_differ=None), steps(*"abcd"), "divides the work", "state.parallel()"),
        (steps(*"abcd"), steps(*"efgh", weights="wabc"), "workers agree", "model = state.parallel()"),
        # Scripts that are right, or of which too little was seen
        (steps(*"abcd"), steps(*"efgh"), "", ""),
        (steps(*"abcd"), steps(*"abcd", weights="wabc"), "", ""),  # parts of one model: tensor parallelism
        (steps(*"abcd", exchanges=True), steps(*"efgh", weights="wabc"), "", ""),
        (steps(*"aaaa", rows_differ=False), steps(*"aaaa", rows_differ=False), "", ""),  # all samples are equal
        (steps(*"aaaa", rows_differ=None), steps(*"aaaa", rows_differ=None), "", ""),
        (steps(*"ab"), steps(*"ab"), "", ""),
        (steps(*"abcd"), [], "", ""),
    ],
)
def test_workers_that_do_the_same_or_train_apart_are_reported(
    own: list[Message], others: list[Message], missing: str, fix: str
) -> None:
    found = failing(reports(), WatchedRun([1, 2, 1], steps=[one for one in (own, others) if one]))
    assert set(found) == {missing} - {""}
    for one in found.values():
        assert "4 steps: optimizer.step() at fit.py:9" in one.detail
        assert fix in one.fix


def test_a_loss_that_is_no_number_is_reported() -> None:
    found = failing(reports(loss=None, nan=True))
    assert set(found) == {"continues to learn"}
    assert found["continues to learn"].detail == "the loss is not a number at step 1"


def test_an_error_of_ours_is_split_into_what_is_wrong_and_its_fix() -> None:
    line = "bftrain_elastic.errors.BadScript: State: a Net is divided (DTensor): no (give it to State(sharded=one))"
    assert split_fix(line) == ("State: a Net is divided (DTensor): no", "give it to State(sharded=one)")
    assert split_fix("ValueError: it is so (really)") == ("ValueError: it is so (really)", "")


def test_a_death_by_an_error_of_ours_is_reported_with_its_fix() -> None:
    error = "bftrain_elastic.errors.BadScript: state['net']: cannot load its values: Net(a) (make it before run())"
    found = failing([*reports(), {"type": "note", "text": f"t/b/0/2 ended with 1 ({error}); it is started again"}])[
        "runs"
    ]
    assert found.detail == "t/b/0/2 ended with 1: state['net']: cannot load its values: Net(a)"
    assert found.fix == "make it before run()"
