"""Replays of earlier commands are taken by their content, and never where a figure could differ."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain_replay.sweeping import outcome_cache
from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
from tests.unit.replay.sweeping.sweep_case import (
    Here,
    OutcomeFile,
    PreparedSweep,
    RunKind,
    SweepPass,
    done,
    failed,
    known_in,
    small,
)

SWEEP = small(grid={"max_tasks": [1, 2]})


@pytest.fixture
def cache(tmp_path: Path) -> OutcomeCache:
    return OutcomeCache(tmp_path / "cache" / "replays")


def swept(cache: OutcomeCache | None, folder: Path, spec: dict[str, Any] = SWEEP) -> tuple[int, bytes]:
    """Sweep; gives how many passes were run, and what the table comes to."""
    folder.mkdir()
    here, sweep = Here(), PreparedSweep.of(spec)
    with OutcomeFile(folder) as outcomes:
        sweep.run(outcomes, CachedExecutor(here, cache))
    result = sweep.swept(known_in(folder))
    return len(here.done), json.dumps([row.cells for row in result.rows], sort_keys=True).encode()


def a_pass(kind: RunKind = RunKind.REPLAY, **settings: object) -> SweepPass:
    passes = PreparedSweep.of(small(fixed=settings)).plan.passes.values()
    return next(job for job in passes if job.kind is kind)


def test_another_folder_takes_what_was_replayed(cache: OutcomeCache, tmp_path: Path) -> None:
    runs, table = swept(cache, tmp_path / "one")
    assert runs == 4
    again, same = swept(cache, tmp_path / "two")
    assert (again, same) == (0, table)
    sums = {PreparedSweep.of(SWEEP).swept(known_in(tmp_path / name)).figures_sha256 for name in ("one", "two")}
    assert len(sums) == 1
    assert swept(cache, tmp_path / "more", small(grid={"max_tasks": [2, 3]}))[0] == 2
    files = list(cache.folder.iterdir())
    assert len(files) == 6
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (cache.folder, cache.folder.parent)} == {0o700}


@pytest.mark.parametrize("change", ["log_origin", "edges_s", "source", "version", "max_tasks"])
def test_what_could_differ_is_not_taken(cache: OutcomeCache, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    job = a_pass()
    cache.keep(job, done(job))
    assert cache.find(job) == cache.find(job) is not None
    if change == "log_origin":
        job = replace(job, log_origin="of another import")
    elif change == "edges_s":
        job = replace(job, edges_s=(0.0, 3600.0))
    elif change == "source":
        monkeypatch.setattr(outcome_cache, "program_sha256", lambda: "edited")
    elif change == "version":
        job = replace(job, made_from=replace(job.made_from, versions={**job.made_from.versions, "numpy": "99"}))
    else:
        job = a_pass(max_tasks=2)
    assert (cache.count([job]), cache.find(job), cache.damaged) == (0, None, 0)


@pytest.mark.parametrize("damage", ["cut", "changed", "other pass", "writable", "empty", "link", "other form"])
def test_a_damaged_entry_is_computed_again_and_said(cache: OutcomeCache, tmp_path: Path, damage: str) -> None:
    job, other = a_pass(), a_pass(max_tasks=1)
    for each in (job, other):
        cache.keep(each, done(each))
    entry, of_other = cache.entry(job), cache.entry(other)
    whole = entry.read_bytes()
    content = {
        "cut": whole[:-1],
        "changed": whole.replace(b"harvested", b"harvestes"),
        "empty": b"",
        "other form": b"{",
    }
    if damage == "other pass":
        entry.write_bytes(of_other.read_bytes())
    elif damage == "writable":
        entry.chmod(0o602)
    elif damage == "link":
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    else:
        entry.write_bytes(content[damage])
    here = Here()
    run = CachedExecutor(here, cache)
    assert [outcome.id for outcome in run.outcomes((job, other), lambda _: None, lambda: False)] == [other.id, job.id]
    assert here.done == [job]
    assert (cache.damaged, "1 earlier result damaged" in cache.remark) == (
        (0, False) if damage == "link" else (1, True)
    )
    assert cache.find(job) is not None
    assert stat.S_IMODE(entry.lstat().st_mode) == 0o600


def test_what_need_not_repeat_is_left_out(cache: OutcomeCache, tmp_path: Path) -> None:
    objective = tmp_path / "mine.py"
    objective.write_text("def speed(task, sizes):\n    return task.curve.speeds(sizes[-1])\n")
    for job in (a_pass(objective=f"{objective}:speed"), a_pass(decision_latency_s="measured")):
        cache.keep(job, done(job))
    job = a_pass()
    cache.keep(job, failed(job, "a worker was killed"))
    found = done(job)
    assert found.figures is not None
    cache.keep(job, replace(found, figures=replace(found.figures, fallback_causes={"time_limit": 3})))
    of_log = a_pass(RunKind.YARDSTICKS)
    cache.keep(of_log, replace(done(of_log), warnings=("exact ran out of time in 3 of 9 decisions",)))
    cache.keep(replace(job, log_origin=""), found)
    assert not cache.folder.exists()


def test_the_entries_not_used_for_longest_are_removed(cache: OutcomeCache) -> None:
    jobs = [a_pass(max_tasks=count) for count in (1, 2, 3)]
    for age, job in enumerate(jobs):
        cache.keep(job, done(job))
        os.utime(cache.entry(job), (1000.0 * age, 1000.0 * age))
    assert cache.find(jobs[0]) is not None
    size = cache.entry(jobs[0]).stat().st_size
    (cache.folder / "left-behind.part").write_bytes(b"x" * size)
    OutcomeCache(cache.folder, most_bytes=100 * size).trim()
    assert len(list(cache.folder.iterdir())) == 4
    OutcomeCache(cache.folder, most_bytes=3 * size).trim()
    assert [cache.find(job) is not None for job in jobs] == [True, False, False]


def test_a_folder_that_cannot_be_made_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = OutcomeCache(tmp_path / "file" / "replays")  # not even root can make a folder in a file
    assert swept(cache, tmp_path / "one")[0] == 4
    assert (cache.remark, cache.count([a_pass()])) == ("", 0)
