"""A clock that was set back behind the journal is remarked, once, and so is that it has caught up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bftrain.live.run.clock_check import ClockCheck
from tests.helpers.live_inside import in_a_loop, live_inside


def test_a_clock_that_was_set_back_is_remarked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now_s = 10_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    check = ClockCheck(said.append)
    check(10_059.0)
    assert said == [], "clocks of two machines that take turns may differ a little"
    check(17_200.0)
    check(17_200.0)
    assert len(said) == 1
    assert "7,200 s behind the last entry of the journal: set it" in said[0]
    now_s = 17_200.0
    check(17_200.0)
    assert said[1:] == ["the clock of this machine has caught up with the journal"]


@in_a_loop
async def test_how_long_it_runs_is_counted_from_the_clock_of_the_journal(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (daemon, service, _, world):
        daemon.harvester.time_s = time.time() + 7200.0
        world.lend("n1")
    async with live_inside(tmp_path, world) as (_, service, _, _):
        status = service.status()
        assert status.now_s - status.since_s < 60.0
