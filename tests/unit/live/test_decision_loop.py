"""Events while a solver thinks: departures are handed back at once, the rest waits, outdated answers are no use."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bftrain import (
    Action,
    Decision,
    Journal,
    Limits,
    Plan,
    Release,
    Rerun,
    Settings,
    Solution,
    Start,
    ValueTable,
    build_harvester,
)
from bftrain.live.decision_loop import HURRY, DecisionLoop
from bftrain_solvers.exact import solver as exact
from tests.unit.core.samples import joined, left, nodes, spec, submitted


class Thinker:
    """Solves when it is let."""

    name = "exact"

    def __init__(self) -> None:
        self.asked = 0
        self.let = threading.Semaphore(0)

    def available(self) -> Any:  # noqa: ANN401 - an Availability
        return exact.available()

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        self.asked += 1
        assert self.let.acquire(timeout=30)
        return exact.solve(table, limits)


class Watched:
    """Record all calls."""

    def __init__(self) -> None:
        self.orders: list[Action] = []
        self.decisions: list[Decision] = []
        self.remarks: list[str] = []

    def order(self, actions: Sequence[Action]) -> None:
        self.orders += actions

    def due(self) -> list[Any]:
        return []

    def asking(self, time_s: float) -> list[Any]:  # noqa: ARG002 - as in Watcher
        return []

    def absorbed(self, events: Sequence[object]) -> None:
        pass

    def written(self, events: Sequence[object]) -> None:
        pass

    def decided(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def remark(self, text: str) -> None:
        self.remarks.append(text)

    def stalled(self, error: BaseException | None) -> None:
        raise AssertionError(error)

    def broke(self, error: BaseException) -> None:
        raise error


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def process_steps(path: Path, storm: int) -> tuple[Watched, Plan, int]:
    """Let a node leave and another join each time the solver thinks, so often; gives also how often it was asked."""

    async def run() -> tuple[Watched, Plan, int]:
        thinker, watched, settings = Thinker(), Watched(), Settings()
        with Journal.create(path, settings) as journal:
            harvester = build_harvester(settings, solver=thinker)
            decision_loop = DecisionLoop(harvester, journal, settings, watched)
            decision_loop.on_events(joined(0, *nodes(1, 8)), submitted(0, spec("a", 1, 8)))
            assert thinker.asked == 0, "nothing is decided before it is said that it may be"
            decision_loop.decide()
            for number in range(1, storm + 1):
                await until(lambda number=number: thinker.asked == number)
                decision_loop.on_events(joined(0, f"new{number}"))
                assert f"new{number}" not in harvester.pool, "who joins can wait"
                assert f"new{number}" in decision_loop.pool
                decision_loop.on_events(left(0, f"n{number}"))
                assert watched.orders[-1] == Release(nodes=(f"n{number}",)), "and who leaves is handed back at once"
                assert f"new{number}" in harvester.pool
                thinker.let.release()
            thinker.let.release()
            await until(lambda: bool(watched.decisions) and decision_loop.idle)
            decision_loop.close()
            assert list(Rerun(journal).differences()) == []
            return watched, harvester.plan, thinker.asked

    return asyncio.run(run())


def test_departures_are_handed_back_while_a_solver_thinks_and_its_answer_is_thrown_away(tmp_path: Path) -> None:
    watched, plan, asked = process_steps(tmp_path / "j", 1)
    assert asked == 2
    assert [decision.pool for decision in watched.decisions] == [8]
    assert plan.sizes == {"a": 8}
    started = [action for action in watched.orders if isinstance(action, Start)]
    assert len(started) == 1
    assert "n1" not in started[0].nodes


def test_after_three_outdated_answers_the_fallback_decides(tmp_path: Path) -> None:
    watched, plan, asked = process_steps(tmp_path / "j", 3)
    assert asked == 3
    assert [decision.fallback for decision in watched.decisions] == [f"exact: {HURRY}; sizes of greedy taken"]
    assert plan.sizes == {"a": 8}
