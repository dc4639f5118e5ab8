"""Watching a live run: updates have all at first and then what changed, each tells only what one may know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, NodesJoined, NotNow, TaskFailed
from bftrain.live.client.client import LiveView
from bftrain.live.model.schemas import Update
from bftrain.live.monitor.history import EventFeed, FeedChange
from bftrain.live.monitor.status_stream import span_of
from bftrain.values import wire
from tests.helpers.live_inside import Caller, Inside, decided, in_a_loop, live_inside, ourselves, submit
from tests.helpers.live_limits import set_limits

STRANGER = Caller(uid=4242, user="stranger", operator=False)


def read(piece: bytes) -> Update:
    assert piece.startswith(b"data: ")
    assert piece.endswith(b"\n\n")
    return wire.decode(piece[6:], Update)


async def scene_of(inside: Inside, caller: Caller | None = None, span_s: float = 600.0) -> LiveView:
    stream = inside.service.watch.updates(caller or ourselves(), span_s, 1)
    (update,) = [read(piece) async for piece in stream]
    return LiveView(update)


async def until(stream: AsyncGenerator[bytes, None], scene: LiveView, true: Callable[[LiveView], Any]) -> None:
    async with asyncio.timeout(20):
        while not true(scene):
            scene.update(read(await anext(stream)))


@in_a_loop
async def test_the_first_update_has_all_and_later_ones_what_changed(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a", largest=2)
        inside.world.lend("n1", "n2", "n3")
        await decided(inside.daemon)
        stream = inside.service.watch.updates(ourselves(), 600.0, 0)
        first = read(await anext(stream))
        scene = LiveView(first)
        assert first.status.pool == 3
        assert scene.nodes == {"n1": ("used", 1), "n2": ("used", 1), "n3": ("free", 0)}
        assert scene.tasks[1].size == 2
        assert [one.text for one in scene.happened] == ["a submitted", "n[1-3] became idle: 3 nodes ours", "a 0 → 2"]

        inside.world.take("n1")
        await decided(inside.daemon)
        second = read(await anext(stream))
        assert second.nodes is not None
        assert second.nodes.changed["n1"] == ("away", 0)
        scene.update(second)
        await until(stream, scene, lambda scene: scene.nodes["n3"] == ("used", 1))
        assert scene.nodes == {"n1": ("away", 0), "n2": ("used", 1), "n3": ("used", 1)}
        assert [one.text for one in scene.happened][3:] == ["n1 left: 2 nodes ours", "a 2 → 1", "a 1 → 2"]

        inside.world.tell("a", "done")
        await until(stream, scene, lambda scene: scene.tasks[1].state == "done")
        assert "a finished" in [one.text for one in scene.happened]
        await stream.aclose()


@in_a_loop
async def test_an_update_comes_regularly_when_nothing_happens_and_without_what_did_not_change(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        stream = inside.service.watch.updates(ourselves(), 600.0, 2)
        pieces = [read(piece) async for piece in stream]
        assert len(pieces) == 2
        assert pieces[0].nodes is not None
        assert pieces[1].nodes is None
        assert pieces[1].tasks is None


@in_a_loop
async def test_others_see_that_nodes_are_used_and_not_by_what(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "secret", largest=1)
        inside.world.lend("n1", "n2")
        await decided(inside.daemon)
        await asyncio.sleep(0.1)
        pieces = [piece async for piece in inside.service.watch.updates(STRANGER, 600.0, 1)]
        assert b"secret" not in b"".join(pieces)
        scene = LiveView(read(pieces[0]))
        assert scene.nodes == {"n1": ("used", 0), "n2": ("free", 0)}
        assert not scene.tasks
        assert [one.text for one in scene.happened] == ["n[1-2] became idle: 2 nodes ours"]
        assert {number for cell in scene.cells.values() for number in cell.sizes} == {0}
        seen = inside.service.watch.history_of(STRANGER, 600.0)
        assert not seen.names
        ours = inside.service.watch.history_of(ourselves(), 600.0)
        assert ours.names == {1: "secret"}


@in_a_loop
async def test_what_was_seen_is_there_after_a_restart(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a", largest=2)
        inside.world.lend("n1", "n2")
        await decided(inside.daemon)
        await asyncio.sleep(0.1)
    async with live_inside(tmp_path, inside.world) as again:
        held = [cell.sizes.get(1, 0.0) for cell in again.service.watch.history_of(ourselves(), 600.0).cells]
        assert max(held) > 0


@in_a_loop
async def test_speeds_are_looked_at_each_second(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a", largest=2, work_samples=1000.0)
        inside.world.lend("n1")
        await decided(inside.daemon)
        stream = inside.service.watch.updates(ourselves(), 600.0, 0)
        scene = LiveView(read(await anext(stream)))
        now = time.time()
        for step in range(3):
            inside.world.tell("a", "report", step=step, size=1, samples=10, loss=0.5, t=now + step)
        await until(stream, scene, lambda scene: any(cell.speed > 0 for cell in scene.cells.values()))
        assert scene.tasks[1].speed == pytest.approx(10.0)
        assert scene.tasks[1].done == pytest.approx(0.02)
        await stream.aclose()


@in_a_loop
async def test_of_very_many_tasks_those_that_run_are_shown_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, rows=3)
    async with live_inside(tmp_path) as inside:
        for number in range(6):
            await submit(inside.service, f"t{number}", smallest=2 if number < 5 else 1, largest=2)
        inside.world.lend("n1")
        await decided(inside.daemon)
        scene = await scene_of(inside)
        assert sorted(row.name for row in scene.tasks.values()) == ["t0", "t1", "t5"]
        assert scene.more == 3


@in_a_loop
async def test_nodes_that_were_ours_are_shown_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_inside(tmp_path) as inside:
        inside.world.lend("n1", "n2")
        await decided(inside.daemon)
        inside.world.take("n1", "n2")
        await decided(inside.daemon)
        inside.world.lend("n2")
        await decided(inside.daemon)
        stream = inside.service.watch.updates(ourselves(), 600.0, 0)
        scene = LiveView(read(await anext(stream)))
        assert scene.nodes == {"n1": ("away", 0), "n2": ("free", 0)}
        set_limits(monkeypatch, away_node_s=0.0)
        await until(stream, scene, lambda scene: scene.nodes == {"n2": ("free", 0)})
        await stream.aclose()


@in_a_loop
async def test_no_user_keeps_the_others_from_looking(tmp_path: Path) -> None:
    ann, bob = (Caller(uid=70000 + number, user=str(number), operator=False) for number in range(2))
    async with live_inside(tmp_path) as inside:
        streams = [inside.service.watch.updates(ann, 600.0, 0) for _ in range(20)]
        for stream in streams:
            assert (await anext(stream)).startswith(b"data: ")
        with pytest.raises(NotNow, match="you watch 20 times already"):
            inside.service.watch.updates(ann, 600.0, 0)
        for other in (bob, ourselves()):
            streams.append(inside.service.watch.updates(other, 600.0, 0))
            await anext(streams[-1])
        await streams.pop(0).aclose()
        streams.append(inside.service.watch.updates(ann, 600.0, 0))
        for stream in streams:
            await stream.aclose()


@in_a_loop
async def test_only_so_many_may_watch_and_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        watch = inside.service.watch
        streams = [watch.updates(ourselves(), 600.0, 0) for _ in range(100)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(NotNow, match="100 watch already"):
            watch.updates(ourselves(), 600.0, 0)
        for stream in streams:
            await stream.aclose()
        await anext(stream := watch.updates(ourselves(), 600.0, 0))
        await stream.aclose()


@pytest.mark.parametrize("text", ["", "0", "-5", "nan", "inf", "864001", "ten", "1e9"])
def test_a_span_that_cannot_be_looked_at_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="must be seconds, up to 864000"):
        span_of(text)


def test_the_feed_is_short_about_many() -> None:
    feed = EventFeed()
    feed.resized(1.0, [FeedChange(number, 0, 2) for number in range(1, 10)])
    feed.on_event(
        NodesJoined(time_s=2.0, nodes=tuple(f"{'abcdefghijklm'[n % 13]}{n * 7}x" for n in range(60))), 60, lambda _: 0
    )
    feed.on_event(TaskFailed(time_s=3.0, task="b", reason="no such file"), 60, lambda _: 2)
    feed.on_event(NodesJoined(time_s=4.0, nodes=()), 60, lambda _: 0)
    resized, many, failed = feed.since(0, "t{}".format)
    assert resized.text == "t1 0 → 2, t2 0 → 2, t3 0 → 2, t4 0 → 2, t5 0 → 2, t6 0 → 2 and 3 other tasks"
    assert many.text == "60 nodes became idle: 60 nodes ours"
    assert (failed.kind, failed.text) == ("failed", "t2 failed")
