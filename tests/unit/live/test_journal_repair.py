"""Damaged journals are refused in words, with what helps; a repaired one has all steps before the damage."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from bftrain import BadInput, Journal, Settings, UsageError
from bftrain.live.tasks.journal_repair import repair
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import World, all_kept, decided, live_inside, meet, open_site, parts, site_of, submit
from tests.helpers.live_limits import set_limits

PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal of two live runs with other settings, in one file, with snapshots in it."""
    folder = tmp_path_factory.mktemp("whole")

    async def two_runs() -> None:
        world = World()
        for run in range(2):
            async with live_inside(folder, world, deciding=Settings(max_tasks=10 + run)) as (daemon, service, _, _):
                for number in range(3):
                    await submit(service, f"t{run}{number}")
                    world.lend(f"n{number}", f"m{run}{number}")
                    await decided(daemon)
                world.take("n1")
                if run:
                    world.tell("t00", "done", step=4)
                await decided(daemon)

    with pytest.MonkeyPatch.context() as patched:
        set_limits(patched, snapshot_steps=4)
        asyncio.run(two_runs())
    path = folder / "live" / "live.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """Return a copy to damage, where a live run would look for it."""
    (tmp_path / "live").mkdir(mode=0o700)
    return shutil.copy(whole, tmp_path / "live" / "live.db")


def begins(path: Path) -> None:
    """Begin a live run on a journal, as far as reading it."""
    folder, world = path.parent.parent, World()
    meet(world)
    with parts():
        open_site(site_of(folder, world, deciding=Settings(max_tasks=11)), lambda _: None).close()


def refused(bftrain: CommandLine, path: Path, repaired: Path) -> set[str]:
    """Run all that reads a journal, and hold it to exit codes; return what refused it."""
    folder, found = path.parent, set[str]()
    for words in (("show", path), ("show", path, "--json"), ("plan", path), ("verify", path),
                  ("export", path, "-o", folder / "log.npz"), ("repair", path, "-o", repaired)):  # fmt: skip
        ended = bftrain("journal", *words)
        assert ended.code in {0, 3}, ended.err
        found |= {str(words[0])} if ended.code else set()
    try:
        begins(path)
    except BadInput:
        found.add("live")
    return found


SPOILS = (
    "UPDATE entry SET body = CAST(x'7bff7d' AS TEXT) WHERE number = 7",
    "UPDATE entry SET kind = 'event' WHERE kind = 'decision'",
    "UPDATE entry SET step = step + 1 WHERE number > 7",
    "DELETE FROM about WHERE key = 'settings'",
    "UPDATE standing SET body = '{}'",
    "UPDATE task SET state = 'lost' WHERE number = 2",
)


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_was_changed_in_a_journal_is_refused_in_words(
    spoil: str, path: Path, tmp_path: Path, bftrain: CommandLine
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(spoil)
    repaired = tmp_path / "repaired.db"
    assert refused(bftrain, path, repaired)
    if "about" not in spoil:
        shutil.move(repaired, path)
        assert refused(bftrain, path, repaired) <= {"export"}, "of which there must be at least one node"


@pytest.mark.parametrize("seed", range(4))
def test_what_is_damaged_in_the_file_is_refused_in_words(
    seed: int, path: Path, tmp_path: Path, bftrain: CommandLine
) -> None:
    random, content = Random(seed), bytearray(path.read_bytes())  # noqa: S311 - it keeps no secret
    begin = PAGE * random.randrange(len(content) // PAGE)
    match seed % 4:
        case 0:
            content[begin : begin + PAGE] = bytes(PAGE)
        case 1:
            content[begin : begin + PAGE] = random.randbytes(PAGE)
        case 2:
            del content[begin:]
        case 3:
            for _ in range(40):
                content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content)
    repaired = tmp_path / "repaired.db"
    refused(bftrain, path, repaired)
    if repaired.exists():
        shutil.move(repaired, path)
        for beside in path.parent.glob("live.db-*"):
            beside.unlink()
        assert refused(bftrain, path, repaired) <= {"export"}, "of which there must be at least one node"


def test_a_repaired_journal_has_the_steps_before_the_damage_and_the_tasks(
    whole: Path, path: Path, tmp_path: Path
) -> None:
    unhurt = repair(whole, tmp_path / "same.db")
    with Journal.open(whole) as before, Journal.open(tmp_path / "same.db") as same:
        assert (unhurt.steps, unhurt.stopped, unhurt.lost) == (len(before), "", ())
        steps = list(before.steps())
        assert list(same.steps()) == steps
        assert all_kept(same) == all_kept(before)
        assert same.settings_now == before.settings_now != before.settings
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entry SET body = 'x' WHERE step = 5")
        connection.execute("UPDATE task SET body = 'x' WHERE number = 2")
    content = path.read_bytes()
    found = repair(path, tmp_path / "repaired.db")
    assert "not valid JSON" in found.stopped
    assert [text.partition(":")[0] for text in found.lost] == ["task 2"]
    with Journal.open(tmp_path / "repaired.db") as repaired:
        assert list(repaired.steps()) == steps[:4]
        assert [record.number for record in all_kept(repaired)] == [1, 3, 4, 5, 6]
    assert path.read_bytes() == content
    with pytest.raises(UsageError, match="exists already"):
        repair(path, tmp_path / "repaired.db")
