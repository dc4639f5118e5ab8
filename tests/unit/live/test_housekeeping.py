"""What is removed when, and what is not: journal, commits, folders and records of tasks, logs of pilots."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bftrain import Journal, Rerun, Run
from tests.helpers.live_callers import ANN, CHIEF, submission
from tests.helpers.live_inside import Inside, KeepSettings, World, all_kept, decided, in_a_loop, live_inside, submit
from tests.helpers.live_limits import set_limits
from tests.helpers.simulated_site import COMMIT_BYTES, SimulatedSite

DAY_S = 86_400.0


async def ended(inside: Inside, name: str, *, folder: Path | None = None, size: int = 10_000) -> Path:
    """Let a task run to its end; give its folder, in which it left commits and a log."""
    run = Run(argv=("train.py",), folder=str(folder or ""))
    view = await inside.service.submit(ANN, submission(name, 1, run=run))
    await decided(inside.daemon)
    inside.world.tell(name, "report", step=1, size=1, samples=10, loss=None, total=10, since=0)
    inside.world.tell(name, "done", step=1)
    await decided(inside.daemon)
    made = inside.daemon.site.tasks / os.path.basename(view.folder) if folder is None else folder  # noqa: PTH119 - of a text
    (made / "logs").mkdir(parents=True, exist_ok=True)
    (made / "logs" / "n1.0.log").write_text("it went well")
    (made / "state.bin").write_bytes(b"x" * size)
    return made


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@in_a_loop
async def test_commits_go_first_and_then_folder_and_record_but_hours_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, world = clock(monkeypatch), World()
    keep = KeepSettings(commit_days=2, task_days=10)
    async with live_inside(tmp_path, world, keep=keep) as inside:
        world.lend("n1")
        own = await ended(inside, "a")
        others = await ended(inside, "b", folder=tmp_path / "mine")
        now[0] += DAY_S
        await inside.daemon.housekeeping.tidy()
        assert (own / "state.bin").exists()
        now[0] += 2 * DAY_S
        await inside.daemon.housekeeping.tidy()
        assert [file.name for file in own.iterdir()] == ["logs"]
        before = inside.service.usage(CHIEF, "user", "")
        now[0] += 8 * DAY_S
        await inside.daemon.housekeeping.tidy()
        assert not own.exists()
        assert (others / "state.bin").exists(), "a folder that its user chose is not ours to remove"
        assert inside.service.tasks(CHIEF, over=True) == ()
        assert inside.service.usage(CHIEF, "user", "") == before
        assert [row.of for row in inside.service.usage(CHIEF, "task", "")] == ["removed"]
        assert (await inside.service.submit(ANN, submission("a", 1))).number == 3
    async with live_inside(tmp_path, world, keep=keep) as inside:
        assert inside.service.usage(CHIEF, "user", "") == before
        assert (await inside.service.submit(ANN, submission("c", 1))).number == 4


@in_a_loop
async def test_the_oldest_folders_go_where_they_take_too_much_and_those_in_use_stay(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world, keep=KeepSettings(folders_gb=0.0005)) as inside:
        world.lend("n1")
        folders = [await ended(inside, f"t{number}", size=200_000) for number in range(4)]
        await inside.service.submit(ANN, submission("again", 1, run=Run(argv=("train.py",), folder=str(folders[0]))))
        await inside.daemon.housekeeping.tidy()
        assert [folder.exists() for folder in folders] == [True, False, True, True]
        (remark,) = inside.daemon.remarks.latest
        assert remark.text.startswith("1 folder of tasks that are over")
        assert remark.text.endswith("([keep] folders_gb): #2")


@in_a_loop
async def test_links_in_place_of_a_folder_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, world = clock(monkeypatch), World()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("")
    async with live_inside(tmp_path, world, keep=KeepSettings(task_days=1)) as inside:
        world.lend("n1")
        own = await ended(inside, "a")
        own.rename(tmp_path / "moved")
        own.symlink_to(tmp_path / "precious")
        now[0] += 2 * DAY_S
        await inside.daemon.housekeeping.tidy()
    assert (tmp_path / "precious" / "file").exists()


@in_a_loop
async def test_the_journal_is_cut_and_goes_on_and_old_parts_go_in_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, snapshot_steps=5)
    set_limits(monkeypatch, journal_rows=7)
    world, keep = World(), KeepSettings(archive_days=1)
    site: dict[str, Any] = {"keep": keep}
    async with live_inside(tmp_path, world, **site) as inside:
        journal = inside.daemon.opened.journal
        await inside.service.submit(ANN, submission("a", 4))
        for number in range(40):
            (world.take if number % 2 else world.lend)("n1", "n2")
            await decided(inside.daemon)
        await inside.daemon.housekeeping.cut()
        inside.daemon.housekeeping.apply()
        assert journal.rows("SELECT min(number) FROM entry") == [(8,)], "a little at a time"
        for _ in range(20):
            inside.daemon.housekeeping.apply()
        (part,) = journal.parts
        assert journal.rows("SELECT min(step) FROM entry") == [(part.last + 1,)]
        journal.check_parts()
        assert journal.first == 0
        assert list(Rerun(journal).differences()) == []
        os.utime(journal.path.parent / part.file, (0, 0))
        await inside.daemon.housekeeping.tidy()
        assert journal.first == part.last
    async with live_inside(tmp_path, world, **site) as inside:
        world.lend("n1", "n2")
        await decided(inside.daemon)
        assert inside.service.task(CHIEF, "a").size == 2
        assert list(Rerun(inside.daemon.opened.journal).differences()) == []


@in_a_loop
async def test_runs_that_are_short_one_by_one_write_down_where_things_stand_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, snapshot_steps=10)
    world = World()
    for run in range(8):
        async with live_inside(tmp_path, world) as inside:
            for change in (world.take, world.lend):
                change("n1")
                await decided(inside.daemon)
            stood_at = inside.daemon.opened.journal.stood_at
            assert len(inside.daemon.opened.journal) < 4 * (run + 1)
    assert stood_at >= 10


@in_a_loop
async def test_logs_of_pilots_that_grew_long_begin_again(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        folder = inside.daemon.site.tasks.parent / "pilots"
        folder.mkdir()
        (folder / "n1.log").write_bytes(b"x" * 5_000_000)
        (folder / "n2.log").write_bytes(b"x" * 5000)
        await inside.daemon.housekeeping.tidy()
        assert [(folder / name).stat().st_size for name in ("n1.log", "n2.log")] == [0, 5000]


@in_a_loop
async def test_a_copy_of_the_journals_file_alone_is_whole(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        await decided(inside.daemon)
        await inside.daemon.housekeeping.tidy()
        shutil.copy(inside.daemon.site.journal, copy)
        with Journal.open(copy) as journal:
            assert len(journal) == len(inside.daemon.opened.journal)
            assert [one.name for one in all_kept(journal)] == ["a"]


def test_a_few_simulated_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short version of tests/soak/test_sixty_days.py."""
    set_limits(monkeypatch, snapshot_steps=20)
    set_limits(monkeypatch, fewest_steps=10)
    keep = KeepSettings(journal_steps=60, archive_days=0.5, commit_days=0.5, task_days=1, folders_gb=0.0003)
    site = SimulatedSite(tmp_path, days=3, nodes=12, users=3, tasks=30, seed=1, kill_every_days=1, keep=keep)
    asyncio.run(site.run())
    assert site.wrongs == []
    assert site.figures["tasks done"] == 30
    assert site.figures["parts"] > 0
    assert site.disk_bytes[-1] < 20 * COMMIT_BYTES
    assert site.verify() == 0
