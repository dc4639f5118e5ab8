"""Hours and samples by user, project, campaign, month and task: they add up to what the journal says, to the second."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import BadInput, Journal, Settings, SpeedCurve, build_harvester
from bftrain.live.model.node_kinds import NodeRates
from bftrain.live.tasks.usage_ledger import UsageLedger, usage
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import (
    NodeKinds,
    Progress,
    SiteSettings,
    TaskStore,
    Usage,
    World,
    decided,
    in_a_loop,
    live_inside,
)
from tests.unit.live.test_task_progress import kept_task

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
        for _ in range(60):
            clock[0] += dice.expovariate(1 / 4000)
            lent = set(dice.sample(sorted(nodes), dice.randrange(5)))
            world.lend(*sorted(lent - world.allowed))
            world.take(*sorted(world.allowed - lent))
            await decided(daemon)
            if dice.random() < 0.3:
                clock[0] += 7.0
                service.usage(CHIEF, "user", "")
        world.take(*sorted(world.allowed))
        await decided(daemon)
        found = {by: service.usage(CHIEF, by, "") for by in ("user", "project", "campaign", "month", "day", "task")}
        views = {f"#{view.number}": view.node_s for view in service.tasks(CHIEF, over=False)}
        own = service.usage(ANN, "task", "")
        later = service.usage(CHIEF, "day", "2026-12-01")
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
        (before,) = service.usage(ANN, "user", "")
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.tell("a", "done", step=1)
        await decided(daemon)
        (row,) = service.usage(ANN, "user", "")
        assert row.samples == before.samples == 10.0
        assert row.node_s == pytest.approx(service.task(ANN, "a").node_s)
        assert sum(day.node_s for day in service.status().harvested) == pytest.approx(row.node_s)


def ledger(folder: Path) -> tuple[Journal, UsageLedger]:
    folder.mkdir(exist_ok=True)
    journal = Journal.create(folder / "live.db", Settings())
    TaskStore(journal)
    return journal, UsageLedger(journal, NodeRates())


def test_hours_of_tasks_of_the_first_release_are_taken_over_once(tmp_path: Path) -> None:
    journal, _ = ledger(tmp_path)
    store = TaskStore(journal)
    store.add(replace(kept_task(), ended_s=0.0, progress=Progress(samples=70.0, earlier_samples=20.0, node_s=5.0)))
    store.record_fact("version of tables", "1")
    store.write()
    for _ in range(2):
        TaskStore(journal).write()
        (row,) = usage(journal, "task")
        assert (row.of, row.samples, row.node_s) == ("#1", 50.0, 5.0)


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


def test_a_slot_is_one_gpu_with_its_part_of_the_watts_of_a_node() -> None:
    site = SiteSettings(kinds=KINDS, usage=Usage(gpus={"v100": 4.0}, watts=1200.0))
    rates = site.node_rates(NodeKinds(site.kind_of, unit="gpu").of, lambda _: 1.0)
    assert rates.of("n1/gpu3") == (1.0, 300.0)
    assert SiteSettings(usage=Usage(watts=300.0)).node_rates(lambda _: "", lambda _: 1.0).of("n1/gpu0") == (1.0, 300.0)
