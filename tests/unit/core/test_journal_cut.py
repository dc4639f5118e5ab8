"""Older steps of a journal are removed, after a copy of all: both verify, and SQLite finds damage."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from bftrain import (
    BadInput,
    Journal,
    NodesJoined,
    NodesLeft,
    Rerun,
    Settings,
    TaskFinished,
    TaskSubmitted,
    build_harvester,
)
from bftrain.journal import JournalStep, copy_journal
from bftrain.rerun import recover
from bftrain.values import wire
from tests.unit.core.samples import spec

SETTINGS = Settings(objective="max-min")  # which looks at what tasks had: all of the state matters


def written(path: Path, steps: int, *, cut_every: int = 1000) -> Journal:
    """Make a journal whose state is written down every five steps, and which is cut now and then."""
    journal, harvester = Journal.create(path, SETTINGS), build_harvester(SETTINGS)
    for number in range(1, steps + 1):
        now, node = 10.0 * number, f"n{number % 4}"
        events = [
            NodesLeft(time_s=now, nodes=(node,)) if node in harvester.pool else NodesJoined(time_s=now, nodes=(node,))
        ]
        if number % 3 == 1:
            events.append(TaskSubmitted(time_s=now, spec=spec(f"t{number}", submit_s=now)))
        elif number % 7 == 0 and harvester.unfinished:
            events.append(TaskFinished(time_s=now, task=harvester.unfinished[0]))
        harvester.absorb(*events)
        journal.append(events, harvester.decide(now))
        if number % 5 == 0:
            journal.keep(SETTINGS, harvester.snapshot)
        if number % cut_every == 0 and (last := journal.cut_point()):
            copy_journal(path, path.parent / "archive" / f"{path.stem}-{last:09d}.db")
            journal.cut(last)
            while journal.remove_cut(3):
                pass
    return journal


def shown(steps: Iterable[JournalStep]) -> list[object]:
    """Return what the steps of two runs have in common: not how long a solver took."""
    return [(step.number, step.events, step.decision and step.decision.sizes) for step in steps]


def test_a_cut_journal_begins_with_a_snapshot_and_copies_have_all_steps(tmp_path: Path) -> None:
    with written(tmp_path / "whole.db", 60) as whole, written(tmp_path / "cut.db", 60, cut_every=15) as cut:
        assert cut.rows("SELECT min(step) FROM entry") == [(56,)]
        assert (cut.first, len(cut)) == (55, 60)
        assert shown(cut.steps()) == shown(whole.steps(after=55))
        cut.check_integrity()
        assert list(Rerun(cut).differences()) == []
        assert wire.encode(recover(cut, SETTINGS).snapshot) == wire.encode(recover(whole, SETTINGS).snapshot)
        assert [path.name for path in sorted((tmp_path / "archive").iterdir())] == [
            "cut-000000010.db", "cut-000000025.db", "cut-000000040.db", "cut-000000055.db"
        ]  # fmt: skip
        steps = shown(whole.steps())
    for copy, first, last in (("000000010", 0, 15), ("000000055", 40, 60)):
        path = tmp_path / "archive" / f"cut-{copy}.db"
        assert path.stat().st_mode & 0o777 == 0o600
        with Journal.open(path) as archived:
            assert shown(archived.steps()) == steps[first:last]
            assert list(Rerun(archived).differences()) == []


def test_a_copy_has_its_name_on_the_disk_before_steps_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy, sync, names = tmp_path / "j.db", tmp_path / "archive" / "copy.db", os.fsync, list[str]()

    def noted(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            names.extend(os.listdir(file))
        sync(file)

    with written(path, 5):
        monkeypatch.setattr(os, "fsync", noted)
        copy_journal(path, copy)
    assert names == ["copy.db"]


def test_a_cut_journal_continues(tmp_path: Path) -> None:
    written(tmp_path / "j.db", 60, cut_every=15).close()
    with Journal.open(tmp_path / "j.db") as journal:
        assert (journal.first, [step.number for step in journal.steps()]) == (55, list(range(56, 61)))
        journal.append_events([NodesJoined(time_s=1e4, nodes=("m",))])
        assert len(journal) == 61


def test_a_journal_with_parts_of_the_version_before_begins_after_them(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 60, cut_every=15) as journal:
        before = wire.encode(recover(journal, SETTINGS).snapshot)
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection, connection:
        connection.execute("DELETE FROM about WHERE key = 'first'")
        connection.execute("CREATE TABLE part (last INTEGER PRIMARY KEY, first INTEGER, digest TEXT, file TEXT) STRICT")
        connection.execute("INSERT INTO part VALUES (25, 0, 'x', 'archive/a.db'), (55, 25, 'y', 'archive/b.db')")
    with Journal.open(tmp_path / "j.db") as journal:
        assert (journal.first, [step.number for step in journal.steps()]) == (55, list(range(56, 61)))
        assert list(Rerun(journal).differences()) == []
        assert wire.encode(recover(journal, SETTINGS).snapshot) == before


def test_damage_that_only_sqlite_sees_is_found(tmp_path: Path) -> None:
    written(tmp_path / "j.db", 60).close()
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE entry SET kind = 'odd' WHERE number = 3")
    with Journal.open(tmp_path / "j.db") as journal, pytest.raises(BadInput, match="is damaged: CHECK ") as caught:
        journal.check_integrity()
    recover = f"umask 077; sqlite3 {journal.path} .recover | sqlite3 NEW"
    assert caught.value.fix == f"stop the live run, then put back a backup, or: {recover}"
