"""A damaged middle of SQLite's write-ahead log is refused in words; what a kill leaves of it never is."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from bftrain import BadInput, Journal, Settings, journal_wal
from bftrain.journal_archive import complete_file
from bftrain.journal_wal import wal_of
from bftrain.live.tasks.journal_repair import repair
from tests.unit.core.samples import joined

STEPS = 40
HEADER, FRAME = 32, 24 + 4096


def killed(path: Path, begun: Path) -> Path:
    """Copy a journal and its log as they are after a kill of the writer."""
    begun.mkdir()
    for file in (path, wal_of(path)):
        shutil.copy(file, begun)
    return begun / path.name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    with Journal.create(folder / "live.db", Settings()) as journal:
        journal.append((joined(0, "n0"),), None)
        complete_file(journal.path)
        for number in range(1, STEPS):
            journal.append((joined(number, f"n{number}"),), None)
        return killed(journal.path, folder / "killed")


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return killed(whole, tmp_path / "copy")


def spoil(path: Path, place: int) -> bytes:
    """Change a byte of the log; return its content then."""
    content = bytearray(wal_of(path).read_bytes())
    content[place] ^= 0x55
    wal_of(path).write_bytes(content)
    return bytes(content)


def test_after_a_kill_all_is_read(path: Path) -> None:
    with Journal.open(path) as journal:
        assert len(journal) == STEPS


@pytest.mark.parametrize(
    "place",
    [0, 9, 17, 25, HEADER + 9, HEADER + 17, HEADER + 24, HEADER + 20 * FRAME, HEADER + 20 * FRAME + 3000],
    ids=["magic", "page size", "salt", "checksum", "first salt", "first checksum", "first page", "head", "page"],
)
def test_damage_before_other_writes_is_refused_and_what_is_readable_can_be_saved(place: int, path: Path) -> None:
    content = spoil(path, place)
    for _ in range(2):
        with pytest.raises(BadInput, match=r"is damaged: \d+ writes? in live\.db-wal, .* cannot be read") as refused:
            Journal.open(path)
        assert "bftrain journal repair live.db" in str(refused.value.fix)
        assert wal_of(path).read_bytes() == content, "what may help is left as it is"
    saved = repair(path, path.parent / "saved.db")
    assert 1 <= saved.steps < STEPS
    assert "cannot be read" in saved.stopped
    with Journal.open(path.parent / "saved.db") as journal:
        assert len(journal) == saved.steps


def test_a_log_that_ends_anywhere_is_one_that_a_kill_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_wal, "_AGAIN_S", 0.0)
    content, dice = wal_of(path).read_bytes(), Random(1)  # noqa: S311 - the same every time
    for end in (0, 1, HEADER, HEADER + FRAME, *(dice.randrange(len(content)) for _ in range(40))):
        wal_of(path).write_bytes(content[:end])
        assert journal_wal.damaged_tail(path) == "", end


def test_a_torn_last_frame_is_no_damage_also_after_a_shorter_write_in_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_wal, "_AGAIN_S", 0.0)
    spoil(path, wal_of(path).stat().st_size - 100)  # its head is written, its page is not
    assert journal_wal.damaged_tail(path) == ""
    content = bytearray(wal_of(path).read_bytes())
    content[-2 * FRAME + 100] ^= 0x55  # as if another write had begun over it, and was cut off
    wal_of(path).write_bytes(content)
    assert journal_wal.damaged_tail(path) == ""


def test_writes_of_earlier_generations_are_no_damage(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    shutil.copy(whole, path)
    with Journal.open(path) as journal:
        for number in range(60):
            journal.append((joined(number, f"m{number}"),), None)
        complete_file(path)
        journal.append((joined(60, "last"),), None)
        assert wal_of(path).stat().st_size > 50 * FRAME, "earlier writes are behind the new ones"
        copy = killed(path, tmp_path / "copy")
        length = len(journal)
    with Journal.open(copy) as journal:
        assert len(journal) == length


def test_what_was_not_committed_is_no_damage(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        before = wal_of(path).stat().st_size
        connection.execute("CREATE TABLE large (text TEXT)")
        connection.executemany("INSERT INTO large VALUES (?)", [("x" * 4000,)] * 50)
        assert wal_of(path).stat().st_size > before, "it is in the log before it is committed"
        copy = killed(path, tmp_path / "again")
        connection.rollback()
    with Journal.open(copy) as journal:
        assert len(journal) == STEPS


def test_a_log_that_changes_while_it_is_looked_at_is_being_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(path, HEADER + 20 * FRAME)
    looks = []

    def wait(_: float) -> None:
        looks.append(spoil(path, HEADER + 20 * FRAME))  # as it should be

    monkeypatch.setattr(journal_wal.time, "sleep", wait)
    with Journal.open(path) as journal:
        assert len(journal) == STEPS
    assert len(looks) == 1


def test_writes_leave_the_file_itself_to_others(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with Journal.create(path, Settings()) as journal:
        journal.leave_checkpoints()
        before = path.read_bytes()
        for number in range(600):
            journal.append_events((joined(number, f"n{number}"),), sync=False)
        assert path.read_bytes() == before
        complete_file(path)
        alone = tmp_path / "alone.db"
        shutil.copy(path, alone)
        with Journal.open(alone) as copy:
            assert len(copy) == 600
