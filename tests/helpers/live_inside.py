"""A small live run inside the test's own process: real daemon, office, API, journal; scripted scheduler and launcher.

``async with live_inside(tmp_path) as (daemon, office, api, world):`` gives one that has begun. The world lends and
takes nodes, lets agents come and go, and tells what a launcher would. It outlives the daemon: given to another
``live_inside`` in the same folder it is what a restart finds.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from bftrain import Availability, Journal, Run, Submission, TaskView, registry
from bftrain.config import LiveSettings
from bftrain.journal import JournalStalled
from bftrain.live.api.server import ApiServer
from bftrain.live.api.service import LiveService
from bftrain.live.api.status_stream import Span
from bftrain.live.daemon.daemon import LiveDaemon
from bftrain.live.daemon.startup import open_site
from bftrain.live.daemon.task_store import TaskStore, all_kept, last_cluster
from bftrain.live.log import LOGGER
from bftrain.live.model.schemas import (
    Caller,
    Cell,
    Happening,
    Harvested,
    HistoryView,
    KindView,
    LiveTaskRecord,
    LiveTaskState,
    Nodes,
    Pause,
    Progress,
    StatusView,
    TaskChanges,
    TaskFigures,
    Update,
    ourselves,
)
from bftrain.live.model.site_config import (
    Agents,
    Api,
    Environment,
    KeepSettings,
    NodeKinds,
    NodeRates,
    SiteSettings,
    Times,
    Usage,
    load,
)
from bftrain.live.process import LiveProcess, service_of
from bftrain.live.schedulers.base import AgentOrder, Allowed, Post, Remark, Scheduler, SchedulerFacts, Site, Taken
from bftrain.values import wire

__all__ = [
    "LOGGER",
    "Agents",
    "Allowed",
    "Api",
    "Caller",
    "Cell",
    "Environment",
    "Happening",
    "Harvested",
    "HistoryView",
    "KeepSettings",
    "KindView",
    "LiveDaemon",
    "LiveProcess",
    "LiveService",
    "LiveTaskRecord",
    "LiveTaskState",
    "NodeKinds",
    "NodeRates",
    "Nodes",
    "Pause",
    "Progress",
    "Remark",
    "SchedulerFacts",
    "SiteSettings",
    "Span",
    "StatusView",
    "Taken",
    "TaskChanges",
    "TaskFigures",
    "TaskStore",
    "Times",
    "Update",
    "Usage",
    "all_kept",
    "last_cluster",
    "load",
    "open_site",
    "ourselves",
    "wire",
]  # fmt: skip  # product names for tests, which import them from here alone

HERE = "tests.helpers.live_inside"
PATIENCE_S = 60.0


class World(Scheduler):
    """Nodes and processes as they are, independent of the daemon; and all that it was asked for, in order.

    ``log`` has ("apply", actions), ("add", task), ("drop", task), ("close", None), ("want", (nodes, without)),
    ("give_back", nodes), ("hint", None) and ("leave", None). What is put into ``breaks`` (run, look, give_back, leave,
    add, want) is raised when it is asked for.
    """

    name = "inside"

    def __init__(self, *, agents: bool = False, agents_suffice: bool = False, vacates: bool = True) -> None:
        self.agents = agents
        self.agents_suffice = agents_suffice
        self.vacates = vacates  # whether a task that shrinks or stops says at once that it has
        self.known = SchedulerFacts()  # what it tells of itself
        self.available_now = Availability(ok=True)
        self.allowed: set[str] = set()
        self.held: dict[str, set[str]] = {}  # task -> where its processes are
        self.log: list[tuple[str, Any]] = []
        self.breaks: dict[str, Exception] = {}
        self.waits: dict[str, asyncio.Event] = {}  # what is asked for waits for it: look, leave, give_back
        self.jobs: dict[str, Mapping[str, Any]] = {}
        self._post: Post | None = None
        self._hear: Callable[[dict[str, Any]], None] = lambda _: None

    def lend(self, *nodes: str) -> None:
        self.allowed.update(nodes)
        self.post(Allowed(nodes=nodes))

    @property
    def listening(self) -> bool:
        """Whether a daemon runs this scheduler now."""
        return self._post is not None

    def take(self, *nodes: str) -> None:
        self.allowed.difference_update(nodes)
        self.post(Taken(nodes=nodes))

    def post(self, news: Any) -> None:  # noqa: ANN401 - any news
        """Post news, if there is a listener."""
        if self._post is not None:
            self._post(news)

    def come(self, *nodes: str) -> None:
        for node in nodes:
            self._hear({"t": time.time(), "type": "registered", "node": node, "slots": 1})

    def go(self, *nodes: str, noticed: bool = False) -> None:
        """Let agents be lost, with all that runs there; ``noticed``: the scheduler had signalled them."""
        for node in nodes:
            for held in self.held.values():
                held.discard(node)
            self._hear({"t": time.time(), "type": "gone", "node": node, "noticed": noticed})

    def notice(self, node: str, grace_s: float) -> None:
        """Let an agent say that its node is about to be taken."""
        self._hear({"t": time.time(), "type": "notice", "node": node, "grace_s": grace_s})

    def tell(self, task: str, what: str, **more: object) -> None:
        if what == "done":
            self.held.pop(task, None)
        self._hear({"t": time.time(), "type": what, "task": task, **more})

    def asked(self, what: str) -> list[Any]:
        return [value for name, value in self.log if name == what]

    def orders(self) -> list[dict[str, Any]]:
        return [action for actions in self.asked("apply") for action in actions]

    def available(self) -> Availability:
        return self.available_now

    async def run(self, post: Post, agent: AgentOrder) -> None:  # noqa: ARG002 - the port's signature
        self._post = post
        try:
            self._break("run")
            await asyncio.Event().wait()
        finally:
            self._post = None

    def facts(self) -> SchedulerFacts:
        return self.known

    async def look(self) -> frozenset[str] | None:
        self.log.append(("look", None))
        await self._wait("look")
        self._break("look")
        return frozenset(self.allowed)

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        self.log.append(("want", (nodes, frozenset(without))))

    def hint(self) -> None:
        self.log.append(("hint", None))

    def noticed(self, node: str) -> None:
        self.log.append(("noticed", node))

    async def give_back(self, nodes: Collection[str]) -> None:
        self.log.append(("give_back", tuple(nodes)))
        await self._wait("give_back")
        self._break("give_back")

    async def leave(self) -> None:
        self.log.append(("leave", None))
        await self._wait("leave")
        self._break("leave")

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        self._break("add")
        self.log.append(("add", task))
        self.jobs[task] = job

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        self.log.append(("apply", [dict(action) for action in actions]))
        for action in actions:
            nodes = set(action["nodes"])
            match action["action"]:
                case "release":
                    for task in self.held:
                        self._vacate(task, nodes)
                case "start":
                    self.held[action["task"]] = nodes
                case "grow":
                    self.held.setdefault(action["task"], set()).update(nodes)
                case "stop" if not nodes:
                    self.held.pop(action["task"], None)
                case _ if self.vacates:
                    self._vacate(action["task"], nodes)

    def set_batch(self, task: str, batch: int) -> None:
        self.log.append(("batch", (task, batch)))

    def drop(self, task: str) -> None:
        self.log.append(("drop", task))
        self.held.pop(task, None)

    def close(self) -> None:
        self.log.append(("close", None))

    def _vacate(self, task: str, nodes: set[str]) -> None:
        left = sorted(self.held.get(task, set()) & nodes)
        if left:
            self.held[task].difference_update(left)
            self.tell(task, "vacated", nodes=left)

    def _break(self, what: str) -> None:
        if what in self.breaks:
            raise self.breaks[what]

    async def _wait(self, what: str) -> None:
        if what in self.waits:
            await self.waits[what].wait()


class Inside(NamedTuple):
    """What stands in a live run's process."""

    daemon: LiveDaemon
    service: LiveService
    api: ApiServer
    world: World


_here: World | None = None  # the world that the next daemon meets


def make_scheduler(table: Mapping[str, object], site: Site) -> World:  # noqa: ARG001 - the port's signature
    assert _here is not None
    return _here


def make_launcher(tell: Callable[[dict[str, Any]], None], hub: object) -> World:  # noqa: ARG001 - as above
    assert _here is not None
    _here._hear = tell  # noqa: SLF001 - it is in this file
    return _here


def parts() -> Any:  # noqa: ANN401 - what patches the registry, as a context
    """Let a scheduler and a launcher "inside" be found by name."""
    found: Any = registry.BUILT_IN
    own = {"scheduler": f"{HERE}:make_scheduler", "launcher": f"{HERE}:make_launcher"}
    return mock.patch.dict(found, {port: {**found[port], "inside": target} for port, target in own.items()})


def full_disk(error: Exception | None = None, what: str = "_insert") -> AbstractContextManager[object]:
    """Let no journal be written, or no ``append_decision``; by default that may pass, as a full disk does."""
    error = error or JournalStalled("cannot be written: disk is full")
    return mock.patch.object(Journal, what, side_effect=error)


def remarks(daemon: LiveDaemon) -> list[str]:
    return [one.text for one in daemon.notices.latest]


@contextmanager
def lines_of_log(lines: list[str]) -> Iterator[None]:
    """Collect what live runs log, without repetitions."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not getattr(record, "repeated", False):
                lines.append(record.getMessage())

    handler = Lines()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


def meet(world: World) -> None:
    global _here  # noqa: PLW0603 - registered parts are found by name
    _here = world


def site_of(folder: Path, world: World, **changes: Any) -> SiteSettings:  # noqa: ANN401 - any setting of a site
    """Return settings with which a daemon lives in the world; the journal is ``folder/live/live.db``."""
    home = str(folder / "live")
    given: dict[str, Any] = {
        "folder": home,
        "state": home,
        "launcher": "inside",
        "scheduler": {"name": "inside"},
        "deciding": LiveSettings(),
        "agents": Agents(used=world.agents, preload=(), patience_s=0.01),  # so that Times say how long is waited
        "times": Times(drain_s=5.0, reunion_s=5.0),
    }
    return SiteSettings(**{**given, **changes})


@asynccontextmanager
async def live_inside(
    folder: Path,
    world: World | None = None,
    *,
    begin: bool = True,
    said: list[str] | None = None,
    **changes: Any,  # noqa: ANN401 - any setting of a site
) -> AsyncIterator[Inside]:
    """Yield a live run that has begun. It ends as if it were killed, unless the test drains it.

    ``said`` takes what it says; ``changes`` are settings of the site.
    """
    world = world or World()
    site = site_of(folder, world, **changes)
    meet(world)
    daemons: list[LiveDaemon] = []
    with parts(), lines_of_log([] if said is None else said):
        opened = open_site(site, lambda what: daemons[0].tell(what))  # noqa: PLW0108 - there is none yet
        daemon = LiveDaemon(opened)
        daemons.append(daemon)
        service = service_of(daemon)
        api = ApiServer(service, site)
        try:
            await api.open()
            if begin:
                await daemon.begin()
                await asyncio.sleep(0)  # it listens to the scheduler from here on
            yield Inside(daemon, service, api, world)
        finally:
            daemon.close()
            world._post = None  # noqa: SLF001 - it is in this file
            world._hear = lambda _: None  # noqa: SLF001 - as above
            await api.close()
            if opened.hub is not None:
                await asyncio.to_thread(opened.hub.close)
            opened.close()


async def submit(service: LiveService, name: str, smallest: int = 1, largest: int = 4, **more: Any) -> TaskView:  # noqa: ANN401 - any field
    run = more.pop("run", None) or Run(argv=("train.py",))
    return await service.submit(
        ourselves(), Submission(run=run, name=name, min_nodes=smallest, max_nodes=largest, **more)
    )


async def until(true: Callable[[], object], what: str = "") -> None:
    """Run the event loop until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what or "it never came to that"
        await asyncio.sleep(0.001)


async def decided(daemon: LiveDaemon) -> None:
    """Wait until all that happened so far was decided."""
    await asyncio.sleep(0)  # what came from other threads and what is looked over soon
    loop = daemon.decision_loop
    # There is no public view of it
    await until(lambda: not (loop._request or loop._next or loop._waiting or daemon._inbox), "a decision")  # noqa: SLF001


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - pytest's fixtures
        async def go() -> None:
            await test(*args, **kwargs)

        asyncio.run(go())

    return run
