"""Slots of this machine: idle and busy by the timetable, with agents that are real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bftrain.live.schedulers.local import LocalScheduler, LocalSettings, SlotTimetable, make, with_own_gpus
from tests.helpers.live_inside import Allowed, Remark, Taken, in_a_loop, until
from tests.helpers.schedulers import AgentOrder, News, Site
from tests.helpers.timeouts import set_timeouts

SLEEPS = AgentOrder(argv=("/bin/sleep", "600"))


class Slots:
    """A local scheduler that runs, and what it posted."""

    def __init__(self, scheduler: LocalScheduler, folder: Path) -> None:
        self.scheduler = scheduler
        self.news: list[News] = []
        self.folder = folder / "agents"

    @property
    def allowed(self) -> set[str]:
        found: set[str] = set()
        for news in self.news:
            if isinstance(news, Allowed):
                found.update(news.nodes)
            elif isinstance(news, Taken):
                found.difference_update(news.nodes)
        return found

    def agents(self) -> dict[str, int]:
        found = {}
        for file in self.folder.glob("slot?"):
            with suppress(OSError, ValueError):  # it is being written or removed
                first = re.search(r"\d+", file.read_text())  # its process number
                if first is not None and _lives(int(first[0])):
                    found[file.name] = int(first[0])
        return found


@asynccontextmanager
async def slots(
    folder: Path, order: AgentOrder = SLEEPS, grace_s: float = 0.0, **table: object
) -> AsyncIterator[Slots]:
    """Run a local scheduler; its agents end with the test."""
    scheduler = make(table, Site(name="test", folder=folder, grace_s=grace_s))
    assert isinstance(scheduler, LocalScheduler)
    found = Slots(scheduler, folder)
    running = asyncio.create_task(scheduler.run(found.news.append, order))
    try:
        yield found
    finally:
        running.cancel()
        await scheduler.leave()
    assert found.agents() == {}


def settings(**table: Any) -> LocalSettings:  # noqa: ANN401 - any field
    return LocalSettings(**table)


def test_a_timetable_turns_round_and_those_idle_for_longest_become_busy_first() -> None:
    table = SlotTimetable(settings(nodes=3, idle="2@0,3@4,1@6", loop_s=10.0))
    found = {at_s: sorted(table.idle_at(at_s)) for at_s in (0, 3.9, 4, 6, 10, 14, 26)}
    assert found == {
        0: ["slot1", "slot2"],
        3.9: ["slot1", "slot2"],
        4: ["slot1", "slot2", "slot3"],
        6: ["slot3"],
        10: ["slot1", "slot3"],
        14: ["slot1", "slot2", "slot3"],
        26: ["slot1"],
    }
    once = SlotTimetable(settings(nodes=2))
    assert once.idle_at(0.0) == {"slot1", "slot2"}


@in_a_loop
async def test_agents_run_on_idle_slots_and_are_asked_to_end_when_they_are_wanted(tmp_path: Path) -> None:
    async with slots(tmp_path, nodes=3, idle="2@0,3@0.2,1@1.5") as found:
        assert found.scheduler.available().ok
        await until(lambda: len(found.allowed) == 3)
        await until(lambda: len(found.allowed) == 1 and len(found.agents()) == 1)
        assert set(found.agents()) == found.allowed
        assert await found.scheduler.look() == found.allowed
        assert [news for news in found.news if isinstance(news, Remark)] == []


@in_a_loop
async def test_no_more_agents_than_are_wanted_and_none_where_they_must_not_be(tmp_path: Path) -> None:
    async with slots(tmp_path, nodes=4) as found:
        found.scheduler.want(2, {"slot1"})
        await until(lambda: set(found.agents()) == {"slot2", "slot3"})
        await found.scheduler.give_back(["slot2", "slot4"])
        await until(lambda: set(found.agents()) == {"slot3"})
        await asyncio.sleep(0.05)
        assert set(found.agents()) == {"slot3"}, "what was given back stays so"
        found.scheduler.want(4, ())
        await until(lambda: len(found.agents()) == 4)


@in_a_loop
async def test_an_agent_that_ends_by_itself_is_reported_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeouts(monkeypatch, agent_restart_s=0.05)
    async with slots(tmp_path, nodes=1) as found:
        await until(found.agents)
        before = found.agents()["slot1"]
        os.kill(before, signal.SIGKILL)
        await until(lambda: found.agents().get("slot1") not in {None, before})
        remarks = {news.text for news in found.news if isinstance(news, Remark)}
        assert remarks == {f"the agent on slot1 exited; see {tmp_path}/agents/slot1.log"}


@in_a_loop
async def test_agents_go_on_without_us_and_are_found_again(tmp_path: Path) -> None:
    scheduler = make({"nodes": 2}, Site(name="test", folder=tmp_path))
    assert isinstance(scheduler, LocalScheduler)
    first = Slots(scheduler, tmp_path)
    running = asyncio.create_task(scheduler.run(first.news.append, SLEEPS))
    await until(lambda: len(first.agents()) == 2)
    running.cancel()
    before = first.agents()
    begun = (tmp_path / "agents" / "begun").read_text()
    async with slots(tmp_path, nodes=2) as again:
        await until(lambda: len(again.allowed) == 2)
        await asyncio.sleep(0.05)
        assert again.agents() == before
        assert (tmp_path / "agents" / "begun").read_text() == begun, "and so does the timetable"
    for pid in before.values():
        assert not _lives(pid), "and they end with us, though they are no children of this scheduler"
    await scheduler.leave()  # it was their parent


@in_a_loop
async def test_an_agent_is_known_after_a_restart_if_the_daemon_was_killed_as_it_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen, children = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def killed(*words: Any, **how: Any) -> None:  # noqa: ANN401 - as Popen takes them
        children.append(popen(*words, **how))
        raise asyncio.CancelledError  # nothing of the daemon runs any more

    first = make({"nodes": 1}, Site(name="test", folder=tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", killed)
        with pytest.raises(asyncio.CancelledError):
            await first.run(lambda _: None, SLEEPS)
    (child,) = children
    await until(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"/bin/sleep"))
    async with slots(tmp_path, nodes=1) as found:
        await until(lambda: found.allowed == {"slot1"})
        await asyncio.sleep(0.05)
        assert found.agents() == {"slot1": child.pid}, "there is no second one"
        child.kill()
        await asyncio.to_thread(child.wait)


@in_a_loop
async def test_an_agent_that_cannot_be_written_down_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeouts(monkeypatch, agent_restart_s=0.0)
    (tmp_path / "agents" / "slot1").mkdir(parents=True)  # where its note would be
    begins = AgentOrder(argv=("/usr/bin/touch", str(tmp_path / "it-began")))
    async with slots(tmp_path, begins, nodes=1) as found:
        await until(lambda: any(isinstance(news, Remark) for news in found.news))
        assert "slot1" in (tmp_path / "agents" / "slot1.log").read_text()
        (tmp_path / "agents" / "slot1").rmdir()
        await until((tmp_path / "it-began").exists)


@in_a_loop
async def test_an_agent_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, agent_exit_s=0.1)
    deaf = AgentOrder(argv=("/bin/sh", "-c", "trap '' TERM; echo {node} listens not; while :; do sleep 0.1; done"))
    begun = time.monotonic()
    async with slots(tmp_path, deaf, nodes=1) as found:
        log = tmp_path / "agents" / "slot1.log"
        await until(lambda: log.exists() and log.read_text() == "slot1 listens not\n")
        pid = found.agents()["slot1"]
    assert not _lives(pid)
    assert time.monotonic() - begun < 20


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Ends two tenths of a second after SIGTERM
LINGERS = AgentOrder(argv=("/bin/sh", "-c", "trap 'sleep 0.2; exit 0' TERM; while :; do sleep 0.02; done"))
NEVER = AgentOrder(argv=("/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"))


@in_a_loop
async def test_a_slot_is_taken_when_its_agent_has_used_its_grace(tmp_path: Path) -> None:
    async with slots(tmp_path, LINGERS, grace_s=30.0, nodes=1, idle="1@0,0@0.5") as found:
        await until(found.agents)
        begun_s = float((found.folder / "begun").read_text())
        lived_s = 0.0
        while found.allowed:
            if found.agents():
                lived_s = time.time() - begun_s
            await asyncio.sleep(0.01)
        assert lived_s > 0.6, "it was asked, and went on for a while"
        assert found.agents() == {}
        await asyncio.sleep(0.3)
        assert found.agents() == {}, "no other one is started on a slot that is busy"


@in_a_loop
async def test_an_agent_that_does_not_end_within_its_grace_is_killed(tmp_path: Path) -> None:
    async with slots(tmp_path, NEVER, grace_s=0.3, nodes=1, idle="1@0,0@0.5") as found:
        await until(found.agents)
        await until(lambda: not found.allowed)
        assert found.agents() == {}


@in_a_loop
async def test_agents_on_busy_slots_end_before_a_restarted_daemon_learns_which_are_idle(tmp_path: Path) -> None:
    async with slots(tmp_path, nodes=2, idle="2@0,1@1000") as found:
        await until(lambda: len(found.agents()) == 2)
        table = {"nodes": 2, "idle": "1@0"}
        other = make(table, Site(name="test", folder=tmp_path))
        assert await other.look() == {"slot1"}
        assert set(found.agents()) == {"slot1"}


# Saves within its grace, and ends at once after a second SIGTERM, as agents do
COUNTS = """
trap 'echo asked >>asked; [ -e second ] && exit 3; touch second; (sleep 0.5; touch saved; kill -9 $$) &' TERM
while :; do sleep 0.02; done
"""


@in_a_loop
async def test_a_daemon_that_comes_back_does_not_cut_the_grace_of_an_agent_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counts = AgentOrder(argv=("/bin/sh", "-c", COUNTS))
    table = {"nodes": 1, "idle": "1@0,0@0.5"}
    first = make(table, Site(name="test", folder=tmp_path, grace_s=30.0))
    running = asyncio.create_task(first.run(lambda _: None, counts))
    await until((tmp_path / "asked").exists)
    running.cancel()
    async with slots(tmp_path, counts, grace_s=30.0, **table) as found:
        assert await found.scheduler.look() == frozenset()
        assert (tmp_path / "saved").exists()
    await first.leave()  # it was the parent of the agent
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_agents_of_slots_divide_the_gpus_of_the_machine() -> None:
    command = ["python", "-m", "bftrain_elastic.agent", "--slots", "2"]
    assert with_own_gpus(command, 0)[-4:] == ["--slots", "2", "--first-gpu", "0"]
    assert with_own_gpus(command, 3)[-4:] == ["--slots", "2", "--first-gpu", "6"]
    assert with_own_gpus([*command[:-1], "0"], 3)[-4:] == ["--slots", "1", "--first-gpu", "3"]
    assert with_own_gpus(["sleep", "1"], 3) == ["sleep", "1"]
