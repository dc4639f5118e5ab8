"""Hours and samples that were used, what is removed when, and kinds of nodes."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import shutil
import sqlite3
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, Journal, Rerun, Run, SpeedCurve, build_harvester
from bftrain.config import LiveSettings
from bftrain.live.daemon.task_store import UsageLedger
from bftrain_replay.journal_replay import recorded
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import (
    Inside,
    KeepSettings,
    KindView,
    NodeKinds,
    NodeRates,
    SiteSettings,
    TaskStore,
    Usage,
    World,
    all_kept,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    remarks,
    submit,
    until,
)
from tests.helpers.simulated_site import COMMIT_BYTES, SimulatedSite
from tests.helpers.timeouts import set_limits

GPUS = Usage(gpus={"v100": 4.0, "k80": 2.0}, watts=1000.0, projects={"climate": ("ann",)})
CURVE = SpeedCurve(nodes=(1, 2, 3), rate=(10.0, 18.0, 25.0))
KINDS = {"v100": "n[1-2]", "k80": "n[3-4]"}


def held_by_the_journal(path: Path) -> dict[str, float]:
    """Follow a journal and sum up the node-seconds of each task between its events and decisions."""
    sums: dict[str, float] = defaultdict(float)
    before = 0.0
    with Journal.open(path) as journal:
        harvester = build_harvester(journal.settings)

        def count_until(time_s: float) -> float:
            for task, nodes in harvester.held.items():
                sums[task] += len(nodes) * (time_s - before)
            return time_s

        for step in journal.steps():
            if step.events:
                before = count_until(step.events[0].time_s)
                harvester.absorb(*step.events)
            if step.decision is not None:
                before = count_until(step.decision.time_s)
                harvester.follow(step.decision)
    return sums


@in_a_loop
async def test_hours_add_up_to_what_the_journal_says_to_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes come and go through three midnights and a month's end, asked for at any time; all sums are the same."""
    dice = random.Random(3)  # noqa: S311 - the same days every time
    clock = [time.mktime((2026, 11, 29, 15, 0, 0, 0, 0, -1))]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    world, nodes = World(), {f"n{number}" for number in range(1, 5)}
    async with live_inside(tmp_path, world, kinds=KINDS, usage=GPUS) as (daemon, service, _, _):
        curves = {"v100": CURVE, "k80": CURVE}
        for caller in (ANN, BOB):
            for number in range(2):
                given = submission(f"{caller.user}{number}", 3, curves=curves, campaign="c" * number)
                await service.submit(caller, given)
        for _ in range(40):
            clock[0] += dice.expovariate(1 / 4000)
            lent = set(dice.sample(sorted(nodes), dice.randrange(5)))
            world.lend(*sorted(lent - world.allowed))
            world.take(*sorted(world.allowed - lent))
            await decided(daemon)
            if dice.random() < 0.3:
                clock[0] += 7.0
                service.usage(CHIEF, by="user")
        world.take(*sorted(world.allowed))
        await decided(daemon)
        found = {by: service.usage(CHIEF, by=by) for by in ("user", "project", "campaign", "month", "day", "task")}
        views = {f"#{view.number}": view.node_s for view in service.tasks(CHIEF, all=False)}
        own = service.usage(ANN, by="task")
        later = service.usage(CHIEF, by="day", since="2026-12-01")
    total_s = sum(held_by_the_journal(daemon.site.journal).values())
    assert total_s > 100_000
    assert [round(sum(row.node_s for row in rows), 3) for rows in found.values()] == [round(total_s, 3)] * 6
    assert {row.of: round(row.node_s, 3) for row in found["task"]} == {of: round(s, 3) for of, s in views.items()}
    assert [row.of for row in found["month"]] == ["2026-11", "2026-12"]
    assert {row.of for row in found["project"]} == {"", "climate"}
    assert {row.of for row in found["campaign"]} == {"ann", "ann/c", "bob", "bob/c"}
    assert {row.of for row in own} == {"#1", "#2"}
    assert [row.of for row in later] == [row.of for row in found["day"] if row.of >= "2026-12-01"]
    for row in found["task"]:
        assert 2 * row.node_s <= row.gpu_s <= 4 * row.node_s
        assert row.energy_j == pytest.approx(1000 * row.node_s)


@in_a_loop
async def test_what_was_used_is_counted_once_through_a_restart(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        await service.submit(ANN, submission("a", 2))
        await decided(daemon)
        world.tell("a", "report", step=1, size=1, samples=10, loss=None, total=10, since=0)
        await decided(daemon)
        (before,) = service.usage(ANN, by="user")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.tell("a", "done", step=1)
        await decided(daemon)
        (row,) = service.usage(ANN, by="user")
        assert row.samples == before.samples == 10.0
        assert row.node_s == pytest.approx(service.task(ANN, "a").node_s)
        assert sum(day.node_s for day in service.status().harvested) == pytest.approx(row.node_s)


def ledger(folder: Path) -> tuple[Journal, UsageLedger]:
    folder.mkdir(exist_ok=True)
    journal = Journal.create(folder / "live.db", LiveSettings())
    TaskStore(journal)
    return journal, UsageLedger(journal, NodeRates())


def test_tables_of_a_later_version_are_refused(tmp_path: Path) -> None:
    journal, _ = ledger(tmp_path)
    store = TaskStore(journal)
    store.record_fact("version of tables", "99")
    store.write()
    with pytest.raises(BadInput, match="has tables of version 99, and this bftrain knows version"):
        TaskStore(journal)


def test_rates_are_by_kind_and_else_those_of_all() -> None:
    site = SiteSettings(kinds=KINDS, usage=Usage(gpus={"v100": 4.0}, watts=300.0))
    rates = site.node_rates(NodeKinds(site.kind_of).of, lambda _: 8.0)
    assert [rates.of(node) for node in ("n1", "n3")] == [(4.0, 300.0), (0.0, 300.0)]
    assert SiteSettings().node_rates(lambda _: "", lambda _: 8.0).of("n1") == (8.0, 0.0), "for which pilots asked"


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
        before = inside.service.usage(CHIEF, by="user")
        now[0] += 8 * DAY_S
        await inside.daemon.housekeeping.tidy()
        assert not own.exists()
        assert (others / "state.bin").exists(), "a folder that its user chose is not ours to remove"
        assert inside.service.tasks(CHIEF, all=True) == ()
        assert inside.service.usage(CHIEF, by="user") == before
        assert [row.of for row in inside.service.usage(CHIEF, by="task")] == ["removed"]
        assert (await inside.service.submit(ANN, submission("a", 1))).number == 3
    async with live_inside(tmp_path, world, keep=keep) as inside:
        assert inside.service.usage(CHIEF, by="user") == before
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
        (remark,) = inside.daemon.notices.latest
        assert remark.text.startswith("1 folder of the oldest finished tasks")
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
async def test_older_steps_are_copied_and_removed_and_old_copies_go_in_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, snapshot_steps=5)
    set_limits(monkeypatch, rows_at_once=7)
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
        assert journal.first > 0
        assert journal.rows("SELECT min(step) FROM entry") == [(journal.first + 1,)]
        assert list(Rerun(journal).differences()) == []
        (copy,) = (journal.path.parent / "archive").iterdir()
        with Journal.open(copy) as archived:
            assert (archived.first, len(archived) > journal.first) == (0, True)
            assert list(Rerun(archived).differences()) == []
        await inside.daemon.housekeeping.tidy()
        assert copy.exists()
        os.utime(copy, (0, 0))
        await inside.daemon.housekeeping.tidy()
        assert not copy.exists()
    async with live_inside(tmp_path, world, **site) as inside:
        world.lend("n1", "n2")
        await decided(inside.daemon)
        assert inside.service.task(CHIEF, "a").size == 2
        assert list(Rerun(inside.daemon.opened.journal).differences()) == []


@in_a_loop
async def test_a_failed_copy_of_the_journal_is_reported_and_tried_again_much_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:  # noqa: ANN401 - handed through
            if sql.startswith("VACUUM"):
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    def busy() -> bool:
        return any(task.get_name() == "housekeeping" for task in asyncio.all_tasks())

    set_limits(monkeypatch, snapshot_steps=5, fewest_journal_steps=10)
    async with live_inside(tmp_path, keep=KeepSettings(journal_steps=20)) as inside:
        archive = inside.daemon.site.journal.parent / "archive"
        archive.mkdir()
        (archive / "live-000000001.new").touch()  # left by a copy that was killed
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=FullDisk))
            for number in range(30):
                (inside.world.take if number % 2 else inside.world.lend)("n1", "n2")
                await decided(inside.daemon)
            inside.daemon.housekeeping.apply()
            await until(lambda: inside.daemon.notices.latest and not busy())
            inside.daemon.housekeeping.apply()
            assert not busy(), "the whole journal is not copied again at every tick"
        (remark,) = inside.daemon.notices.latest
        assert "the journal cannot be copied: database or disk is full (check the free space" in remark.text
        assert list(archive.iterdir()) == []
        await inside.daemon.housekeeping.cut()
        assert [file.suffix for file in archive.iterdir()] == [".db"]


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
    set_limits(monkeypatch, fewest_journal_steps=10)
    keep = KeepSettings(journal_steps=60, archive_days=0.5, commit_days=0.5, task_days=1, folders_gb=0.0003)
    site = SimulatedSite(tmp_path, days=2, nodes=12, users=3, tasks=20, seed=1, kill_every_days=1, keep=keep)
    asyncio.run(site.run())
    assert site.wrongs == []
    assert site.figures["tasks done"] == 20
    assert site.figures["removed steps"] > 0
    assert site.disk_bytes[-1] < 20 * COMMIT_BYTES
    assert site.verify() == 0


KINDS_LIVE_KINDS = {"v100": ("v[1-2]",), "k80": "k1,k2"}
FAST = SpeedCurve(nodes=(1, 2), rate=(10.0, 19.0))
SLOW = SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))


@in_a_loop
async def test_a_task_runs_on_nodes_of_the_kinds_that_it_has_curves_for(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, curves={"v100": FAST})
        world.lend("k1", "k2")
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 2}
        assert world.held.get("picky", set()) == set()
        world.lend("v1", "v2")
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 2, "v100": 2}
        assert world.held["picky"] == {"v1", "v2"}
        await submit(service, "any", 1, 2)
        await decided(daemon)
        assert world.held["any"] == {"k1", "k2"}
        assert remarks(daemon) == []


@in_a_loop
async def test_people_see_of_which_kind_nodes_are(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, world):
        await submit(service, "a", 1, 1, curves={"v100": FAST})
        world.lend("v1", "v2", "k1")
        await decided(daemon)
        assert {view.name: view.kind for view in service.nodes(ourselves())} == {
            "v1": "v100",
            "v2": "v100",
            "k1": "k80",
        }
        status = service.status()
        assert dict(status.kinds) == {"v100": KindView(pool=2, used=1), "k80": KindView(pool=1, used=0)}
        (drained,) = await service.drain(ourselves(), ["k2"])
        assert (drained.name, drained.kind) == ("k2", "k80")


@in_a_loop
async def test_a_node_without_a_kind_gives_a_warning_and_is_not_for_tasks_that_name_kinds(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, curve=FAST, curves={"v100": SLOW})
        world.lend("x1", "x2")
        await decided(daemon)
        assert "node 'x1' and 1 others: [kinds] names no kind" in remarks(daemon)
        assert world.held.get("picky", set()) == set()
        await submit(service, "knows", 1, 1, curves={"other": FAST})
        await submit(service, "any", 1, 1)
        world.lend("v1")
        await decided(daemon)
        assert world.held["picky"] == {"v1"}
        assert world.held["knows"] | world.held["any"] == {"x1", "x2"}
        assert dict(daemon.harvester.pools) == {"other": 2, "v100": 1}
        assert dict(service.status().kinds)["other"] == KindView(pool=2, used=2)
        assert {view.name: view.kind for view in service.nodes(ourselves())}["x1"] == "other"
        recording = recorded(daemon.opened.journal)
        assert recording.log.kind_of == {"v1": "v100", "x1": "other", "x2": "other"}
        assert dict(recording.tasks[0].curves) == {"v100": SLOW}


@in_a_loop
async def test_without_kinds_all_nodes_are_alike(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        with pytest.raises(BadInput, match="names no kinds"):
            await submit(service, "picky", 1, 2, curves={"v100": FAST})
        await submit(service, "a", 1, 2)
        world.lend("n1", "n2")
        await decided(daemon)
        assert world.held["a"] == {"n1", "n2"}
        assert (dict(daemon.harvester.pools), dict(service.status().kinds), remarks(daemon)) == ({}, {}, [])


@in_a_loop
async def test_kinds_that_changed_while_it_was_down_hold_from_the_start(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, _):
        await submit(service, "picky", 1, 4, curves={"v100": FAST})
        world.lend("v1", "v2", "k1")
        await decided(daemon)
        assert world.held["picky"] == {"v1", "v2"}
    async with live_inside(tmp_path, world, kinds={"v100": "v1,k1", "k80": "v2,k2"}) as (daemon, _, _, _):
        await decided(daemon)
        assert dict(daemon.harvester.pools) == {"k80": 1, "v100": 2}
        assert world.held["picky"] == {"v1", "k1"}
        assert remarks(daemon) == []


@in_a_loop
async def test_tasks_for_kinds_that_are_gone_since_are_named_at_the_start(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (_, service, _, world):
        await submit(service, "picky", 1, 4, curves={"v100": FAST})
        await submit(service, "any", 1, 4)
    for kinds, words in (({"k80": "k[1-2]"}, "runs on v100 only; there are 2 k80"), ({}, "names no kinds")):
        async with live_inside(tmp_path, world, kinds=kinds) as (_, service, _, _):
            (remark,) = [one.text for one in service.status().remarks]
            assert ("'picky'" in remark, words in remark) == (True, True), remark


@in_a_loop
async def test_a_task_that_no_kind_of_node_can_ever_hold_is_refused(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, _):
        for smallest, kind in ((1, "tpu"), (3, "v100")):
            with pytest.raises(BadInput, match=f"runs on {kind} only; there are 2 v100, 2 k80") as refused:
                await submit(service, "a", smallest, 4, curves={kind: FAST})
            assert refused.value.where == "curves"
        assert daemon.harvester.unfinished == ()


@in_a_loop
async def test_a_task_whose_speed_is_unknown_runs_on_the_kinds_that_it_names(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, world):
        await submit(service, "picky", 1, 2, kinds=("v100",))
        with pytest.raises(BadInput, match="runs on p100 only"):
            await submit(service, "odd", 1, 2, kinds=("p100",))
        world.lend("k1", "v1")
        await decided(daemon)
        assert world.held["picky"] == {"v1"}
        spec = daemon.harvester.spec("picky")
        assert spec.curves == {"v100": spec.curve}


@in_a_loop
async def test_a_live_run_learns_speeds_by_kind_and_estimates_them_from_other_tasks(tmp_path: Path) -> None:
    async with live_inside(tmp_path, kinds=KINDS_LIVE_KINDS) as (daemon, service, _, world):

        def train(name: str, speed: float, first: int = 1) -> None:
            now = time.time()
            world.tell(name, "starting", t=now)
            world.tell(name, "confirmed", t=now, size=1, step=first)
            for step in range(first, first + 40):
                at = now + (step - first) * 10.0 / speed
                world.tell(name, "report", t=at, step=step, size=1, samples=10, loss=None)

        def speed(name: str, kind: str) -> float:
            return daemon.harvester.spec(name).curves[kind].speed(1)

        await submit(service, "a", 1, 1, kinds=("v100", "k80"))
        world.lend("v1")
        await decided(daemon)
        train("a", 50.0)
        await until(lambda: speed("a", "v100") > 40.0, "its speed is learned")
        assert speed("a", "v100") == pytest.approx(50.0)
        assert speed("a", "k80") == pytest.approx(50.0), "equal, as no other task was measured"
        world.take("v1")
        world.lend("k1")
        await until(lambda: world.held.get("a") == {"k1"}, "it moved to the other kind")
        train("a", 20.0, first=41)
        await submit(service, "b", 1, 1, kinds=("v100", "k80"))
        world.lend("v2")
        await until(lambda: world.held.get("b") == {"v2"}, "the other task runs")
        train("b", 100.0)
        await until(lambda: speed("b", "v100") > 90.0, "its speed is learned")
        assert (speed("b", "v100"), speed("b", "k80")) == (pytest.approx(100.0), pytest.approx(40.0))
