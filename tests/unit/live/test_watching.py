"""Watching a live run: updates, history, metrics and the description of the API."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bftrain import NodesJoined, NotNow, SpeedCurve, TaskFailed, __version__
from bftrain.live.api.status_stream import EventFeed, HistoryLevel, HistorySample, LiveHistory
from tests.helpers.asking import ask
from tests.helpers.live_inside import (
    Api,
    Caller,
    Inside,
    Span,
    Update,
    World,
    decided,
    in_a_loop,
    live_inside,
    ourselves,
    submit,
    wire,
)
from tests.helpers.live_view import LiveView
from tests.helpers.timeouts import set_limits, set_timeouts

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
        assert [one.text for one in scene.happened] == [
            "a submitted",
            "n[1-3] became idle: 3 nodes available",
            "a 0 → 2",
        ]

        inside.world.take("n1")
        await decided(inside.daemon)
        second = read(await anext(stream))
        assert second.nodes is not None
        assert second.nodes.changed["n1"] == ("away", 0)
        scene.update(second)
        await until(stream, scene, lambda scene: scene.nodes["n3"] == ("used", 1))
        assert scene.nodes == {"n1": ("away", 0), "n2": ("used", 1), "n3": ("used", 1)}
        assert [one.text for one in scene.happened][3:] == ["n1 taken back: 2 nodes available", "a 2 → 1", "a 1 → 2"]

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
        assert [one.text for one in scene.happened] == ["n[1-2] became idle: 2 nodes available"]
        assert {number for cell in scene.cells.values() for number in cell.sizes} == {0}
        theirs = read(pieces[0]).history
        assert theirs is not None
        assert not theirs.names
        ours = [read(piece) async for piece in inside.service.watch.updates(ourselves(), 600.0, 1)]
        assert ours[0].history is not None
        assert ours[0].history.names == {1: "secret"}


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
    set_limits(monkeypatch, shown_tasks=3)
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
        set_timeouts(monkeypatch, away_node_s=0.0)
        await until(stream, scene, lambda scene: scene.nodes == {"n2": ("free", 0)})
        await stream.aclose()


@in_a_loop
async def test_no_user_keeps_the_others_from_looking(tmp_path: Path) -> None:
    ann, bob = (Caller(uid=70000 + number, user=str(number), operator=False) for number in range(2))
    async with live_inside(tmp_path) as inside:
        streams = [inside.service.watch.updates(ann, 600.0, 0) for _ in range(20)]
        for stream in streams:
            assert (await anext(stream)).startswith(b"data: ")
        with pytest.raises(NotNow, match="you have 20 open streams already"):
            inside.service.watch.updates(ann, 600.0, 0)
        for other in (bob, ourselves()):
            streams.append(inside.service.watch.updates(other, 600.0, 0))
            await anext(streams[-1])
        await streams.pop(0).aclose()
        streams.append(inside.service.watch.updates(ann, 600.0, 0))
        for stream in streams:
            await stream.aclose()


def test_the_feed_is_short_about_many() -> None:
    feed = EventFeed()
    feed.resized(1.0, [(number, 0, 2) for number in range(1, 10)])
    feed.on_event(
        NodesJoined(time_s=2.0, nodes=tuple(f"{'abcdefghijklm'[n % 13]}{n * 7}x" for n in range(60))), 60, lambda _: 0
    )
    feed.on_event(TaskFailed(time_s=3.0, task="b", reason="no such file"), 60, lambda _: 2)
    feed.on_event(NodesJoined(time_s=4.0, nodes=()), 60, lambda _: 0)
    resized, many, failed = feed.since(0, "t{}".format)
    assert resized.text == "t1 0 → 2, t2 0 → 2, t3 0 → 2, t4 0 → 2, t5 0 → 2, t6 0 → 2 and 3 other tasks"
    assert many.text == "60 nodes became idle: 60 nodes available"
    assert (failed.kind, failed.text) == ("failed", "t2 failed")


def test_a_cell_holds_exact_averages_however_short_something_lasted() -> None:
    level = HistoryLevel(Span(span_s=100.0, width_s=10.0))
    level.add(100.0, 102.0, HistorySample(4, 50.0, {1: 4}))
    level.add(102.0, 102.5, HistorySample(2, 0.0, {1: 1, 2: 1}))
    level.add(102.5, 110.0, HistorySample(0, 0.0, {}))
    level.add(110.0, 111.0, HistorySample(8, 1.0, {}))
    first, second = level.cells()
    assert (first.begin_s, first.known_s) == (100.0, 10.0)
    assert first.pool == pytest.approx((2 * 4 + 0.5 * 2) / 10)
    assert first.speed == pytest.approx(10.0)
    assert first.sizes == pytest.approx({1: (2 * 4 + 0.5) / 10, 2: 0.05})
    assert (second.begin_s, second.known_s, second.pool) == (110.0, 1.0, 8.0)


@pytest.mark.parametrize("seed", range(2))
def test_all_levels_tell_of_the_same_node_seconds(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same every time
    history, now, held = LiveHistory(), 1_700_000_000.0, dict[int, float]()
    state = HistorySample(0, 0.0, {})
    history.look(now, state)
    for _ in range(300):
        seconds = dice.expovariate(2.0)
        for number, size in state.sizes.items():
            held[number] = held.get(number, 0.0) + size * seconds
        now += seconds
        state = HistorySample(9, 1.0, {number: dice.randint(1, 3) for number in range(3) if dice.random() < 0.7})
        history.look(now, state)
    for level in history.levels:
        found: dict[int, float] = {}
        for cell in level.cells():
            for number, size in cell.sizes.items():
                found[number] = found.get(number, 0.0) + size * cell.known_s
        assert found == pytest.approx(held, rel=1e-5)


def test_memory_is_bounded_in_every_case() -> None:
    history, now = LiveHistory(), 1_700_000_000.0

    def live(steps: int) -> int:
        nonlocal now
        for step in range(steps):
            now += 7200.0
            number = int(now)
            history.look(now, HistorySample(10, 1.0, {number: 5, number + 1: 5}))
            assert step >= 0
        cells = [list(level.cells()) for level in history.levels]
        assert all(len(found) <= 721 for found in cells)
        return sum(sys.getsizeof(cell.sizes) for found in cells for cell in found)

    before = live(150)
    assert live(150) < 1.5 * before


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read_of_prometheus(text: str) -> Series:
    """Read as Prometheus does; duplicates are found."""
    found: Series = {}
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(names) == len(set(names))
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(series: Series, name: str, /, **labels: str) -> float:
    return series[name, tuple(sorted(labels.items()))]


def seen(inside: Inside) -> Series:
    return read_of_prometheus(inside.service.metrics.text())


@in_a_loop
async def test_a_run_in_which_nothing_happened_tells_zeroes(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        found = seen(inside)
        assert value(found, "bftrain_pool_nodes") == 0
        assert value(found, "bftrain_tasks", state="waiting") == 0
        assert value(found, "bftrain_preemptions_total") == 0
        assert value(found, "bftrain_tasks_ended_total", state="failed") == 0
        assert value(found, "bftrain_events_total", event="nodes_left") == 0
        assert value(found, "bftrain_state", state="running") == 1
        assert value(found, "bftrain_state", state="broken") == 0
        assert value(found, "process_resident_memory_bytes") > 1e6
        assert value(found, "process_open_fds") > 2
        assert value(found, "bftrain_journal_bytes") > 1000
        about = {"version": __version__, "scheduler": "inside", "solver": "exact", "objective": "throughput"}
        assert value(found, "bftrain_build_info", **about) == 1


@in_a_loop
async def test_what_happens_is_counted(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        world = inside.world
        await submit(inside.service, "a", 2, 3, curve=SpeedCurve(nodes=(1, 2, 3), rate=(10.0, 20.0, 30.0)))
        await submit(inside.service, "b", 1, 1)
        world.lend("n1", "n2", "n3", "n4")
        await decided(inside.daemon)
        found = seen(inside)
        assert (value(found, "bftrain_pool_nodes"), value(found, "bftrain_used_nodes")) == (4, 4)
        assert value(found, "bftrain_tasks", state="running") == 2
        assert value(found, "bftrain_rescales_total", change="start") == 2
        assert value(found, "bftrain_nodes_joined_total") == 4
        decisions = value(found, "bftrain_decisions_total", answer="solver")
        assert decisions == value(found, "bftrain_solve_seconds_count") >= 1
        # The one at the begin followed from no event
        assert value(found, "bftrain_event_to_orders_seconds_count") == decisions - 1 >= 1
        assert value(found, "bftrain_journal_steps") == len(inside.daemon.opened.journal)

        await asyncio.sleep(0.01)
        found = seen(inside)
        idle_s = value(found, "bftrain_idle_node_seconds_total")
        assert 0.04 <= value(found, "bftrain_used_node_seconds_total") <= idle_s

        taken = sorted(world.held["a"])[:2]
        world.take(*taken)
        await decided(inside.daemon)
        found = seen(inside)
        assert value(found, "bftrain_nodes_left_total") == 2
        assert value(found, "bftrain_preemptions_total") == 1

        await inside.service.cancel(ourselves(), "b")
        world.tell("a", "failed", reason="boom")
        await decided(inside.daemon)
        found = seen(inside)
        assert value(found, "bftrain_tasks_ended_total", state="cancelled") == 1
        assert value(found, "bftrain_task_failures_total") == 1
        assert value(found, "bftrain_preemptions_total") == 1, "nodes that were lost in other ways are none"
        assert value(found, "bftrain_tasks_ended_total", state="failed") == 0, "it gets another try"


@in_a_loop
async def test_samples_are_counted_once_and_go_on_after_a_restart(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as inside:
        await submit(inside.service, "a", 1, 2)
        world.lend("n1")
        await decided(inside.daemon)
        for step in (1, 2, 2, 1, 3):
            world.tell("a", "report", step=step, samples=10, size=1)
        world.tell("gone", "report", step=1, samples=10, size=1)
        await decided(inside.daemon)
        assert value(seen(inside), "bftrain_samples_total") == 30
        inside.daemon.task_manager.progress()
        inside.daemon.decision_loop.write()
    async with live_inside(tmp_path, world) as inside:
        assert value(seen(inside), "bftrain_samples_total") == 0
        world.tell("a", "report", step=4, samples=5, size=1)
        world.tell("a", "done", step=4)
        await decided(inside.daemon)
        found = seen(inside)
        assert value(found, "bftrain_samples_total") == 5
        assert value(found, "bftrain_tasks_ended_total", state="done") == 1


@in_a_loop
async def test_no_user_and_nothing_is_named(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "secretly", 1, 2, campaign="hidden")
        inside.world.lend("node77")
        await decided(inside.daemon)
        answered = await ask(inside.api.addresses[0], "GET /metrics")
        assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answered.body.decode()
        assert value(read_of_prometheus(text), "bftrain_tasks", state="running") == 1
        for name in ("secretly", "hidden", "node77", ourselves().user, str(tmp_path)):
            assert not re.search(rf"\b{re.escape(name)}\b", text), name


@pytest.mark.parametrize(
    ("settings", "status"), [(Api(tcp="127.0.0.1:0"), 401), (Api(tcp="127.0.0.1:0", open_metrics=True), 200)]
)
@in_a_loop
async def test_over_tcp_the_token_is_needed_unless_the_site_says_so(settings: Api, status: int, tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=settings) as inside:
        tcp = inside.api.addresses[1]
        assert (await ask(tcp, "GET /metrics")).status == status
        assert (await ask(tcp, "GET /metrics", host="evil.example")).status == 421
        assert (await ask(tcp, "GET /v1/status")).status == 401
        token = inside.daemon.site.token.read_text().strip()
        assert (await ask(tcp, "GET /metrics", authorization=f"Bearer {token}")).status == 200
        found = seen(inside)
        assert value(found, "bftrain_api_answers_total", code="421") == 1
        assert value(found, "bftrain_api_answers_total", code="401") >= 1


class Described:
    """The API's own description."""

    def __init__(self, whole: dict[str, Any]) -> None:
        self.whole = whole
        self.schemas = whole["components"]["schemas"]

    def checker(self, name: str) -> Any:  # noqa: ANN401 - a validator of jsonschema_rs
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": self.schemas}}
        return jsonschema_rs.validator_for(schema)


async def described(inside: Inside) -> Described:
    return Described((await ask(inside.api.addresses[0], "GET /v1/openapi.json")).json)


RUN = {"argv": ["a"]}
SENT: list[tuple[str, dict[str, Any], bool]] = [
    ("Submission", {"run": RUN, "max_nodes": 1}, True),
    ("Submission", {"run": RUN, "max_nodes": 2, "name": "a" * 100}, True),
    ("Submission", {"run": RUN, "max_nodes": 2, "curve": None}, True),
    ("Submission", {"run": {"argv": []}, "max_nodes": 1}, False),
    ("Submission", {"run": {"argv": [""]}, "max_nodes": 1}, False),
    ("Submission", {"run": {**RUN, "stop_grace_s": -1}, "max_nodes": 1}, False),
    ("Submission", {"run": {**RUN, "workers_per_node": -1}, "max_nodes": 1}, False),
    ("Submission", {"run": {**RUN, "finish_code": 0}, "max_nodes": 1}, False),
    ("Submission", {"run": {**RUN, "finish_code": 125}, "max_nodes": 1}, True),
    ("Submission", {"run": {**RUN, "finish_code": 126}, "max_nodes": 1}, False),
    ("Submission", {"run": RUN, "max_nodes": 0}, False),
    ("Submission", {"run": RUN, "max_nodes": 1_000_001}, False),
    ("Submission", {"run": RUN, "max_nodes": 2, "min_nodes": 0}, False),
    ("Submission", {"run": RUN, "max_nodes": 2, "name": "-a"}, False),
    ("Submission", {"run": RUN, "max_nodes": 2, "name": "a" * 101}, False),
    ("Submission", {"run": RUN, "max_nodes": 2, "odd": 1}, False),
    ("Nodes", {"nodes": ["a", "b"]}, True),
    ("Nodes", {"nodes": []}, False),
    ("Nodes", {"nodes": ["a", "a"]}, False),
    ("Nodes", {"nodes": [""]}, False),
]


@in_a_loop
async def test_the_description_is_valid_and_true_of_what_is_taken(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        about = await described(inside)
        for schema in about.schemas.values():
            jsonschema_rs.meta.validate(schema)
        for name, sent, good in SENT:
            path = "/v1/tasks" if name == "Submission" else "/v1/drain"
            answered = await ask(inside.api.addresses[0], f"POST {path}", sent)
            assert (about.checker(name).is_valid(sent), answered.status) == (good, 200 if good else 400), sent


@in_a_loop
async def test_what_is_answered_is_as_described(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a", work_samples=100.0)
        await submit(inside.service, "b")
        await inside.service.cancel(ourselves(), "b")
        inside.world.lend("n1", "n2")
        await decided(inside.daemon)
        inside.world.tell("a", "confirmed", size=2)
        inside.world.tell("a", "report", step=1, samples=10, size=2, loss=float("nan"))
        await decided(inside.daemon)
        about = await described(inside)
        for path, name in (
            ("/v1/status", "StatusView"),
            ("/v1/tasks?all=true", "TaskView"),
            ("/v1/tasks/a", "TaskView"),
            ("/v1/tasks/a/logs", "LogFile"),
            ("/v1/nodes", "NodeView"),
            ("/v1/tasks/c", "Refused"),
        ):
            answer = (await ask(inside.api.addresses[0], f"GET {path}")).json
            for one in answer if isinstance(answer, list) else [answer]:
                about.checker(name).validate(one)


@in_a_loop
async def test_updates_for_watchers_are_as_described(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        address = inside.api.addresses[0]
        watching = asyncio.create_task(ask(address, "GET /v1/watch?updates=2"))
        inside.world.lend("n1")
        await decided(inside.daemon)
        answered, about = await watching, await described(inside)
    assert answered.headers["content-type"] == "text/event-stream"
    updates = re.findall(rb"^data: (.*)$", answered.body, re.MULTILINE)
    assert len(updates) == 2
    for update in updates:
        about.checker("Update").validate(json.loads(update))
