"""The local scheduler: slots on this machine that become idle and busy by a timetable. For demos, tests and PCs.

It treats agents like a batch scheduler treats pilot jobs: it sends SIGTERM to reclaim a slot. With a grace period, the
slot counts as busy after the agent's exit, and the agent is killed at the end of the period.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bftrain.live import timeouts
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
    NotNegative,
    Post,
    Remark,
    Scheduler,
    Site,
    Taken,
    filled,
    scheduler_settings,
)
from bftrain.values import checks

_SLOT: Final = "slot"  # followed by a number from 1
# The process of an agent records itself before it becomes the agent, so a restarted daemon finds it
_RECORDED_START: Final = 'cat "/proc/$$/stat" >"$0" && exec "$@"'


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of slots, and when they are idle.

    ``idle`` lists the number of idle slots by time in seconds: ``4@0,2@8,3@14``; "" means all slots, always. The
    timetable repeats every ``loop_s`` seconds (0: never). The slots with the longest idle time become busy first.
    """

    nodes: Annotated[int, Meta(ge=1)] = 4
    idle: str = ""
    loop_s: NotNegative = 0.0

    def __post_init__(self) -> None:
        times = [at_s for at_s, _ in self.changes]
        if times != sorted(set(times)) or times[:1] != [0.0]:
            checks.reject(self, "idle", "must start at second 0, and times must rise", "such as 4@0,2@8,3@14")
        if any(count > self.nodes for _, count in self.changes):
            checks.reject(self, "idle", f"has more than the {self.nodes} nodes there are")
        if self.loop_s and self.loop_s <= times[-1]:
            checks.reject(self, "loop_s", f"must be above the last time, {times[-1]:g}")

    @property
    def changes(self) -> list[tuple[float, int]]:
        """Pairs of a start time in seconds and a number of idle slots."""
        found = []
        for part in (self.idle or f"{self.nodes}@0").split(","):
            one = re.fullmatch(r"\s*(\d+)@(\d+(?:\.\d+)?)\s*", part)
            if not one:
                checks.reject(self, "idle", f"'{part}' is not NODES@SECONDS", "such as 4@0,2@8,3@14")
            found.append((float(one[2]), int(one[1])))
        return found


class SlotTimetable:
    """The idle slots at each time, in seconds from the start."""

    def __init__(self, settings: LocalSettings) -> None:
        self._busy = [f"{_SLOT}{number}" for number in range(1, settings.nodes + 1)]
        self._idle: list[str] = []
        turns = itertools.count() if settings.loop_s else (0,)
        self._changes = ((turn * settings.loop_s + at_s, count) for turn in turns for at_s, count in settings.changes)
        self._next: tuple[float, int] | None = next(self._changes)

    def idle_at(self, at_s: float) -> frozenset[str]:
        """Return the idle slots at ``at_s``, which must not decrease."""
        while self._next is not None and self._next[0] <= at_s:
            count = self._next[1]
            while len(self._idle) != count:
                source, target = (self._idle, self._busy) if len(self._idle) > count else (self._busy, self._idle)
                target.append(source.pop(0))
            self._next = next(self._changes, None)
        return frozenset(self._idle)


class LocalScheduler(Scheduler):
    """Slots of this machine."""

    name = "local"
    ends_agents = True

    def __init__(self, settings: LocalSettings, site: Site) -> None:
        self._settings = settings
        self._grace_s = site.grace_s
        self._folder = site.folder / "agents"
        self._begun_file = self._folder / "begun"  # the start of the timetable
        self._agents: dict[str, _Agent] = {}
        self._allowed: frozenset[str] = frozenset()  # idle slots, and slots with agents in their grace period
        self._idle: frozenset[str] = frozenset()
        self._without: frozenset[str] = frozenset()
        self._given_back: set[str] = set()
        self._wanted = settings.nodes
        self._hinted = asyncio.Event()
        self._leaving = False
        self.began_s: float | None = None  # start of the timetable, seconds since 1970; None: as in the file

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Start agents on up to ``nodes`` slots."""
        if nodes > self._wanted:
            self._given_back.clear()
        self._wanted, self._without = nodes, frozenset(without)
        self._hinted.set()

    def hint(self) -> None:
        """Look soon."""
        self._hinted.set()

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Follow the timetable, and keep agents on idle slots."""
        timetable = SlotTimetable(self._settings)
        self._find_agents()
        self._end_agents(self._agents.keys() - timetable.idle_at(self._elapsed()))
        while True:
            self._hinted.clear()
            self._follow(timetable.idle_at(self._elapsed()), post)
            self._keep_agents(post, agent)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeouts.TIMEOUTS.look_gap_s):
                    await self._hinted.wait()

    async def look(self) -> frozenset[str] | None:
        """Return the idle slots by the timetable, after all agents have left the other slots."""
        self._find_agents()
        idle = SlotTimetable(self._settings).idle_at(self._elapsed())
        used = idle | self._allowed  # nodes watched by the loop
        await self._until_ended(self._agents.keys() - used)
        return idle

    async def give_back(self, nodes: Collection[str]) -> None:
        """Stop the agents of slots."""
        self._given_back.update(nodes)
        self._end_agents(nodes)

    async def leave(self) -> None:
        """Stop all agents."""
        self._leaving = True
        self._find_agents()
        await self._until_ended(self._agents.keys())
        for node in self._agents:
            (self._folder / node).unlink(missing_ok=True)
        self._begun_file.unlink(missing_ok=True)
        self.began_s = None

    def _elapsed(self) -> float:
        """Return the seconds since the timetable started; they also count between runs."""
        if self.began_s is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self.began_s = float(self._begun_file.read_text())
            except (FileNotFoundError, ValueError):
                self.began_s = time.time()
                self._begun_file.write_text(str(self.began_s))
        return max(0.0, time.time() - self.began_s)

    def _follow(self, idle: frozenset[str], post: Post) -> None:
        wanted_back = self._allowed - idle
        still_used = set()
        for agent in self._end_agents(wanted_back) if self._grace_s else ():
            agent.kill_after(self._grace_s)
            if agent.alive:
                still_used.add(agent.node)
        if taken := tuple(sorted(wanted_back - still_used)):
            post(Taken(nodes=taken))
            self._end_agents(taken)
        if fresh := tuple(sorted(idle - self._allowed)):
            self._given_back.difference_update(fresh)
            post(Allowed(nodes=fresh))
        self._allowed, self._idle = self._allowed.difference(taken) | idle, idle

    def _end_agents(self, nodes: Collection[str]) -> list[_Agent]:
        found = [self._agents[node] for node in nodes if node in self._agents]
        for agent in found:
            agent.terminate()
        return found

    async def _until_ended(self, nodes: Collection[str]) -> None:
        """Stop agents; slow ones are killed."""
        agents = self._end_agents(nodes)
        while agents := [agent for agent in agents if agent.alive]:
            for agent in agents:
                agent.kill_after(self._grace_s + timeouts.TIMEOUTS.agent_exit_s)
            await asyncio.sleep(0.01)

    def _keep_agents(self, post: Post, order: AgentOrder) -> None:
        for node, agent in list(self._agents.items()):
            if not agent.alive:
                if agent.ending_s is None and node in self._allowed:
                    post(Remark(text=f"the agent on {node} exited; see {self._folder / node}.log"))
                    if time.monotonic() - agent.since < timeouts.TIMEOUTS.agent_restart_s:
                        continue
                del self._agents[node]
        if self._leaving:
            return
        wanted = [node for node in sorted(self._idle) if node not in self._without | self._given_back]
        for node in wanted[: self._wanted]:
            if node not in self._agents:
                command = with_own_gpus(list(filled(order, node)), int(node.removeprefix(_SLOT)) - 1)
                self._agents[node] = _Agent.start(self._folder, node, command)

    def _find_agents(self) -> None:
        for file in self._folder.glob(f"{_SLOT}*"):
            if file.suffix != ".log" and file.name not in self._agents and (found := _Agent.found(file)):
                self._agents[file.name] = found


def with_own_gpus(command: list[str], number: int) -> list[str]:
    """Return the agent's command for a slot, from 0: slots share this machine's GPUs, and there is no main queue."""
    if "--slots" not in command:  # another program
        return command
    workers = int(command[command.index("--slots") + 1]) or 1
    return [*command, "--slots", str(workers), "--first-gpu", str(workers * number)]


class _Agent:
    """One agent: started by this process, or by an earlier daemon and identified by its pid and start time."""

    def __init__(self, note: Path, pid: int, begun: str, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.node, self.since = pid, note.name, time.monotonic()
        self.ending_s: float | None = None  # time of our SIGTERM, seconds since 1970
        self._note, self._begun, self._child = note, begun, child

    @classmethod
    def start(cls, folder: Path, node: str, command: list[str]) -> _Agent:
        note = folder / node
        with (folder / f"{node}.log").open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 - the agent's command, as words that no shell reads
                ["/bin/sh", "-c", _RECORDED_START, str(note), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(note, child.pid, _begun_at(child.pid), child)

    @classmethod
    def found(cls, note: Path) -> _Agent | None:
        try:
            process, *ending = note.read_text().splitlines()
            known = _process(process)
            agent = cls(note, int(known["pid"]), known["begun"])
            if ending:  # a second SIGTERM would shorten its grace period
                agent.ending_s = float(ending[0])
        except (OSError, ValueError):
            return None
        return agent if agent.alive else None

    @property
    def alive(self) -> bool:
        if self._child is None:
            return bool(self._begun) and _begun_at(self.pid) == self._begun
        return self._child.poll() is None

    def terminate(self) -> None:
        if self.alive and self.ending_s is None:
            self.ending_s = time.time()
            with suppress(OSError), self._note.open("a") as note:  # a full disk must not keep a slot from its owner
                note.write(f"{self.ending_s}\n")
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill_after(self, seconds: float) -> None:
        """Kill the agent if it was asked to end so long ago."""
        if self.alive and self.ending_s is not None and time.time() - self.ending_s > seconds:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


_BEGUN: Final = 19  # index of the start time, counted from the field after the process name


def _begun_at(pid: int) -> str:
    """Return when a process started, in ticks since boot; "" for a missing process or a zombie."""
    try:
        return _process(Path(f"/proc/{pid}/stat").read_text())["begun"]
    except OSError:
        return ""


def _process(stat: str) -> dict[str, str]:
    """Parse ``/proc/PID/stat``; raise ``ValueError`` if it is incomplete."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _BEGUN:
        raise ValueError("no state of a process")
    return {"pid": stat.partition(" ")[0], "begun": "" if fields[0] == "Z" else fields[_BEGUN]}


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the local scheduler from its table in the site's settings."""
    return LocalScheduler(scheduler_settings(table, LocalSettings), site)
