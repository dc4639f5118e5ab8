"""LiveDaemon: the event loop of a live run.

Changes of nodes, messages of agents and launchers, requests of users and timers become events; the decision loop
decides on them; orders go to the launchers. Every start is a recovery from the journal, the first one included.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bftrain.errors import Fault
from bftrain.journal import JournalStalled, Statement
from bftrain.launcher_orders import event_of
from bftrain.live import timeouts
from bftrain.live.decision_loop import DecisionLoop
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.node_kinds import NodeKinds
from bftrain.live.model.schemas import LastDecision
from bftrain.live.model.task_record import LiveTaskState
from bftrain.live.nodes.node_manager import NodeManager
from bftrain.live.nodes.reconcile import NodeTracker, node_events, task_events
from bftrain.live.run.clock_check import ClockCheck
from bftrain.live.run.harvesting import Harvesting
from bftrain.live.run.housekeeping import Housekeeping
from bftrain.live.run.operator_notices import OperatorNotices
from bftrain.live.run.startup import ENDED, LiveResources, run_before
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.live.tasks.task_manager import TaskManager
from bftrain.live.tasks.task_store import CLUSTER
from bftrain.live.tasks.usage_ledger import UsageLedger
from bftrain.values import wire
from bftrain.values.actions import Action
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskMeasured, TaskResumed
from bftrain.values.task import TaskSpec

_TURNS: Final = frozenset({"confirmed", "vacated", "paused"})  # reported when processes of a task come or go

_KINDS: Final = "kinds of nodes of pools"
# Receives ("events", those taken in), ("decision", it), ("message", one of a launcher or the hub): see ``observers``
Observer = Callable[[str, Any], None]


class LiveDaemon:
    """A live run. All methods but ``tell`` run in the event loop. ``say`` receives lines for people."""

    def __init__(self, opened: LiveResources, say: Callable[[str], None]) -> None:
        site = opened.site
        self.opened = opened
        self.site = site
        self.task_store = opened.task_store
        self.harvester = opened.harvester
        self.remarks = OperatorNotices(say)
        self.launcher_pool = LauncherPool(self.tell, opened.hub, site)
        self.decision_loop = DecisionLoop(opened.harvester, opened.journal, site.deciding, self, site.times.settle_s)
        self.task_manager = TaskManager(
            opened.task_store,
            opened.harvester,
            self.launcher_pool,
            UsageLedger(opened.journal, site.node_rates(self._kind_of, opened.scheduler.gpus_of)),
            lambda: self.decision_loop.now,
            self.remark,
        )
        node_tracker = NodeTracker(agents_suffice=opened.scheduler.agents_suffice, agents_used=site.agents.used)
        node_tracker.drained = opened.task_store.drained
        kinds = NodeKinds(site.kind_of, site.unit)
        self.node_manager = NodeManager(
            opened.scheduler, node_tracker, self.launcher_pool, self.decision_loop, site.times, self.remark, kinds
        )
        self.harvesting = Harvesting(opened.task_store, self.node_manager, opened.scheduler, self.remark)
        self.housekeeping = Housekeeping(
            site, opened.journal, opened.task_store, self.decision_loop.perform, self.remark
        )
        self.run_before = run_before(opened.task_store)
        self.state = "starting"
        self.since_s = self.decision_loop.now
        self._check_clock = ClockCheck(self.remark)
        self.last_decision: LastDecision | None = None
        self._decided_at = time.monotonic()  # when nodes could last change hands: not by measurements alone
        self.observers: list[Observer] = [self.harvesting.observe]
        self._loop = asyncio.get_running_loop()
        self.ready = asyncio.Event()  # from then on tasks can be changed
        self.broken: asyncio.Future[BaseException] = self._loop.create_future()
        self._box: deque[dict[str, Any]] = deque()  # messages from other threads
        self._box_noticed = False
        self._turned: set[str] = set()  # tasks whose processes changed since it was written down how far they came
        self._ticking: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None

    def _kind_of(self, node: str) -> str:
        return self.node_manager.kinds.of(node)

    async def begin(self) -> None:
        """Resume where the journal ends: first scheduler and agents report, then tasks are restored."""
        await self.node_manager.check(self.opened.agent_order, timeouts.TIMEOUTS.first_look_s)
        self._record_cluster()
        self._record_kinds()
        self.task_store.begin(time.time(), self.site.digest, self.site)
        self.task_store.record_fact(ENDED, "")
        self.launcher_pool.launcher(self.site.launcher)  # so that it is known now if it cannot be made
        deadline = time.monotonic() + timeouts.TIMEOUTS.restore_s
        for record in self.task_store.unfinished:
            await self.task_manager.restore(record, max(timeouts.TIMEOUTS.restore_task_s, deadline - time.monotonic()))
        for record in self.task_store.unfinished:  # some were added under other node kinds of the site
            if unfit := self.node_manager.kinds.unfit(record.spec.min_nodes, record.spec.curves):
                self.remark(f"task '{record.name}' was submitted for other kinds of nodes: {unfit}")
        self.want()  # before anything is asked for: no useless pilot is submitted
        self.node_manager.run(self.opened.agent_order)
        await asyncio.sleep(0)  # it listens before it is asked, so no change in between is lost
        allowed = await self.node_manager.look(timeouts.TIMEOUTS.first_look_s)
        node_tracker, pool = self.node_manager.node_tracker, self.harvester.pool
        if self.site.agents.used:
            over = pool - allowed if allowed is not None and self.opened.scheduler.ends_agents else frozenset()
            node_tracker.expect(pool - over)
        now, kinds, harvester = self.decision_loop.now, self.node_manager.kinds, self.harvester
        mistaken = [node for node in pool if harvester.kind_of(node) != kinds.of(node)]
        records, held_up = self.task_store.unfinished, self.task_manager.not_now
        self.decision_loop.on_events(
            *node_events(pool, node_tracker.usable, now, kinds, mistaken),
            *task_events(harvester.unfinished, harvester.paused, records, held_up, now),
            sync=True,
        )
        self.write()
        if self.decision_loop.stalled is not None:
            self.broke(self.decision_loop.stalled)
        if self.state == "broken":
            return  # an order that is not in the journal is not carried out
        self.task_manager.written()
        self.launcher_pool.establish(self.harvester.plan)
        if self.opened.hub is not None:
            self.opened.hub.hold_workers()  # until it is certain what still runs of those that were started before
            self.opened.hub.open()
        self.node_manager.open()
        self.want()
        self.ready.set()
        self._ticking = asyncio.create_task(self._tick(), name="tick")
        self._ticking.add_done_callback(self._ticked)
        self.state = "reuniting"
        await self.node_manager.reunite(self.site.reunion_s)
        if self.opened.hub is not None:
            self.opened.hub.start_workers()
        if self.state == "reuniting":
            self.state = "running"
            self.decision_loop.decide()

    def _record_cluster(self) -> None:
        """Write the cluster's name into the journal; warn if it differs from the recorded one."""
        cluster, before = self.opened.scheduler.facts().cluster, self.task_store.fact(CLUSTER)
        if cluster and before not in {"", cluster}:
            self.remark(f"this is cluster '{cluster}'; the journal was written on cluster '{before}'")
        self.task_store.record_fact(CLUSTER, cluster or before)

    def _record_kinds(self) -> None:
        """Record the kinds of pools' nodes; of a scheduler that does not answer the earlier ones."""
        kinds = self.opened.scheduler.facts().node_kinds
        if kinds:
            self.task_store.record_fact(_KINDS, wire.encode(kinds).decode())
        elif any(pool.kind for pool in self.site.pools) and (text := self.task_store.fact(_KINDS)):
            kinds = wire.decode(text, dict[str, str])
        self.node_manager.kinds = NodeKinds({**kinds, **self.site.kind_of}, self.site.unit)

    async def drain(self) -> None:
        """End in order: tasks save their state, and all our jobs at the scheduler end."""
        began, self.state = self.ready.is_set(), "draining"
        self.decision_loop.hold_back()
        await self.node_manager.drain(began=began)
        self.task_manager.progress()
        self.task_store.record_fact(ENDED, f"{time.time():.0f}")
        self.write(sync=False)
        await run_in_daemon_thread(self.launcher_pool.close)
        if self.decision_loop.stalled is not None:  # so it is not said that all is remembered
            self.broke(self.decision_loop.stalled)

    def close(self) -> None:
        """Stop; agents and workers are left running."""
        self.housekeeping.close()
        for job in (self._ticking, self._trying):
            if job is not None:
                job.cancel()
        self.node_manager.close()
        self.decision_loop.close()

    def _ticked(self, ticking: asyncio.Task[None]) -> None:
        """End if the periodic timer failed: without it nothing is measured or written any more."""
        error = None if ticking.cancelled() else ticking.exception()
        if error is not None:
            self.broke(Fault(f"the clock stopped: {type(error).__name__}: {error}"))

    async def _tick(self) -> None:
        written = tried = time.monotonic()
        while True:
            await asyncio.sleep(timeouts.TIMEOUTS.tick_s)
            if self.opened.hub is not None:
                self.opened.hub.beat()
            if events := [*self.task_manager.learned(), *self.task_manager.released()]:
                self.decision_loop.on_events(*events)
            if time.monotonic() - written >= timeouts.TIMEOUTS.write_s:
                written = time.monotonic()
                self.task_manager.progress()
                self.write(sync=False)
            self._check_clock(self.harvester.time_s)
            self._share_again()
            if self.harvesting.apply():
                self.want()
            self.node_manager.leave_drained()
            self.housekeeping.apply()
            self.node_manager.rest(self.harvester.pool)
            self.node_manager.sweep()
            if self._trying is not None and not self._trying.done():
                tried = time.monotonic()
            elif self.task_manager.held_up and time.monotonic() - tried >= timeouts.TIMEOUTS.task_retry_s:
                tried = time.monotonic()
                self._trying = asyncio.create_task(self._try_again(), name="try again")

    def _share_again(self) -> None:
        """Decide again after a quiet period if the objective depends on the past: others may have fallen behind."""
        share_s, now = self.site.times.share_s, time.monotonic()
        if self.state != "running" or not self.harvester.uses_history or not share_s:
            return
        if self.harvester.first_turn_due(self.decision_loop.now):
            share_s = min(share_s, self.site.deciding.turn_s)
        if now - self._decided_at >= share_s and 0 < self.harvester.pool_size < self._usable():
            self._decided_at = now
            self.decision_loop.decide()

    async def _try_again(self) -> None:
        """Let held-up tasks compete as soon as they can be run."""
        for name in tuple(self.task_manager.held_up):
            record = self.task_store.get(name)
            if record is None or name not in self.task_manager.held_up:
                continue  # it was cancelled meanwhile
            await self.task_manager.restore(record, timeouts.TIMEOUTS.restore_task_s)
            record, now = self.task_store.get(name), self.decision_loop.now
            if record is None:
                if name in self.harvester.unfinished:  # its job is refused
                    self.decision_loop.on_events(TaskCancelled(time_s=now, task=name))
            elif record.state is LiveTaskState.SUBMITTED and name not in self.task_manager.not_now:
                self.remark(f"task '{name}' goes on")
                self.decision_loop.on_events(TaskResumed(time_s=now, task=name))

    def write(self, *, sync: bool = True) -> bool:
        """Write due statements; return whether they are written."""
        return self.decision_loop.change(self.task_store.due(), sync=sync)

    def tell(self, message: dict[str, Any]) -> None:
        """Receive a message from any thread."""
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
                        self.opened.scheduler.noticed(message["node"])
                    agents.append((message["node"], message["type"] == "registered"))
                case "notice":
                    self.node_manager.agents(agents)
                    agents.clear()
                    self.node_manager.notice(message["node"], float(message["grace_s"]))
                case "refused":
                    self.remark(message["reason"])
                case "warm" | "agent_ended":
                    pass
                case _:
                    events += self._heard(message)
            self._observe("message", message)
        if agents:
            self.node_manager.agents(agents)
        if events:
            self.decision_loop.on_events(*events)
        # The progress of changed tasks is written before their new processes report
        if self._turned:
            self.task_manager.progress(self._turned)
            self._turned.clear()
            self.write(sync=False)

    def _heard(self, message: dict[str, Any]) -> list[Event]:
        """Apply a launcher's message; return the event that follows, if any."""
        if self.task_manager.on_message(message) is None:
            return []
        match message["type"]:
            case "vacated":
                self.node_manager.vacated(message["task"], message["nodes"])
            case "note":
                self.remark(f"task '{message['task']}': {message['text']}")
                self.task_manager.trouble(message["task"], message["text"])
            case "starting" if text := self.task_manager.wasted_starts(message["task"]):
                self.remark(f"task '{message['task']}' {text}")
                self.task_manager.trouble(message["task"], text)
            case "done" if text := self.task_manager.missing(message["task"]):
                self.remark(f"task '{message['task']}' {text}")
                self.task_manager.trouble(message["task"], text)
        if message["type"] in _TURNS:
            self._turned.add(message["task"])
        event = event_of(message, self.decision_loop.now)
        return [] if event is None else [event]

    def order(self, actions: Sequence[Action]) -> None:
        """Carry out actions."""
        self.launcher_pool.carry_out(actions, gentle=self.node_manager.gentle)

    def hand_batches(self, batches: Mapping[str, int]) -> None:
        """Set the batches with which tasks train."""
        self.task_manager.hand_batches(batches)

    def due(self) -> Sequence[Statement]:
        """Return the statements to write with the next entry."""
        return self.task_store.due()

    def asking(self, time_s: float) -> Sequence[Event]:
        """Return how much work is left, for objectives that use it."""
        return self.task_manager.work_left(time_s) if self.harvester.uses_work_left else ()

    def absorbed(self, events: Sequence[Event]) -> None:
        """Update tasks and nodes after events."""
        gone = {node for event in events if isinstance(event, NodesLeft) for node in event.nodes}
        self.task_manager.hold(events[-1].time_s, gone=self.node_manager.preempted(gone))
        for event in events:
            self.task_manager.on_event(event)
            if isinstance(event, NodesLeft):
                self.node_manager.left(event)
            elif isinstance(event, NodesJoined):
                self.node_manager.joined(event)
        if not all(isinstance(event, TaskMeasured) for event in events):
            self._decided_at = time.monotonic()
        if not all(isinstance(event, NodesJoined | NodesLeft) for event in events):  # else as many are of use as before
            self.want()
        self._observe("events", events)

    def written(self, events: Sequence[Event]) -> None:  # noqa: ARG002 - which they are was noted before
        """Drop state that only unfinished tasks need."""
        self.task_manager.written()

    def decided(self, decision: Decision) -> None:
        """Record who holds which nodes."""
        self.task_manager.hold(decision.time_s, decided=True)
        self.task_manager.narrow()
        shown = {name: getattr(decision, name) for name in LastDecision.__struct_fields__}
        self.last_decision = LastDecision(**shown)
        for note in filter(None, (*decision.notes, decision.fallback)):
            self.remark(note)
        self._observe("decision", decision)

    def remark(self, text: str) -> None:
        """Print a notice."""
        self.remarks.add(text, time.time())

    def stalled(self, error: JournalStalled | None) -> None:
        """Report that the journal cannot be written, or that it can be again."""
        text = "the journal is written again: new tasks are taken, and nodes are given to tasks"
        if error is not None:
            text = f"until the journal can be written, no new tasks are taken and tasks get no more nodes: {error}"
        self.remark(text)

    def broke(self, error: BaseException) -> None:
        """End; the next start recovers."""
        self.state = "broken"
        if not self.broken.done():
            self.broken.set_result(error)

    def _observe(self, what: str, value: object) -> None:
        for observer in self.observers:
            observer(what, value)

    def want(self) -> None:
        """Report to the scheduler how many nodes could be used, and which must not be."""
        by_kind = {pool.kind: self._usable(pool.kind) for pool in self.site.pools if pool.kind}
        self.node_manager.want(self._usable(), self.task_store.drained, by_kind)

    def _willing(self) -> list[TaskSpec]:
        """Return the tasks that may compete."""
        paused, most = self.harvester.paused, 0 if self.harvesting.paused else self.site.deciding.max_tasks
        return [*map(self.harvester.spec, [task for task in self.harvester.unfinished if task not in paused][:most])]

    def _usable(self, kind: str = "") -> int:
        """Return how many nodes these tasks could use, of a kind or of all together."""
        return sum(spec.max_nodes for spec in self._willing() if not kind or spec.curve_on(kind) is not None)
