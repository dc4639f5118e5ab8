"""A live run whose daemon is killed two hundred times: no task is lost or run twice, no node kept that was taken."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from bftrain import (
    Client,
    Grow,
    Journal,
    NotAvailable,
    NotFound,
    NotNow,
    Rerun,
    Run,
    Start,
    Submission,
    TaskView,
    registry,
)
from tests.helpers import live_child
from tests.helpers.live_child import POINTS
from tests.helpers.live_world import World
from tests.helpers.timeouts import set_timeouts

pytestmark = pytest.mark.apart

ROOT = Path(__file__).parents[2]
AT_ONCE = 8  # tasks
PATIENCE_S = 60.0


class Daemons:
    """Starts daemons one after the other, from a process that has imported everything."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self._world = world
        self.exits: list[int] = []

    async def __aenter__(self) -> Self:
        self._prefork = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.helpers.live_child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._prefork.kill()
        await self._prefork.wait()

    async def start(self, **order: object) -> int:
        """Start a daemon; gives its process."""
        order = {"folder": str(self._folder), "world": str(self._world.path), **order}
        assert self._prefork.stdin is not None
        self._prefork.stdin.write(json.dumps(order).encode() + b"\n")
        return int(await self._line())

    async def ended(self) -> int:
        """Wait until it has ended; gives its exit code."""
        code = int(await self._line())
        self.exits.append(code)
        return code

    async def _line(self) -> bytes:
        assert self._prefork.stdout is not None
        line = await asyncio.wait_for(self._prefork.stdout.readline(), PATIENCE_S)
        assert line, "the process that starts daemons died"
        return line


class Owner:
    """A user who submits, pauses, resumes and cancels tasks, and remembers the answers."""

    def __init__(self, socket: Path, seed: int) -> None:
        self._client = Client(str(socket))
        self._dice = random.Random(seed)  # noqa: S311 - the same owner every time
        self.promised: set[str] = set()  # tasks that were taken in
        self.asked: set[str] = set()  # tasks for which no answer came
        self.cancelled: set[str] = set()  # for certain
        self.doubtful: set[str] = set()  # perhaps cancelled
        self.ended: dict[str, str] = {}  # how each task ended, as the last daemon tells it
        self.number = 0

    async def do_something(self, unfinished: int) -> None:
        """Ask for one thing; there are always some tasks."""
        if unfinished < AT_ONCE:
            await self._submit()
        elif self.promised:
            how = self._dice.choice(["pause", "resume", "resume", "resume", "cancel"])
            name = self._dice.choice(sorted(self.promised))
            if how == "cancel" and self._dice.random() < 0.6:
                return
            with suppress(NotNow, NotFound):
                try:
                    view: TaskView = await asyncio.to_thread(self._client.change, name, how)
                    if how == "cancel":
                        assert view.state == "cancelled"
                        self.cancelled.add(name)
                except NotAvailable:
                    if how == "cancel":
                        self.doubtful.add(name)

    async def _submit(self) -> None:
        self.number += 1
        name = f"t{self.number}"
        steps = self._dice.randint(5, 120)
        smallest = self._dice.choice([1, 1, 2, 3])
        run = Run(argv=("run", str(steps)))
        given = Submission(run=run, name=name, min_nodes=smallest, max_nodes=smallest + self._dice.randint(0, 4))
        try:
            await asyncio.to_thread(self._client.submit, given)
        except NotAvailable:
            self.asked.add(name)
        except NotNow:
            pass  # it was ending
        else:
            self.promised.add(name)

    async def one_more(self, patience_s: float) -> None:
        """Wait until one more task was taken in, unless there are enough."""
        before, deadline = len(self.promised), time.monotonic() + patience_s
        while len(self.promised) == before and time.monotonic() < deadline:  # noqa: ASYNC110 - as often as it asks
            await asyncio.sleep(0.01)

    async def until_answered(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(NotAvailable):
                    await asyncio.to_thread(self._client.status)
                    return
                await asyncio.sleep(0.02)

    async def want_all(self) -> None:
        for view in await asyncio.to_thread(self._client.tasks):
            if view.state == "paused":
                await asyncio.to_thread(self._client.change, view.name, "resume")

    async def learn_ends(self) -> None:
        views = await asyncio.to_thread(self._client.tasks, over=True)
        self.ended = {view.name: view.state for view in views}

    async def left(self) -> int:
        return len(await asyncio.to_thread(self._client.tasks))


async def go_on(world: World, owner: Owner, daemons: Daemons) -> None:
    """Let a last daemon bring everything to its end."""
    pid = await daemons.start(solver="exact")
    await owner.until_answered()
    world.lend(set(world.nodes) - world.allowed)
    deadline = time.monotonic() + PATIENCE_S
    while await owner.left():
        await owner.want_all()
        await asyncio.sleep(0.1)
        assert time.monotonic() < deadline, [one for one in world.tasks.values() if one.added and not one.dropped]
    await owner.learn_ends()
    os.kill(pid, signal.SIGTERM)
    assert await daemons.ended() == 0


async def restless(world: World, owner: Owner) -> None:
    """Have the scheduler and the owner do something all the time."""
    while True:
        world.shuffle()
        await owner.do_something(sum(not (task.finished or task.dropped) for task in world.tasks.values()))
        await asyncio.sleep(0.02)


def ways_to_die(seed: int, kills: int) -> list[dict[str, Any]]:
    """Choose where each daemon is killed: half at named points of its work, half at any time."""
    dice = random.Random(seed)  # noqa: S311 - the same kills every time
    ways: list[dict[str, Any]] = []
    for number in range(kills):
        if number % 2:
            # Counted from its birth, or from when it knows again what it knew
            # A tenth of them first takes a task in, however busy the machine is
            ways.append({"after_s": dice.uniform(0.0, 0.1), "up": dice.random() < 0.8, "submit": number % 10 == 1})
        else:
            point = sorted(POINTS)[number // 2 % len(POINTS)]
            often = {"events": 12, "decision": 12, "orders": 8, "change": 4, "add": 4}.get(point, 1)
            at = {"point": point, "when": dice.choice(["before", "after"]), "number": dice.randint(1, often)}
            ways.append({"at": at})
    return ways


async def through_kills(folder: Path, seed: int, kills: int) -> tuple[World, Owner, Daemons]:
    """Let a run go through all kills, and then come to its end."""
    dice = random.Random(seed)  # noqa: S311 - as above
    owner = Owner(folder / "api.sock", seed)
    async with World(folder / "world.sock", nodes=12, seed=seed) as world, Daemons(folder, world) as daemons:
        await daemons.start(solver="exact")  # which shows that nothing but kills makes it end
        await owner.until_answered()
        busy = asyncio.create_task(restless(world, owner))
        await asyncio.sleep(0.3)
        os.kill(world.pid, signal.SIGTERM)
        assert await daemons.ended() == 0
        for way in ways_to_die(seed, kills):
            solver = dice.choice(["exact", "exact", "slow"])
            pid = await daemons.start(solver=solver, **way.get("at", {}))
            gone = asyncio.create_task(daemons.ended())
            if "after_s" in way:
                up = asyncio.create_task(world.established.wait())
                if way["up"]:
                    await asyncio.wait({gone, up}, return_when=asyncio.FIRST_COMPLETED, timeout=5.0)
                if way["submit"]:
                    await owner.one_more(PATIENCE_S / 6)
                await asyncio.wait({gone}, timeout=way["after_s"])
                up.cancel()
            else:
                await asyncio.wait({gone}, timeout=0.5)
            if not gone.done():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await gone
            assert not busy.done(), busy.result()
        busy.cancel()
        await go_on(world, owner, daemons)
        return world, owner, daemons


def decisions(journal: Journal) -> Counter[tuple[str, str, tuple[str, ...]]]:
    """Return what was decided to start and to grow, as the world counts orders."""
    return Counter(
        (type(action).__name__.lower(), action.task, tuple(sorted(action.nodes)))
        for step in journal.steps()
        if step.decision is not None
        for action in step.decision.actions
        if isinstance(action, Start | Grow)
    )


@pytest.mark.parametrize(("kills", "seed"), [(60, 1), pytest.param(200, 1, marks=pytest.mark.soak)])
def test_kills_lose_no_task_run_none_twice_and_keep_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int
) -> None:
    monkeypatch.setitem(registry.BUILT_IN["solver"], "slow", f"{live_child.HERE}:slow")  # type: ignore[arg-type]  # it is a dict
    set_timeouts(monkeypatch, restart_s=0.0)  # an owner who waits for each restart would meet fewer kills
    folder = tmp_path / "live"
    folder.mkdir(mode=0o700)
    began = time.monotonic()
    world, owner, daemons = asyncio.run(through_kills(folder, seed, kills))
    words = (folder / "words").read_text()
    assert "Traceback" not in words, words[-3000:]
    assert not world.wrongs, "\n".join([*world.wrongs, words[-1000:]])
    assert daemons.exits.count(-signal.SIGKILL) == kills
    # That it met enough; fewer on a machine that is busy with others
    assert world.sessions >= kills * 0.9
    assert world.taken > kills / 4
    assert len(owner.promised) >= kills / 20
    with Journal.open(folder / "live.db") as journal:
        assert list(Rerun(journal).differences()) == [], "what happened can be replayed"
        steps = len(journal)
        decided = decisions(journal)
    unknown = world.decided - decided
    assert not unknown, f"ordered, and not written down before: {unknown}"
    assert world.decided.total() > kills / 10
    for name in owner.promised:
        assert name in owner.ended, f"{name} is lost"
        found = owner.ended[name]
        if name in owner.cancelled:
            assert found == "cancelled"
        else:
            assert found == "done" or name in owner.doubtful, found
        if found == "done":
            assert world.tasks[name].finished
    for name in owner.asked:
        assert owner.ended.get(name, "done") == "done"
    done = sum(task.finished for task in world.tasks.values())
    print(f"{kills} kills, {steps} steps, {world.orders} orders, {done} tasks done, {time.monotonic() - began:.0f} s")  # noqa: T201 - figures


def test_the_named_points_are_all_reached(tmp_path: Path) -> None:
    """A point that is never reached would be a kill that never happens."""
    names = {way["at"]["point"] for way in ways_to_die(1, 60) if "at" in way}
    assert names == set(POINTS)
    assert tmp_path.is_dir()
