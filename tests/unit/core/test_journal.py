"""The journal: a private file that is only added to, whole steps or none, even if its writer is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import pytest

from bftrain import BadInput, Decision, Event, Journal, NotAvailable, Settings, TaskFinished, UsageError, __version__
from bftrain.values import wire
from tests.unit.core.samples import joined, left, make, nodes, spec, submitted

SETTINGS = Settings(max_tasks=7, horizon_s=60.0)
FIRST: tuple[Event, ...] = (joined(0, "n1", "n2"), submitted(0, spec("a")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.create(path, SETTINGS) as made:
        yield made


def decision(number: int) -> Decision:
    made = make(Decision, number=number, time_s=float(number), sizes={"a": number}, used=number, pool=9)
    assert isinstance(made, Decision)
    return made


def test_a_new_journal_is_private_and_remembers_its_settings(path: Path) -> None:
    before = os.umask(0o000)  # so that the umask does not make it private
    try:
        made = Journal.create(path, SETTINGS)
    finally:
        os.umask(before)
    with made as journal:
        journal.append(FIRST, decision(1))
        beside = [entry for entry in path.parent.iterdir() if entry.name.startswith(path.name)]
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in beside} == {0o600}
        assert len(beside) == 3  # SQLite's log and index while it is open
    with Journal.open(path) as journal:
        assert journal.settings == SETTINGS
    with closing(sqlite3.connect(path)) as connection:
        about = dict(connection.execute("SELECT key, value FROM about"))
    assert about == {"format": "1", "bftrain": __version__, "settings": wire.encode(SETTINGS).decode()}


def test_what_is_there_is_never_overwritten(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(
        UsageError, match=r"exists already, and is left unchanged \(journals are append-only: choose another name\)$"
    ):
        Journal.create(path, SETTINGS)
    assert path.read_text() == "precious"


def test_where_nothing_can_be_made_it_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none/run\.journal: cannot be created: No such file or directory"):
        Journal.create(tmp_path / "none" / "run.journal", SETTINGS)


def test_a_journal_that_is_not_there_is_not_made(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such journal"):
        Journal.open(path)
    assert not path.exists()
    with pytest.raises(BadInput, match="no such journal"):
        Journal.open(tmp_path)


def altered(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def other_database(path: Path) -> None:
    altered(path, "CREATE TABLE something (x)")


def older_format(path: Path) -> None:
    Journal.create(path, SETTINGS).close()
    altered(path, "UPDATE about SET value = '0' WHERE key = 'format'")


def no_format(path: Path) -> None:
    Journal.create(path, SETTINGS).close()
    altered(path, "DELETE FROM about")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"garbage garbage garbage\n" * 400, "is not a journal: file is not a database"),
        (b"", "is empty, not a journal"),
        (b"SQLite format 3\0" + b"\xff" * 4000, "is not a journal: "),
        (other_database, "is not a journal: no such table: about"),
        (older_format, "has format 0, and this version reads format 1 (use the version of bftrain that wrote it)"),
        (no_format, "has format None, and this version reads format 1"),
    ],
)
def test_what_is_no_journal_is_refused_and_left_as_it_was(path: Path, content: object, words: str) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)  # type: ignore[operator]  # the functions above
    before = path.read_bytes()
    with pytest.raises(BadInput) as refused:
        Journal.open(path)
    assert str(refused.value).startswith(f"{path}: {words}")
    assert path.read_bytes() == before


@pytest.mark.parametrize(("place", "words"), [(0.5, "is damaged: "), (1.0, "is not a journal: ")])
def test_a_damaged_journal_is_bad_input(path: Path, journal: Journal, place: float, words: str) -> None:
    journal.append([joined(number, f"node-with-a-long-name-{number}") for number in range(3000)], None)
    journal.close()
    pages = path.stat().st_size // 4096
    page = min(int(place * pages), pages - 1)
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(BadInput, match=words), Journal.open(path) as opened:
        list(opened.steps())


def test_lost_settings_are_said(path: Path, journal: Journal) -> None:
    journal.close()
    altered(path, "DELETE FROM about WHERE key = 'settings'")
    with Journal.open(path) as opened, pytest.raises(BadInput, match="has lost its settings"):
        opened.settings  # noqa: B018 - reading it is the test


def test_settings_of_journals_from_before_turns_mean_none(path: Path, journal: Journal) -> None:
    journal.close()
    altered(path, """UPDATE about SET value = replace(value, '"turn_s":20.0,', '') WHERE key = 'settings'""")
    with Journal.open(path) as opened:
        assert opened.settings.turn_s == 0.0


def test_steps_read_back_as_they_were_written(path: Path, journal: Journal) -> None:
    journal.append(FIRST, decision(1))
    journal.append_events([left(2, "n1"), TaskFinished(time_s=2, task="a")])
    assert journal.cut_off
    journal.append_decision(decision(2))
    assert not journal.cut_off
    journal.append_events([joined(3, "n3")])
    wanted = [
        (1, FIRST, decision(1)),
        (2, (left(2, "n1"), TaskFinished(time_s=2, task="a")), decision(2)),
        (3, (joined(3, "n3"),), None),
    ]
    assert [(step.number, step.events, step.decision) for step in journal.steps()] == wanted
    assert len(journal) == 3
    journal.close()
    with Journal.open(path) as opened:
        assert [(step.number, step.events, step.decision) for step in opened.steps()] == wanted
        assert (len(opened), opened.cut_off) == (3, True)
        opened.append_decision(decision(3))
        opened.append([joined(4, "n4")], decision(4))
    with Journal.open(path) as opened:
        assert [step.decision for step in opened.steps()] == [decision(number) for number in (1, 2, 3, 4)]


def test_an_empty_journal_has_no_steps(journal: Journal) -> None:
    assert (len(journal), list(journal.steps()), journal.cut_off) == (0, [], False)


def test_steps_are_read_one_after_the_other(journal: Journal) -> None:
    for number in range(1, 4):
        journal.append([joined(number, "n1")], None)
    steps = journal.steps()
    assert next(steps).number == 1
    journal.append([joined(4, "n1")], None)  # may go on while another process reads
    assert [step.number for step in steps] == [2, 3, 4]


def test_only_one_process_may_add(path: Path, journal: Journal) -> None:
    journal.append([joined(1, "n1")], None)
    with Journal.open(path) as other:
        other.append_decision(decision(1))
        with pytest.raises(BadInput, match=r"another process also writes to it \(let only one process"):
            journal.append([joined(2, "n2")], None)
        assert [step.number for step in other.steps()] == [1]
        other.append([joined(2, "n2")], None)


def test_a_step_that_a_full_disk_kept_can_be_written_later(journal: Journal) -> None:
    before = len(journal)
    (pages,) = journal.rows("PRAGMA page_count")[0]
    journal.rows(f"PRAGMA max_page_count = {pages}")  # a full disk has the same error
    large = tuple(joined(0, *nodes(1, 4000)) for _ in range(8))
    for _ in range(2):
        with pytest.raises(NotAvailable, match="cannot be written: database or disk is full"):
            journal.append_events(large)
        assert len(journal) == before
    journal.rows("PRAGMA max_page_count = 100000")
    journal.append_events(large)
    assert len(journal) == before + 1


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drop root's right to write anywhere, if we have it."""
    ours = os.getresuid()
    os.setresuid(-1 if ours[0] else 65534, -1 if ours[0] else 65534, -1)
    try:
        yield
    finally:
        os.setresuid(*ours)


def test_a_journal_can_be_read_where_nothing_can_be_written() -> None:
    with TemporaryDirectory() as made:  # pytest's own directory is closed to other users
        archive, journal_path = Path(made), Path(made, "what? 100%#1.journal")
        with Journal.create(journal_path, SETTINGS) as journal:
            journal.append_events(FIRST)
        journal_path.chmod(0o644)
        archive.chmod(0o555)
        with unprivileged(), Journal.open(journal_path) as journal:
            assert [step.events for step in journal.steps()] == [FIRST]
            with pytest.raises(NotAvailable, match="cannot be written: attempt to write a readonly database"):
                journal.append_events([left(1, "n1")])
        assert os.listdir(archive) == [journal_path.name]  # noqa: PTH208 - its name is what counts
        archive.chmod(0o755)


def test_an_entry_that_was_tampered_with_is_named(path: Path, journal: Journal) -> None:
    journal.append(FIRST, decision(1))
    journal.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE entry SET body = replace(body, 'n2', '') WHERE number = 1")
    connection.commit()
    connection.close()
    with Journal.open(path) as opened, pytest.raises(BadInput, match=r"run\.journal: entry 1: NodesJoined\.nodes"):
        list(opened.steps())


def test_going_on_with_other_settings_is_refused(journal: Journal) -> None:
    journal.require_settings(SETTINGS)
    with pytest.raises(BadInput, match=r"has max_tasks = 7, but 35 is requested \(use the same settings"):
        journal.require_settings(Settings(horizon_s=60.0))


# A step is larger than SQLite's cache, so that parts of it are in the file long before all of it counts
WRITER = """
import sys
from pathlib import Path
from bftrain import Journal, NodesJoined, Settings
with Journal.create(Path(sys.argv[1]), Settings()) as journal:
    for number in range(1, 1000):
        step = [NodesJoined(time_s=number, nodes=[f"n{number}-{i}" + "x" * 1000]) for i in range(4000)]
        print("begin", number, flush=True)
        journal.append(step, None)
        print("end", number, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.004, 0.012])
def test_what_was_recorded_survives_a_kill_in_the_middle_of_writing(path: Path, delay_s: float) -> None:
    """After the kill all steps that were reported are there, every step is whole, and one may go on."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while writer.stdout.readline() != "begin 3\n":
            pass
        sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
        ended = writer.stdout.read().count("end")
    assert writer.returncode == -signal.SIGKILL
    with Journal.open(path) as journal:
        steps = list(journal.steps())
        assert len(steps) in {2 + ended, 3 + ended}
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert {len(step.events) for step in steps} == {4000}
        journal.append([joined(1e9, "after")], None)
        assert len(list(journal.steps())) == len(steps) + 1
