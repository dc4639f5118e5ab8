"""The keeper of a scheduler under test goes only when the scheduler has come to its end, however long that takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bftrain.live.schedulers.port import AgentOrder, Post
from tests.helpers.pilots import SchedulerRunner


class Slow:
    """A scheduler that still has a command to end when it is asked to end."""

    ended = False

    async def run(self, _post: Post, _agent: AgentOrder) -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(0.3)
            self.ended = True


class Broken(Slow):
    """A scheduler that ends by itself."""

    async def run(self, _post: Post, _agent: AgentOrder) -> None:
        raise ValueError("no such queue")


def kept(scheduler: Slow, folder: Path) -> SchedulerRunner:
    return SchedulerRunner(lambda _settings, _site: scheduler, {}, folder, {})  # type: ignore[arg-type,return-value]  # all it needs


def test_a_scheduler_is_left_when_it_has_ended(tmp_path: Path) -> None:
    scheduler = Slow()
    with kept(scheduler, tmp_path / "site") as keeper:
        assert keeper.problem() is None
    assert scheduler.ended


def test_what_ended_a_scheduler_is_reported_and_hinders_nothing(tmp_path: Path) -> None:
    with kept(Broken(), tmp_path / "site") as keeper:
        keeper.ask(asyncio.sleep(0.0))
        assert isinstance(keeper.problem(), ValueError)
    with pytest.raises(ValueError, match="no such queue"):
        raise keeper.problem() or AssertionError
