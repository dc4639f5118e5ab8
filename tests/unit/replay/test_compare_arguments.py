"""``bftrain.compare`` takes replays one by one or as a list, and names what is not a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

import bftrain
from bftrain import UsageError
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "abcd", ""), (100.0, "", "b"), end_s=1000.0)
TASKS = [task("a", work_samples=900.0), task("b")]


def test_replays_may_be_given_as_a_list(tmp_path: Path) -> None:
    done = [bftrain.replay(LOG, TASKS, solver=solver) for solver in ("exact", "greedy")]
    assert bftrain.compare(done).labels == ("exact", "greedy")
    folders = [tmp_path / "one", str(tmp_path / "two")]
    for each, folder in zip(done, folders, strict=True):
        each.write(folder)
    assert bftrain.compare(folders).to_dict() == bftrain.compare(*folders).to_dict()
    assert bftrain.compare(tuple(folders), done[0]).labels == ("one", "two", "exact")


def test_what_is_no_replay_is_named() -> None:
    done = bftrain.replay(LOG, TASKS)
    with pytest.raises(UsageError, match="fewer than two replays"):
        bftrain.compare([done])
    with pytest.raises(UsageError, match=r"compare: a dict is not a replay \(give folders that bftrain replay wrote"):
        bftrain.compare([done, {}])  # type: ignore[list-item]  # that is its mistake
