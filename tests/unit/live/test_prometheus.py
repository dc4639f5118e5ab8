"""Metrics: in the form that Prometheus reads, true, and without names of users or tasks."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bftrain import BadInput, SpeedCurve, __version__
from tests.helpers.asking import ask
from tests.helpers.live_inside import Api, Inside, World, decided, in_a_loop, live_inside, ourselves, submit

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Series:
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
    return read(inside.service.metrics.text())


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
        inside.daemon.write()
    async with live_inside(tmp_path, world) as inside:
        assert value(seen(inside), "bftrain_samples_total") == 0
        world.tell("a", "report", step=4, samples=5, size=1)
        world.tell("a", "done", step=4)
        await decided(inside.daemon)
        found = seen(inside)
        assert value(found, "bftrain_samples_total") == 5
        assert value(found, "bftrain_tasks_ended_total", state="done") == 1


@in_a_loop
async def test_a_solver_that_fails_is_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bftrain_solvers.exact import solver  # noqa: PLC0415 - to break it

    def fail(*_: object) -> None:
        raise BadInput("broken")

    monkeypatch.setattr(type(solver), "solve", fail)
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        inside.world.lend("n1")
        await decided(inside.daemon)
        assert value(seen(inside), "bftrain_decisions_total", answer="fallback") >= 1


@in_a_loop
async def test_no_user_and_nothing_is_named(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "secretly", 1, 2, campaign="hidden")
        inside.world.lend("node77")
        await decided(inside.daemon)
        answered = await ask(inside.api.addresses[0], "GET /metrics")
        assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answered.body.decode()
        assert value(read(text), "bftrain_tasks", state="running") == 1
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
