"""What it costs a live run to be looked at: 4,608 nodes, 100 tasks, and a past that is full."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrain.live.api.status_stream import HistorySample, LiveHistory
from tests.helpers.figures import Figures
from tests.helpers.live_inside import decided, in_a_loop, live_inside, ourselves, submit

pytestmark = pytest.mark.bench

NODES, TASKS = 4_608, 100
REST_S = 5


def median_ms(times: list[float]) -> float:
    return 1e3 * sorted(times)[len(times) // 2]


def worked_ms(what: Callable[[], object], times: int = 20) -> float:
    """Return the median of the time that a core works for something."""
    found = []
    for _ in range(times):
        before = time.process_time()
        what()
        found.append(time.process_time() - before)
    return median_ms(found)


@in_a_loop
async def looked_at(folder: Path, figures: Figures) -> None:
    async with live_inside(folder) as inside:
        for number in range(TASKS):
            await submit(inside.service, f"t{number}", largest=64)
        inside.world.lend(*(f"h{number:04}" for number in range(NODES)))
        await decided(inside.daemon)
        watch = inside.service.watch
        look_ms = worked_ms(watch._look)  # noqa: SLF001 - what follows each event is measured
        figures.add("after an event or a decision", look_ms, "ms")
        assert look_ms < 2

        _fill(watch)
        first, later = [], []
        for _ in range(5):
            stream = watch.updates(ourselves(), 864_000.0, 0)
            for times in (first, later, later, later):
                before = time.process_time()
                await anext(stream)
                times.append(time.process_time() - before)
            await stream.aclose()
        figures.add("first update, ten days back", median_ms(first), "ms")
        figures.add("an update after that", median_ms(later), "ms")
        assert median_ms(first) < 100
        assert median_ms(later) < 20

        stream = watch.updates(ourselves(), 600.0, 0)
        await anext(stream)
        before, began = time.process_time(), time.monotonic()
        while time.monotonic() - began < REST_S:
            await anext(stream)
        share = 100 * (time.process_time() - before) / (time.monotonic() - began)
        await stream.aclose()
        figures.add("at rest, with one who looks", share, "% of a core")
        assert share < 3


def _fill(watch: Any) -> None:  # noqa: ANN401 - what serves the updates
    dice = random.Random(1)  # noqa: S311 - the same past every time
    watch.history = history = LiveHistory()
    numbers = range(1, TASKS + 1)
    now = time.time()
    for step in range(4_000):
        sizes = {number: dice.randint(1, 60) for number in numbers}
        history.look(now - 864_000 + step * 216, HistorySample(NODES, 1.0, sizes))


def test_to_be_looked_at_costs_little(tmp_path: Path, figures: Figures) -> None:
    looked_at(tmp_path, figures)
