"""Replays of earlier commands are reused by their content, and never where a figure could differ."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from bftrain import generate_log, save_log
from bftrain_replay.sweeping.outcome_cache import program_sha256
from tests.unit.replay.sweeping.sweep_case import counted, small

SWEEP = small(grid={"max_tasks": [1, 2]})
PASSES = 4  # of this sweep: two replays, and for each number of tasks the yardsticks


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache of this test's own; return its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BFTRAIN_NO_CACHE", "0")
    return tmp_path / "cache" / "bftrain" / "replays"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_another_folder_takes_what_was_replayed(cache: Path, tmp_path: Path) -> None:
    runs, first = counted(SWEEP, tmp_path / "one")
    again, second = counted(SWEEP, tmp_path / "two")
    assert (runs, again) == (PASSES, 0)
    assert first.figures_sha256 == second.figures_sha256
    assert (tmp_path / "one" / "table.csv").read_bytes() == (tmp_path / "two" / "table.csv").read_bytes()
    assert counted(small(grid={"max_tasks": [2, 3]}), tmp_path / "more")[0] == 2
    assert counted(SWEEP, tmp_path / "no cache", cache=False)[0] == PASSES
    files = list(cache.iterdir())
    assert len(files) == PASSES + 2
    assert {mode(file) for file in files} == {0o600}
    assert {mode(folder) for folder in (cache, cache.parent)} == {0o700}


def test_what_could_differ_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = generate_log(12, 0.1, seed=3)
    save_log(log, tmp_path / "log.npz")
    spec = small(log=str(tmp_path / "log.npz"), logs={}, yardsticks=False)
    assert [counted(spec, tmp_path / name)[0] for name in ("one", "two")] == [1, 0]
    for number, fixed in enumerate(({"max_tasks": 2}, {"semantics": "published"}, {"window": ":4000"})):
        assert counted(spec | {"fixed": fixed}, tmp_path / f"fixed {number}")[0] == 1, fixed
    # The same content, of another origin
    save_log(replace(log, provenance=replace_struct(log.provenance, made_by="another import")), tmp_path / "log.npz")
    assert counted(spec, tmp_path / "origin")[0] == 1
    monkeypatch.setattr("bftrain_replay.sweeping.outcome_cache.program_sha256", lambda: "edited")
    assert counted(spec, tmp_path / "edited")[0] == 1


def test_a_changed_c_source_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key, read = program_sha256.__wrapped__(), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" " * (path.name == "division.c"))
    assert program_sha256.__wrapped__() != key


def test_what_others_may_have_touched_is_computed_again(cache: Path, tmp_path: Path) -> None:
    table = counted(SWEEP, tmp_path / "one")[1].figures_sha256
    entry = min(cache.iterdir())
    entry.chmod(0o620)
    runs, again = counted(SWEEP, tmp_path / "two")
    assert (runs, again.figures_sha256, mode(entry)) == (1, table, 0o600)
    assert counted(SWEEP, tmp_path / "three")[0] == 0


def test_the_entry_of_another_pass_is_not_taken(cache: Path, tmp_path: Path) -> None:
    counted(SWEEP, tmp_path / "one")
    first, second, *_ = sorted(cache.iterdir())
    first.write_bytes(second.read_bytes())
    assert counted(SWEEP, tmp_path / "two")[0] == 1


def test_what_need_not_repeat_is_left_out(cache: Path, tmp_path: Path) -> None:
    objective = tmp_path / "mine.py"
    objective.write_text("def speed(task, sizes):\n    return task.curve.speeds(sizes[-1])\n")
    for number, fixed in enumerate(
        (
            {"objective": f"{objective}:speed"},
            {"decision_latency_s": "measured"},
            {"solver": "exakt"},  # which fails
            {"solver": "highs", "solver_deadline_s": 1e-9},  # another solver decides, since this one ran out of time
        )
    ):
        spec = small(fixed=fixed, yardsticks=False)
        assert [counted(spec, tmp_path / f"{number} {time}")[0] for time in (1, 2)] == [1, 1], fixed
    assert not cache.exists()


def test_the_entries_not_used_for_longest_are_removed(cache: Path, tmp_path: Path) -> None:
    spec = small(yardsticks=False, grid={"max_tasks": [1, 2, 3]})
    counted(spec, tmp_path / "one")
    for age, path in enumerate(sorted(cache.iterdir()), start=1):
        os.utime(path, (1000.0 * age, 1000.0 * age))
    oldest = min(cache.iterdir(), key=lambda path: path.stat().st_mtime)
    large = cache / "left-behind.part"
    with large.open("wb") as file:
        file.truncate(1 << 28)  # as much as may be there in all
    os.utime(large, (0.0, 0.0))
    counted(small(yardsticks=False, fixed={"max_tasks": 4}), tmp_path / "two")
    assert not large.exists()
    assert oldest.exists()


def test_a_folder_that_cannot_be_made_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not even root can make a folder in a file
    assert [counted(SWEEP, tmp_path / name)[0] for name in ("one", "two")] == [PASSES, PASSES]
