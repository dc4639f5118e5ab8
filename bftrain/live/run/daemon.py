"""LiveDaemon: one event loop in which everything of a live run meets.

News of the scheduler, what agents and launchers tell, requests of users and the clock become events; the stepper has
them decided; orders go to the launchers. Starting is recovering: there is no other way to begin.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from bftrain.errors import BftrainError, Fault
from bftrain.journal import Statement
from bftrain.launcher_orders import event_of
from bftrain.live.decision_loop import DecisionLoop
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.node_kinds import NodeKinds
from bftrain.live.model.notices import OperatorNotices
from bftrain.live.model.schemas import LastDecision
from bftrain.live.model.task_record import LiveTaskState
from bftrain.live.nodes import reconcile
from bftrain.live.nodes.node_manager import NodeManager
from bftrain.live.nodes.usable_nodes import NodeTracker
from bftrain.live.run.startup import LiveResources
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.live.tasks.task_manager import TaskManager
from bftrain.values.actions import Action
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskResumed

_TICK_S: Final = 1.0
_WRITE_S: Final = 10.0  # between two times that progress is written down
_TRY_AGAIN_S: Final = 30.0  # between two times that tasks which are held up are tried
_TAKE_UP_S: Final = 30.0  # for all tasks to be taken up, if file systems hang; each has some time all the same
_LEAST_S: Final = 1.0
_LOOK_PATIENCE_S: Final = 20.0  # for the scheduler to say which nodes are ours, at the start
_TURNS: Final = frozenset({"confirmed", "vacated", "paused"})  # reported when processes of a task come or go

# Receives ("events", those taken in), ("decision", it), ("message", one of a launcher or the hub): see ``observers``
Observer = Callable[[str, Any], None]


class LiveDaemon:
    """A live run. Everything but ``tell`` belongs to the event loop. ``say`` receives texts for people."""

    def __init__(self, opened: LiveResources, say: Callable[[str], None]) -> None:
        site = opened.site
        self.opened = opened
        self.site = site
        self.memory = opened.memory
        self.harvester = opened.harvester
        self.remarks = OperatorNotices(say)
        self.carriers = LauncherPool(self.tell, opened.hub, stall_s=site.times.stall_s)
        self.stepper = DecisionLoop(
            opened.harvester, opened.journal, site.deciding, self, clock=time.time, settle_s=site.times.settle_s
        )
        self.books = TaskManager(opened.memory, opened.harvester, self.carriers, lambda: self.stepper.now, self.remark)
        ground = NodeTracker(agents_suffice=opened.scheduler.agents_suffice, agents_used=site.agents.used)
        ground.drain(opened.memory.drained)
        kinds = NodeKinds(site.kind_of)
        self.yard = NodeManager(opened.scheduler, ground, self.carriers, self.stepper, site.times, self.remark, kinds)
        self.state = "starting"
        self.since_s = time.time()
        self.last_decision: LastDecision | None = None
        self.observers: list[Observer] = []
        self._loop = asyncio.get_running_loop()
        self.ready = asyncio.Event()  # from then on tasks can be changed
        self.broken: asyncio.Future[BaseException] = self._loop.create_future()
        self._box: deque[dict[str, Any]] = deque()  # messages from other threads
        self._box_noticed = False
        self._turned: set[str] = set()  # tasks whose processes changed since it was written down how far they came
        self._ticking: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None

    # -- life

    async def begin(self) -> None:
        """Go on where the journal ends: first the outside has its say, then tasks are taken up again."""
        self.memory.begin(time.time(), self.site.digest, self.site)
        self.carriers.prepare(self.site.launcher)
        deadline = time.monotonic() + _TAKE_UP_S
        for kept in self.memory.unfinished:
            await self.books.take_up(kept, max(_LEAST_S, deadline - time.monotonic()))
        self._say_who_is_unfit()
        self.want()  # before anything is asked for: no useless pilot is submitted
        self.yard.run(self.opened.agent_order)
        await asyncio.sleep(0)  # it listens before it is asked, so no change in between is lost
        allowed = await self.yard.look(_LOOK_PATIENCE_S)
        ground, pool = self.yard.ground, self.harvester.pool
        if self.site.agents.used:
            over = pool - allowed if allowed is not None and self.yard.ends_agents else frozenset()
            ground.expect(pool - over)
        remembered = reconcile.StoredState(
            pool=pool,
            mistaken=frozenset(node for node in pool if self.harvester.kind_of(node) != self.yard.kinds.of(node)),
            unfinished=self.harvester.unfinished,
            paused=self.harvester.paused,
            kept=self.memory.unfinished,
            held_up=frozenset(self.books.held_up),
        )
        events = reconcile.reconciled(remembered, ground.world, self.stepper.now, self.yard.kinds)
        self.stepper.happened(*events, sync=True)
        self.write()
        if self.state == "broken":
            return  # what is not written down is not done
        self.books.written()
        self.carriers.establish(self.harvester.plan)
        if self.opened.hub is not None:
            self.opened.hub.hold_workers()  # until it is certain what still runs of those that were started before
            self.opened.hub.open()
        self.yard.open()
        self.want()
        self.ready.set()
        self._ticking = asyncio.create_task(self._tick(), name="tick")
        self._ticking.add_done_callback(self._ticked)
        self.state = "reuniting"
        await self.yard.reunite(self.site.reunion_s)
        if self.opened.hub is not None:
            self.opened.hub.start_workers()
        if self.state == "reuniting":
            self.state = "running"
            self.stepper.decide()

    def _say_who_is_unfit(self) -> None:
        """Name tasks that were taken in while the site had other kinds of nodes."""
        for kept in self.memory.unfinished:
            unfit = self.yard.kinds.unfit(kept.spec.min_nodes, kept.spec.curves)
            if unfit:
                self.remark(f"task '{kept.name}' was submitted for other kinds of nodes: {unfit}")

    async def drain(self) -> None:
        """End in order: tasks put themselves in order, and everything of ours at the scheduler ends."""
        began, self.state = self.ready.is_set(), "draining"
        self.stepper.hold_back()
        await self.yard.drain(began=began)
        self._write()
        await run_in_daemon_thread(self.carriers.close)

    def close(self) -> None:
        """Do nothing any more; agents and workers are left to themselves."""
        for job in (self._ticking, self._trying):
            if job is not None:
                job.cancel()
        self.yard.close()
        self.stepper.close()

    def _ticked(self, ticking: asyncio.Task[None]) -> None:
        """End if the clock stopped: without it nothing is learned or written down any more."""
        error = None if ticking.cancelled() else ticking.exception()
        if error is not None:
            self.broke(Fault(f"the clock stopped: {type(error).__name__}: {error}"))

    async def _tick(self) -> None:
        written = tried = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            events = self.books.learned()
            if events:
                self.stepper.happened(*events)
            if time.monotonic() - written >= _WRITE_S:
                written = time.monotonic()
                self._write()
            self.yard.rest(self.harvester.pool)
            self.yard.sweep()
            if self._trying is not None and not self._trying.done():
                tried = time.monotonic()
            elif self.books.held_up and time.monotonic() - tried >= _TRY_AGAIN_S:
                tried = time.monotonic()
                self._trying = asyncio.create_task(self._try_again(), name="try again")

    async def _try_again(self) -> None:
        """Let tasks that were held up compete as soon as they can be run."""
        for name in tuple(self.books.held_up):
            kept = self.memory.get(name)
            if kept is None or name not in self.books.held_up:
                continue  # it was cancelled meanwhile
            await self.books.take_up(kept, _LEAST_S)
            kept = self.memory.get(name)
            if kept is None and name in self.harvester.unfinished:
                self.stepper.happened(TaskCancelled(time_s=self.stepper.now, task=name))  # its job is refused
            elif kept is not None and kept.state is LiveTaskState.SUBMITTED and name not in self.books.held_up:
                self.remark(f"task '{name}' goes on")
                self.stepper.happened(TaskResumed(time_s=self.stepper.now, task=name))

    def _write(self) -> None:
        self.books.progress()
        self.write(sync=False)

    def write(self, *, sync: bool = True) -> bool:
        """Write down what is due; tell whether it is written."""
        try:
            self.memory.write(sync=sync)
        except BftrainError as error:
            self.broke(error)
            return False
        return True

    # -- what launchers and agents tell

    def tell(self, message: dict[str, Any]) -> None:
        """Hear of something, from any thread."""
        self._box.append(message)
        if not self._box_noticed:
            self._box_noticed = True
            self._loop.call_soon_threadsafe(self._empty_box)

    def _empty_box(self) -> None:
        self._box_noticed = False
        events: list[Event] = []
        agents: list[tuple[str, bool]] = []
        while self._box:
            message = self._box.popleft()
            match message["type"]:
                case "registered" | "gone":
                    if message.get("noticed"):
                        self.yard.signalled(message["node"])
                    agents.append((message["node"], message["type"] == "registered"))
                case "notice":
                    self.yard.agents(agents)
                    agents.clear()
                    self.yard.notice(message["node"], float(message["grace_s"]))
                case "warm":
                    pass
                case _:
                    events += self._heard(message)
            self._observe("message", message)
        if agents:
            self.yard.agents(agents)
        if events:
            self.stepper.happened(*events)
        self._write_turns()

    def _write_turns(self) -> None:
        """Write down how far tasks came whose processes change, before others report what they do from there on."""
        if self._turned:
            self.books.progress(self._turned)
            self._turned.clear()
            self.write(sync=False)

    def _heard(self, message: dict[str, Any]) -> list[Event]:
        """Take in what a launcher tells of a task; gives the event that follows, if any."""
        if self.books.heard(message) is None:
            return []
        match message["type"]:
            case "vacated":
                self.yard.vacated(message["task"], message["nodes"])
            case "note":
                self.remark(f"task '{message['task']}': {message['text']}")
                self.books.trouble(message["task"], message["text"])
            case "done":
                self._ended_early(message["task"])
        if message["type"] in _TURNS:
            self._turned.add(message["task"])
        event = event_of(message, self.stepper.now)
        return [] if event is None else [event]

    def _ended_early(self, task: str) -> None:
        """Say of a task that is done if it has not done all the work that it was to do."""
        text = self.books.missing(task)
        if text:
            self.remark(f"task '{task}' {text}")
            self.books.trouble(task, text)

    # -- what the stepper tells

    def order(self, actions: Sequence[Action]) -> None:
        """Have actions carried out."""
        self.carriers.carry_out(actions, gentle=self.yard.gentle)

    def due(self) -> Sequence[Statement]:
        """Give what is to be written with the next entry."""
        return self.memory.due()

    def asking(self, time_s: float) -> Sequence[Event]:
        """Say how much work is left, for objectives that look at it."""
        return self.books.work_left(time_s) if self.harvester.uses_work_left else ()

    def absorbed(self, events: Sequence[Event]) -> None:
        """Know what became of tasks and nodes."""
        self.books.hold(gone={node for event in events if isinstance(event, NodesLeft) for node in event.nodes})
        for event in events:
            self.books.happened(event)
            if isinstance(event, NodesLeft):
                self.yard.left(event)
            elif isinstance(event, NodesJoined):
                self.yard.joined(event)
        self.want()
        self._observe("events", events)

    def written(self, events: Sequence[Event]) -> None:  # noqa: ARG002 - which they are was noted before
        """Let go of what only the unfinished need."""
        self.books.written()

    def decided(self, decision: Decision) -> None:
        """Know who holds what now."""
        self.books.hold(decided=True)
        self.books.narrow()
        self.last_decision = LastDecision(
            time_s=decision.time_s,
            number=decision.number,
            value=decision.value,
            solver=decision.solver,
            solve_s=decision.solve_s,
            fallback=decision.fallback,
        )
        for note in filter(None, (*decision.notes, decision.fallback)):
            self.remark(note)
        self._observe("decision", decision)

    def remark(self, text: str) -> None:
        """Say something odd."""
        self.remarks.add(text, time.time())

    def broke(self, error: BaseException) -> None:
        """End; the next start finds out what happened."""
        self.state = "broken"
        if not self.broken.done():
            self.broken.set_result(error)

    def _observe(self, what: str, value: object) -> None:
        for observer in self.observers:
            observer(what, value)

    def want(self) -> None:
        """Tell the scheduler how many nodes could be used, and which must not be."""
        paused = self.harvester.paused
        willing = [task for task in self.harvester.unfinished if task not in paused][: self.site.deciding.max_tasks]
        self.yard.want(sum(self.harvester.spec(task).max_nodes for task in willing), self.memory.drained)
