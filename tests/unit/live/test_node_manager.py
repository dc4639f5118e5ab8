"""A scheduler that breaks is run again, each time later, and soon again once it has worked for a while."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain import NotAvailable
from bftrain.live.model.node_kinds import NodeKinds
from bftrain.live.nodes.node_manager import NodeManager
from bftrain.live.schedulers.port import AgentOrder


class Breaks:
    """A scheduler whose runs end after so many seconds each."""

    name = "toy"

    def __init__(self, clock: list[float], lasts: list[float]) -> None:
        self._clock = clock
        self._lasts = lasts

    async def run(self, *_: object) -> None:
        if not self._lasts:
            await asyncio.Event().wait()
        self._clock[0] += self._lasts.pop(0)
        raise NotAvailable("never preempted")


def test_it_waits_twice_as_long_each_time_until_a_run_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept, remarks = [0.0], [], []
    scheduler: Any = Breaks(clock, [0.0] * 8 + [59.0, 60.0, 0.0])
    nothing: Any = SimpleNamespace()
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await pause(0)

    async def test() -> None:
        node_manager = NodeManager(scheduler, nothing, nothing, nothing, nothing, remarks.append, kinds=NodeKinds())
        monkeypatch.setattr(
            "bftrain.live.schedulers.pools.time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time)
        )
        monkeypatch.setattr(asyncio, "sleep", sleep)
        node_manager.run(AgentOrder(argv=("agent",)))
        for _ in range(100):
            await pause(0)
        node_manager.close()

    asyncio.run(test())
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60, 60, 1, 2]
    assert len(remarks) == len(slept)
    assert "never preempted" in remarks[0]
