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
from bftrain.live.tasks.journal_repair import repair
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


def test_each_part_is_a_journal_that_verifies_by_itself(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 60, cut_every=15) as journal:
        files = [tmp_path / part.file for part in journal.parts]
    for number, file in enumerate(files):
        with Journal.open(file) as part:
            steps = list(part.steps())
            assert steps[0].number == part.first + 1 == (1, 11, 26, 41)[number]
            assert list(Rerun(part).differences()) == []


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


def test_a_snapshot_that_was_changed_does_not_follow_from_the_part_before(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 60, cut_every=15) as journal:
        last = journal.parts[-1].last
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection, connection:
        values = ('"decisions":', '"decisions":9', last)
        connection.execute("UPDATE standing SET body = replace(body, ?, ?) WHERE step = ?", values)
    with (
        Journal.open(tmp_path / "j.db") as journal,
        pytest.raises(BadInput, match="does not begin where the one before"),
    ):
        list(Rerun(journal).differences())


def test_a_damaged_journal_in_parts_is_repaired(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 63, cut_every=15) as journal:
        steps = list(journal.steps())
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection, connection:
        connection.execute("UPDATE entry SET body = 'x' WHERE step = 62")
    found = repair(tmp_path / "j.db", tmp_path / "new.db")
    assert (found.steps, found.lost) == (61, ())
    assert "entry" in found.stopped
    with Journal.open(tmp_path / "new.db") as journal:
        assert list(journal.steps()) == steps[:61]
        assert list(Rerun(journal).differences()) == []


def test_a_cut_that_was_interrupted_is_made_again(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 20, cut_every=1000) as journal:
        first = archive_part(journal.path, journal.cut_point(), "archive")
        (tmp_path / "archive" / "j-000000001-000000015.new").write_text("half of it")
        again = archive_part(journal.path, journal.cut_point(), "archive")
        assert first == again
        journal.cut(again)
        assert list(Rerun(journal).differences()) == [], "also while the entries are in both files"


def test_while_a_part_is_copied_the_journal_goes_on(tmp_path: Path) -> None:
    with written(tmp_path / "j.db", 20, cut_every=1000) as journal:
        last = journal.cut_point()
        harvester = recover(journal, SETTINGS)
        for number in range(21, 60):  # where things stand is written down often enough to forget where they stood
            events = [TaskSubmitted(time_s=10.0 * number, spec=spec(f"t{number}", submit_s=10.0 * number))]
            harvester.absorb(*events)
            journal.append(events, harvester.decide(10.0 * number))
            journal.keep(SETTINGS, harvester.snapshot)
        journal.cut(archive_part(journal.path, last, "archive"))
        assert list(Rerun(journal).differences()) == []
        (tmp_path / journal.parts[0].file).unlink()
        assert list(Rerun(journal).differences()) == []
