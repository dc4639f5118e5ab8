"""Old steps of a journal in files of their own: everything verifies across the cuts, and what was changed is found."""

from __future__ import annotations

import sqlite3
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
from bftrain.journal_archive import archive_part
from bftrain.rerun import recover
from bftrain.values import wire
from tests.unit.core.samples import spec

SETTINGS = Settings(objective="max-min")  # which looks at what tasks had: all of the state matters


def written(path: Path, steps: int, *, cut_every: int) -> Journal:
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
            journal.cut(archive_part(path, last, "archive"))
            while journal.remove_moved(3):
                pass
    return journal


def test_a_journal_in_parts_has_the_same_steps_and_verifies_over_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    with (
        written(tmp_path / "whole" / "j.db", 60, cut_every=1000) as whole,
        written(tmp_path / "cut" / "j.db", 60, cut_every=15) as cut,
    ):
        assert [(part.first, part.last) for part in cut.parts] == [(0, 10), (10, 25), (25, 40), (40, 55)]
        assert cut.parts[0].file == "archive/j-000000001-000000010.db"
        assert cut.rows("SELECT min(step) FROM entry") == [(56,)]
        assert (cut.first, len(cut)) == (0, 60)
        for ours, theirs in zip(cut.steps(), whole.steps(), strict=True):
            assert (ours.number, ours.events) == (theirs.number, theirs.events)
            assert ours.decision is not None
            assert ours.decision.same_as(theirs.decision)
        assert [step.number for step in cut.steps(after=12)] == list(range(13, 61))
        cut.check_parts()
        assert list(Rerun(cut).differences()) == []
        assert wire.encode(recover(cut, SETTINGS).snapshot) == wire.encode(recover(whole, SETTINGS).snapshot)


def test_where_parts_are_gone_it_goes_on_from_the_snapshot_after_them(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 60, cut_every=15) as journal:
        before = wire.encode(recover(journal, SETTINGS).snapshot)
        (tmp_path / journal.parts[1].file).unlink()
    with Journal.open(tmp_path / "j.db") as journal:
        assert journal.first == 25, "a part before a gap is of no use"
        assert [step.number for step in journal.steps()] == list(range(26, 61))
        journal.check_parts()
        assert list(Rerun(journal).differences()) == []
        assert wire.encode(recover(journal, SETTINGS).snapshot) == before
        journal.append([], None)
        journal.append_events([NodesJoined(time_s=1e4, nodes=("m",))])
        assert len(journal) == 61


def test_a_part_that_was_changed_is_found_by_its_digest(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 60, cut_every=15) as journal:
        file = tmp_path / journal.parts[2].file
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE entry SET time_s = time_s + 1 WHERE step = 30 AND kind = 'event'")
    with (
        Journal.open(tmp_path / "j.db") as journal,
        pytest.raises(BadInput, match="steps 26 to 40 have another digest"),
    ):
        journal.check_parts()
