"""What ends a live run or holds its decisions back: journals that cannot be written, parts that break, clocks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bftrain import Journal, NotAvailable, NotNow, Rerun, SpeedCurve
from bftrain.journal import JournalStalled
from tests.helpers.live_inside import (
    Times,
    World,
    decided,
    full_disk,
    in_a_loop,
    live_inside,
    ourselves,
    remarks,
    submit,
    until,
)

CURVE = SpeedCurve(nodes=(1, 4), rate=(10.0, 40.0))


@in_a_loop
async def test_a_journal_that_cannot_be_written_ends_the_run_and_orders_nothing_that_is_not_remembered(
    tmp_path: Path,
) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        await submit(service, "a", 1, 1)
        await decided(daemon)
        full = NotAvailable("cannot be written: database or disk is full", where="live.db")
        with full_disk(full):
            with pytest.raises(NotAvailable, match="the journal cannot be written"):
                await submit(service, "b", 1, 1)
            assert daemon.state == "broken"
            assert daemon.broken.result() is full
            assert not daemon.write() or daemon.task_store.due() == []
            for name in ("c", "d"):
                with pytest.raises(NotNow, match="is ending"):
                    await submit(service, name, 1, 1)
            orders = len(world.orders())
            world.lend("n3")
            world.take("n1")
            await asyncio.sleep(0.05)
            assert len(world.orders()) == orders
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await decided(daemon)
        assert daemon.harvester.unfinished == ("a",)
        assert world.held["a"] < {"n2", "n3"}


@in_a_loop
async def test_a_journal_that_cannot_be_written_at_the_start_is_the_end_of_it(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world, begin=False) as (daemon, _, _, _):
        full = NotAvailable("cannot be written: database or disk is full", where="live.db")
        with full_disk(full):
            await daemon.begin()
        assert (daemon.state, daemon.broken.result(), daemon.ready.is_set()) == ("broken", full, False)
        assert world.asked("apply") == []


@in_a_loop
async def test_with_a_full_disk_nodes_are_handed_back_and_training_goes_on(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2", "n3")
        await submit(service, "a", 1, 2)
        await submit(service, "b", 1, 1)
        await decided(daemon)
        with full_disk():
            (taken,) = world.held["b"]
            world.take(taken)
            await until(lambda: not world.held["b"])
            assert daemon.state == "running"
            assert daemon.decision_loop.stalled is not None
            assert len(world.held["a"]) == 2, "the others go on"
            for change in (submit(service, "c"), service.pause(ourselves(), "a")):
                with pytest.raises(NotAvailable, match="nothing can be changed now: cannot be written: disk is full"):
                    await change
            world.lend("n4")
            world.tell("a", "done", step=9)
            await until(lambda: daemon.harvester.unfinished == ("b",))
            await asyncio.sleep(0.05)
            assert world.held["b"] == set(), "no task is started that is not remembered"
            (said,) = [text for text in remarks(daemon) if "until the journal can be written" in text]
            assert "no new tasks are taken" in said
        await until(lambda: bool(world.held["b"]))
        assert "the journal is written again: new tasks are taken, and nodes are given to tasks" in remarks(daemon)
        await submit(service, "c", 1, 1)
        await decided(daemon)
        plan = daemon.harvester.plan
        assert list(Rerun(daemon.opened.journal).differences()) == []
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.harvester.plan == plan, "all of it is written, in its order"
        assert [record.name for record in daemon.task_store.over] == ["a"]


@in_a_loop
async def test_with_a_full_disk_a_task_can_be_cancelled(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        for name in ("a", "b", "c"):
            await submit(service, name, 1, 1)
        await decided(daemon)
        first, second, waiting = sorted("abc", key=lambda name: not world.held.get(name))
        with full_disk():
            for name in (first, second, waiting):
                with pytest.raises(NotAvailable, match=f"task '{name}' holds no nodes any more, but is cancelled for"):
                    await service.cancel(ourselves(), name)
                assert not world.held.get(name), "what it writes may be what filled the disk"
                with pytest.raises(NotNow):
                    await service.cancel(ourselves(), name)
        await until(lambda: daemon.decision_loop.stalled is None)
        assert {record.state for record in daemon.task_store.over} == {"cancelled"}
        assert list(Rerun(daemon.opened.journal).differences()) == []


@pytest.mark.parametrize("leaves", [0, 1, 2, 3])
@in_a_loop
async def test_a_decision_that_a_full_disk_kept_is_carried_out_as_far_as_its_nodes_are_still_there(
    leaves: int, tmp_path: Path
) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 4, curve=CURVE)
        await decided(daemon)
        orders = len(world.orders())
        append = Journal.append_decision
        with mock.patch.object(Journal, "append_decision", side_effect=JournalStalled("disk is full")):
            world.lend("n2", "n3")
            await until(lambda: daemon.decision_loop.stalled is not None)
            assert world.orders()[orders:] == []
            gone = ("n1", "n2", "n3")[:leaves]
            if gone:
                world.take(*gone)
            await asyncio.sleep(0.02)
            assert world.held["a"] == ({"n1"} if not leaves else set())
        assert Journal.append_decision is append
        await until(lambda: daemon.decision_loop.stalled is None)
        await decided(daemon)
        assert world.held["a"] == {"n1", "n2", "n3"}.difference(gone)
        taking = [order["action"] for order in world.orders()[orders:] if order["action"] in {"start", "grow"}]
        assert taking == [["grow"], ["start"], ["start"], []][leaves]
        assert list(Rerun(daemon.opened.journal).differences()) == []


@in_a_loop
async def test_an_end_in_order_with_a_full_disk_does_not_say_that_all_is_remembered(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1")
        await submit(service, "a", 1, 2)
        await decided(daemon)
        with full_disk():
            await daemon.drain()
            assert isinstance(daemon.broken.result(), JournalStalled)
        assert world.asked("leave") == [None], "and all nodes are given back"


@in_a_loop
async def test_decisions_settle_for_a_while_where_that_is_asked_for(tmp_path: Path) -> None:
    async with live_inside(tmp_path, times=Times(settle_s=0.2)) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.lend("n1")
        await asyncio.sleep(0)
        assert "n1" in daemon.harvester.pool
        world.lend("n2")
        await decided(daemon)
        assert [order["nodes"] for order in world.orders() if order["action"] == "start"] == [("n1", "n2")]


@in_a_loop
async def test_what_is_decided_is_written_before_it_is_ordered_and_what_left_is_ordered_before_it_is_written(
    tmp_path: Path,
) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        await decided(daemon)
        append_decision, append_events = Journal.append_decision, Journal.append_events

        def decision(journal: Journal, *words: Any, **more: Any) -> None:  # noqa: ANN401 - handed through
            append_decision(journal, *words, **more)
            world.log.append(("decision written", None))

        def events(journal: Journal, *words: Any, **more: Any) -> None:  # noqa: ANN401 - handed through
            append_events(journal, *words, **more)
            world.log.append(("events written", None))

        with mock.patch.multiple(Journal, append_decision=decision, append_events=events):
            world.log.clear()
            world.lend("n1", "n2")
            await decided(daemon)
            assert [what for what, _ in world.log] == ["events written", "decision written", "apply"]
            world.log.clear()
            world.take("n1")
            await decided(daemon)
            assert [what for what, _ in world.log][:2] == ["apply", "events written"]


@in_a_loop
async def test_an_order_that_cannot_be_written_is_not_given(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        full = NotAvailable("cannot be written: disk is full")
        with mock.patch.object(Journal, "append_decision", side_effect=full):
            world.lend("n1", "n2")
            await until(lambda: daemon.state == "broken")
        assert world.orders() == []


@in_a_loop
async def test_an_order_that_cannot_be_given_ends_the_run_before_more_is_written(tmp_path: Path) -> None:
    """Else the journal would go on from what it does not know."""
    async with live_inside(tmp_path) as (daemon, service, _, world):
        await submit(service, "a", 1, 4)
        world.lend("n1", "n2")
        await decided(daemon)
        steps = len(daemon.opened.journal)
        with mock.patch.object(daemon.launcher_pool, "carry_out", side_effect=RuntimeError("odd launcher")):
            world.take("n1")
            await until(lambda: daemon.state == "broken")
        assert "odd launcher" in str(daemon.broken.result())
        assert len(daemon.opened.journal) == steps


@in_a_loop
async def test_a_clock_that_stops_ends_the_run(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, _, _, _):
        with mock.patch.object(daemon.task_manager, "learned", side_effect=ValueError("odd speed")):
            await until(lambda: daemon.state == "broken")
        assert "the clock stopped: ValueError: odd speed" in str(daemon.broken.result())
