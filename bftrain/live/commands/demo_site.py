"""Lines about the events of a live run; and the demo: three small trainings on four slots that come and go."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bftrain.cli.output import Output, table
from bftrain.errors import NotAvailable
from bftrain.live import process
from bftrain.live.api.server import ApiServer
from bftrain.live.api.service import LiveService
from bftrain.live.client.client import page_address
from bftrain.live.commands.tasks import done
from bftrain.live.model.callers import ourselves
from bftrain.live.model.schemas import Submission, TaskView
from bftrain.live.model.site_config import Api, SiteSettings, Times, default_state
from bftrain.live.model.task_record import Run
from bftrain.live.run.daemon import LiveDaemon
from bftrain.live.schedulers.local import LocalScheduler
from bftrain.node_units import NODE, word_of
from bftrain.nodesets import natural_order
from bftrain.text_formats import counted
from bftrain.values.curve import SpeedCurve
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFinished
from bftrain_elastic.errors import install_hint
from bftrain_elastic.tryout import demo_training

_TIMETABLE: Final = "2@0,4@12,1@24,3@32,4@40,2@52"
_LOOP_S: Final = 64.0
_FIRST: Final = 2  # slots that are idle at the begin
_WARMING_S: Final = 120.0  # at most
# A guess from experience; measurements take its place
_CURVE: Final = SpeedCurve(nodes=(1, 2, 3, 4), rate=(1500.0, 2700.0, 3700.0, 4500.0))
# name: fewest and most nodes, steps
_TASKS: Final = {"pictures": (1, 4, 900), "letters": (1, 3, 900), "waves": (1, 2, 600)}


def require_torch() -> None:
    """Raise if PyTorch is missing, so that real training is impossible."""
    if find_spec("torch") is None:
        raise NotAvailable(
            "the demo trains with PyTorch, which is not installed",
            where="bftrain live --demo",
            fix=f"look at replays first: bftrain demo; or {install_hint('torch')}",
        )


def demo_site(folder: Path) -> SiteSettings:
    """Return the settings of the demo; its socket is the default one unless another live run of this user has it."""
    usual = default_state() / "api.sock"
    return SiteSettings(
        name="demo",
        folder=str(folder),
        state=str(folder),
        scheduler={"name": "local", "nodes": 4, "idle": _TIMETABLE, "loop_s": _LOOP_S},
        api=Api(socket="" if usual.exists() else str(usual), tcp="127.0.0.1:0"),
        times=Times(drain_s=10.0),
    )


async def warm_up(daemon: LiveDaemon, service: LiveService, say: Callable[[str], None]) -> None:
    """Submit the tasks, and start the timetable when the first agents have imported PyTorch."""
    slots = daemon.opened.scheduler
    if isinstance(slots, LocalScheduler):
        slots.hold()
    warm, changed = set[str](), asyncio.Event()

    def hear(what: str, message: Any) -> None:  # noqa: ANN401 - see Daemon.observers
        if what == "message" and message["type"] == "warm":
            warm.add(message["node"])
        changed.set()

    def begun() -> bool:
        return len(warm) >= _FIRST and daemon.harvester.pool_size >= _FIRST

    daemon.observers.append(hear)
    for name, (smallest, largest, steps) in _TASKS.items():
        submission = Submission(
            run=Run(argv=(str(demo_training.__file__), name, "--steps", str(steps))),
            name=name,
            min_nodes=smallest,
            max_nodes=largest,
            work_samples=96.0 * steps,
            curve=_CURVE,
            campaign="demo",
        )
        await service.submit(ourselves(), submission)
    say("warming up: agents import PyTorch ...")
    with suppress(TimeoutError):
        async with asyncio.timeout(_WARMING_S):
            while not begun():
                changed.clear()
                await changed.wait()
    daemon.observers.remove(hear)
    say("the timetable begins" if begun() else "agents are slow today; the timetable begins all the same")
    if isinstance(slots, LocalScheduler):
        slots.go_on()


_NAMED = 4


def run_demo(limit_s: float, out: Output) -> None:
    """Run the demo until its tasks are over, or the time is up; print what it harvested."""
    require_torch()
    services: list[LiveService] = []
    narrator = EventNarrator(out.say)

    async def beside(daemon: LiveDaemon, api: ApiServer, service: LiveService) -> None:
        services.append(service)
        await narrator.begin(daemon, api, service)
        out.say("four slots of this machine become idle and busy; in another terminal: bftrain status --watch")
        out.say(f"or in a browser: {page_address(service.page())}")  # its token is worth nothing once the demo is over
        await warm_up(daemon, service, narrator.tell)
        changed = asyncio.Event()
        daemon.observers.append(lambda what, _: changed.set() if what == "events" else None)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while daemon.task_store.unfinished:
                    changed.clear()
                    await changed.wait()
        if daemon.task_store.unfinished:
            narrator.tell(f"{limit_s:g} s are over: it ends, and what is not done yet would go on from here")

    with tempfile.TemporaryDirectory(prefix="bftrain-demo-") as folder:
        process.run(demo_site(Path(folder)), out.say, beside, ends_with_it=True)
        # After tasks have put themselves in order
        tasks = [task for service in services for task in narrator.tasks(service)]
    rows = [
        (
            task.name,
            task.state,
            done(task),
            f"{task.samples:,.0f}",
            f"{task.node_s:,.0f}",
            task.rescales,
            task.preemptions,
            narrator.losses(task.name),
        )
        for task in tasks
    ]
    used, idle = sum(task.node_s for task in tasks), narrator.idle_s
    share = f", {used / idle:.0%} of the {idle:,.0f} idle ones" if idle else ""
    columns = ("task", "state", "done", "samples", "node-s", "resized", "preempted", "loss")
    title = f"harvested: {sum(task.samples for task in tasks):,.0f} samples in {used:,.0f} node-seconds{share}"
    out.result({"tasks": tasks, "nodes": idle}, lambda: table(title, columns, rows, left=(0, 1, 7)))


class EventNarrator:
    """Prints lines about nodes and tasks with ``say``; records first and last losses and idle time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._begun = time.monotonic()
        self._daemon: LiveDaemon | None = None
        self._sizes: dict[str, int] = {}
        self._losses: dict[str, tuple[float, float]] = {}
        self._pool = 0
        self._pool_since = time.monotonic()
        self.idle_s = 0.0  # node-seconds that were ours

    async def begin(self, daemon: LiveDaemon, api: ApiServer, service: LiveService) -> None:  # noqa: ARG002 - as running.Beside
        """Start printing."""
        self._daemon = daemon
        self._begun = self._pool_since = time.monotonic()
        self._pool = daemon.harvester.pool_size
        daemon.observers.append(self._observe)

    def tasks(self, service: LiveService) -> tuple[TaskView, ...]:
        """Return the final state of all tasks, and stop the clock."""
        self._count()
        return service.tasks(ourselves(), over=True)

    def losses(self, task: str) -> str:
        """Return the first and the last loss of a task as text."""
        if task not in self._losses:
            return ""
        first, last = self._losses[task]
        return f"{first:.3g} -> {last:.3g}"

    def _observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        match what:
            case "events":
                self._count()
                self._happened(value)
                self._resized()
            case "decision":
                self._resized()
            case "message" if value["type"] == "report" and (loss := value.get("loss")) is not None:
                first, _ = self._losses.get(value["task"], (loss, loss))
                self._losses[value["task"]] = (first, loss)

    def _count(self) -> None:
        now = time.monotonic()
        self.idle_s += self._pool * (now - self._pool_since)
        self._pool_since = now
        self._pool = self._daemon.harvester.pool_size if self._daemon else 0

    def tell(self, text: str) -> None:
        """Print a line with the time since the start."""
        self._say(f"{time.monotonic() - self._begun:7.1f} s  {text}")

    def _happened(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case NodesJoined():
                    self.tell(f"{_named(event.nodes)} became idle: {self._counted(self._pool)}")
                case NodesLeft():
                    left = "was taken back" if len(event.nodes) == 1 else "were taken back"
                    if self._daemon is not None and not self._daemon.node_manager.preempted(event.nodes):
                        left = "given back"
                    self.tell(f"{_named(event.nodes)} {left}: {self._counted(self._pool)}")
                case TaskFinished():
                    self.tell(f"{event.task}: finished")

    def _counted(self, nodes: int) -> str:
        return counted(nodes, NODE if self._daemon is None else word_of(self._daemon.site.unit))

    def _resized(self) -> None:
        sizes = dict(self._daemon.harvester.plan.sizes) if self._daemon else {}
        for task in {**self._sizes, **sizes}:
            before, now = self._sizes.get(task, 0), sizes.get(task, 0)
            if before != now:
                self.tell(f"{task}: {before} -> {self._counted(now)}")
        self._sizes = sizes


class PreemptionNarrator:
    """Prints one line for each preemption: which nodes tasks lost, and how many each has left."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    async def begin(self, daemon: LiveDaemon, api: ApiServer, service: LiveService) -> None:  # noqa: ARG002 - as running.Beside
        """Start printing."""
        self._daemon, self._held = daemon, dict(daemon.harvester.held)
        daemon.observers.append(self._observe)

    def _observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        if what == "message":
            return
        if what == "events":
            left = {node for event in value if isinstance(event, NodesLeft) for node in event.nodes}
            self._preempted(self._daemon.node_manager.preempted(left))
        self._held = dict(self._daemon.harvester.held)

    def _preempted(self, left: frozenset[str]) -> None:
        before, after = self._held, self._daemon.harvester.held
        losers = [task for task, nodes in before.items() if not left.isdisjoint(nodes)]
        if losers:
            nodes = sorted((node for task in losers for node in left.intersection(before[task])), key=natural_order)
            unit = word_of(self._daemon.site.unit)
            sizes = (f"{one} {len(before[one])} -> {counted(len(after.get(one, ())), unit)}" for one in losers)
            self._say(f"preemption: {_named(nodes)} taken back; {', '.join(sizes)}")


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _NAMED} others" if len(nodes) > _NAMED else ""
    return f"{' '.join(nodes[:_NAMED])}{more}"
