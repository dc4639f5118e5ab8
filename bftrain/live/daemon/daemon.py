"""LiveDaemon: the event loop of a live run.

Changes of nodes, messages of agents and launchers, requests of users and timers become events; the decision loop
decides on them; orders go to the launchers. Every start is a recovery from the journal, the first one included.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from bftrain.errors import Fault
from bftrain.live import timeouts
from bftrain.live.daemon.decision_loop import DecisionLoop
from bftrain.live.daemon.housekeeping import Housekeeping
from bftrain.live.daemon.node_manager import NodeManager, NodeTracker, node_events
from bftrain.live.daemon.startup import LiveResources
from bftrain.live.daemon.task_manager import LauncherPool, TaskManager, task_events
from bftrain.live.daemon.task_store import CLUSTER, TaskStore, UsageLedger
from bftrain.live.log import RecentWarnings
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.schemas import HandBack, HarvestingView, LiveTaskRecord, LiveTaskState
from bftrain.live.model.site_config import NodeKinds
from bftrain.live.schedulers.base import Scheduler
from bftrain.values import wire
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskMeasured, TaskResumed

_log = logging.getLogger(__name__)
_PROCESS_CHANGES: Final = frozenset({"confirmed", "vacated", "paused"})  # reports of started or stopped task processes
_KINDS: Final = "kinds of nodes of pools"
_CLOCK_BEHIND_S: Final = 60.0
_PAUSED: Final = "harvesting is paused until"  # fact: seconds since 1970, or inf
_HAND_BACKS: Final = 100
_WAITING: Final = "waiting"
# Receives ("events", applied ones), ("decision", one) or ("message", one of a launcher or the hub)
Observer = Callable[[str, Any], None]


class LiveDaemon:
    """A live run. All methods but ``tell`` run in the event loop."""

    def __init__(self, opened: LiveResources) -> None:
        site, store, scheduler = opened.site, opened.task_store, opened.scheduler
        self.opened, self.site, self.task_store, self.harvester = opened, site, store, opened.harvester
        self.notices = RecentWarnings()
        self.launcher_pool = LauncherPool(self.tell, opened.hub, site)
        self.harvesting = Harvesting(store, scheduler)
        tracker = NodeTracker(agents_suffice=scheduler.agents_suffice, agents_used=site.agents.used)
        tracker.drained, tracker.paused = store.drained, self.harvesting.paused
        kinds = NodeKinds(site.kind_of, site.unit)
        self.node_manager = NodeManager(
            scheduler, tracker, self.launcher_pool, site.times, kinds, self._synchronise_pool
        )
        if opened.hub is not None:
            opened.hub.kind_of = self._kind_of
        rates = site.node_rates(self._kind_of, scheduler.gpus_of)
        ledger = UsageLedger(opened.journal, rates)
        self.task_manager = TaskManager(store, opened.harvester, self.launcher_pool, ledger)
        self.decision_loop = DecisionLoop(
            opened.harvester,
            opened.journal,
            site.deciding,
            store,
            self.task_manager,
            self.node_manager,
            self.launcher_pool,
            self._observe,
            site.times.settle_s,
        )
        self.housekeeping = Housekeeping(site, opened.journal, store, self.decision_loop.perform)
        self.since_s = self.decision_loop.now
        self.observers: list[Observer] = [self.harvesting.observe]
        self.ready = asyncio.Event()  # set when tasks can be changed
        self._state = "starting"
        self._clock_behind = False
        self._quiet_since = time.monotonic()  # the last event that could move nodes; measurements do not count
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[dict[str, Any]] = deque()  # messages from other threads
        self._inbox_due = False  # whether the loop will read them
        self._changed_tasks: set[str] = set()  # tasks with new or lost processes since the last write of progress
        self._ticking: asyncio.Task[None] | None = None
        self._restoring: list[asyncio.Task[None]] = []

    @property
    def state(self) -> str:
        """The state of the run, as one of RUN_STATES."""
        if self.broken.done():
            return "broken"
        return "paused" if self._state == "running" and self.harvesting.paused else self._state

    @property
    def broken(self) -> asyncio.Future[BaseException]:
        """The fatal error of the run, if any."""
        return self.decision_loop.broken

    async def begin(self) -> None:
        """Resume from the journal: register tasks with launchers, query the scheduler, then wait for known agents."""
        await self.node_manager.check(self.opened.agent_order, timeouts.TIMEOUTS.first_look_s)
        self._record_facts()
        self.task_store.begin(time.time(), self.site)
        self.launcher_pool.launcher(self.site.launcher)  # fail early if it is unavailable
        deadline = time.monotonic() + timeouts.TIMEOUTS.restore_s
        for record in self.task_store.unfinished:
            await self._restore(record, max(timeouts.TIMEOUTS.restore_task_s, deadline - time.monotonic()))
        for record in self.task_store.unfinished:  # some were added under other node kinds of the site
            if unfit := self.node_manager.kinds.unfit(record.spec.min_nodes, record.spec.curves):
                _log.warning("task '%s' cannot run on the present nodes: %s", record.name, unfit)
        self.want()  # first of all, so no useless pilot is submitted
        self.node_manager.run(self.opened.agent_order)
        await asyncio.sleep(0)  # it listens before the first query, so no change is lost
        allowed = await self.node_manager.look(timeouts.TIMEOUTS.first_look_s)
        node_tracker, pool = self.node_manager.node_tracker, self.harvester.pool
        if self.site.agents.used:
            lost = pool - allowed if allowed is not None and self.opened.scheduler.ends_agents else frozenset()
            node_tracker.expect(pool - lost)
        now, kinds, harvester = self.decision_loop.now, self.node_manager.kinds, self.harvester
        mistaken = [node for node in pool if harvester.kind_of(node) != kinds.of(node)]
        records, held_up = self.task_store.unfinished, self.task_manager.held_up
        self.decision_loop.on_events(
            *node_events(pool, node_tracker.ours, now, kinds, mistaken),
            *task_events(harvester.unfinished, harvester.paused, records, held_up, now),
            sync=True,
        )
        self.decision_loop.write()
        if self.decision_loop.stalled is not None:
            self.broke(self.decision_loop.stalled)
        if self.state == "broken":
            return  # orders require a journal entry
        self.task_manager.written()
        self.launcher_pool.establish(self.harvester.plan)
        if self.opened.hub is not None:
            self.opened.hub.hold_workers()  # workers wait until the surviving processes of the previous run are known
            self.opened.hub.open()
        self.node_manager.open()
        self.want()
        self.ready.set()
        self._ticking = self._start(self._tick(), "clock")  # measuring and writing depend on it
        self._state = "reuniting"
        await self.node_manager.reunite(self.site.reunion_s)
        if self.opened.hub is not None:
            self.opened.hub.start_workers()
        if self.state == "reuniting":
            self._state = "running"
            self.decision_loop.decide()

    def _record_facts(self) -> None:
        """Record the cluster's name and the nodes' kinds; warn if the name differs from the recorded one.

        Recorded kinds are kept if agents report kinds, or if the scheduler does not answer.
        """
        scheduler, before = self.opened.scheduler, self.task_store.fact(CLUSTER)
        facts, text = scheduler.facts(), self.task_store.fact(_KINDS)
        if facts.cluster and before not in {"", facts.cluster}:
            _log.warning("this is cluster '%s'; the journal was written on cluster '%s'", facts.cluster, before)
        self.task_store.record_fact(CLUSTER, facts.cluster or before)
        kinds = facts.node_kinds
        if text and (scheduler.agents_stay or (not kinds and any(pool.kind for pool in self.site.pools))):
            kinds = {**wire.decode(text, dict[str, str]), **kinds}
        self._set_kinds(kinds)

    def _kind_of(self, node: str) -> str:
        return self.node_manager.kinds.of(node)

    def _set_kinds(self, kinds: Mapping[str, str]) -> None:
        if kinds:
            self.task_store.record_fact(_KINDS, wire.encode(kinds).decode())
        self.node_manager.kinds = NodeKinds({**kinds, **self.site.kind_of}, self.site.unit)

    async def drain(self) -> None:
        """Shut down cleanly: tasks save their state, and all our jobs at the scheduler are cancelled."""
        self._state = "draining"
        self.decision_loop.hold_back()
        self.node_manager.use_none(self.decision_loop.pool)
        self._synchronise_pool()
        await self.node_manager.drain()
        self.task_manager.progress()
        self.decision_loop.write(sync=False)
        await run_in_daemon_thread(self.launcher_pool.close)
        if self.decision_loop.stalled is not None:  # the notice must not claim that all is stored
            self.broke(self.decision_loop.stalled)

    def close(self) -> None:
        """Stop; agents and workers are left running."""
        self.housekeeping.close()
        for job in filter(None, (self._ticking, *self._restoring)):
            job.cancel()
        self.node_manager.close()
        self.decision_loop.close()
        self.notices.close()

    def _start(self, job: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a job in the background that stops the run if it fails."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.broke(Fault(f"the {name} stopped: {type(error).__name__}: {error}"))

        task = asyncio.create_task(job, name=name)
        task.add_done_callback(ended)
        return task

    async def _tick(self) -> None:
        written = time.monotonic()
        while True:
            await asyncio.sleep(timeouts.TIMEOUTS.tick_s)
            if self.opened.hub is not None:
                self.opened.hub.beat()
            if events := self.task_manager.learned():
                self.decision_loop.on_events(*events)
            if time.monotonic() - written >= timeouts.TIMEOUTS.write_s:
                written = time.monotonic()
                self.task_manager.progress()
                self.decision_loop.write(sync=False)
            self._check_clock(self.harvester.time_s - time.time())
            self._share_again()
            if self._apply_pause():
                self.want()
            self.node_manager.leave_drained(self.decision_loop.pool)
            self._synchronise_pool()
            self.housekeeping.apply()
            self.node_manager.release_when_idle(self.harvester.pool)
            self.node_manager.release_overdue(self.decision_loop.pool)

    def _check_clock(self, behind_s: float) -> None:
        """Warn of a clock that was set back behind the journal; its times never decrease."""
        if not self._clock_behind and behind_s > _CLOCK_BEHIND_S:
            self._clock_behind = True
            what = f"the clock of this machine is {behind_s:,.0f} s behind the last entry of the journal"
            _log.warning("%s: correct it: usage and deadlines do not advance until the clock has caught up", what)
        elif behind_s <= 0.0:
            self._clock_behind = False

    def _share_again(self) -> None:
        """Decide again after a quiet period if the objective depends on past service."""
        share_s, now = self.site.times.share_s, time.monotonic()
        if self.state != "running" or not self.harvester.uses_history or not share_s:
            return
        if self.harvester.first_turn_due(self.decision_loop.now):
            share_s = min(share_s, self.site.deciding.turn_s)
        if now - self._quiet_since >= share_s and 0 < self.harvester.pool_size < self._usable():
            self._quiet_since = now
            self.decision_loop.decide()

    async def _restore(self, record: LiveTaskRecord, patience_s: float) -> None:
        """Try to register a task for some time, and longer in the background."""
        tried = asyncio.Event()
        self._restoring.append(self._start(self._let_compete(record, tried), f"restart of task '{record.name}'"))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await tried.wait()
        if not tried.is_set():
            self.task_manager.hold_up(record.name, f"its folder '{record.run.folder}' does not answer")

    async def _let_compete(self, record: LiveTaskRecord, tried: asyncio.Event) -> None:
        """Let a task compete as soon as it can run."""
        name, continues = record.name, await self.task_manager.restore(record, tried)
        current, now = self.task_store.get(name), self.decision_loop.now
        if not self.ready.is_set():
            return  # begin() has yet to compare the stored tasks with the decision core's
        if continues and current is not None and current.state is LiveTaskState.SUBMITTED:
            _log.warning("task '%s' continues", name)
            self.decision_loop.on_events(TaskResumed(time_s=now, task=name))
        elif current is None and name in self.harvester.unfinished:  # its job is rejected
            self.decision_loop.on_events(TaskCancelled(time_s=now, task=name))

    def tell(self, message: dict[str, Any]) -> None:
        """Receive a message from any thread."""
        self._inbox.append(message)
        if not self._inbox_due:
            self._inbox_due = True
            self._loop.call_soon_threadsafe(self._read_inbox)

    def _read_inbox(self) -> None:
        self._inbox_due = False
        events: list[Event] = []
        agents: list[tuple[str, bool]] = []
        while self._inbox:
            message = self._inbox.popleft()
            match message["type"]:
                case "registered" | "gone":
                    self._on_agent(message)
                    agents.append((message["node"], message["type"] == "registered"))
                case "notice":
                    self.node_manager.agents(agents)
                    agents.clear()
                    self._synchronise_pool()
                    self.node_manager.notice(message["node"], float(message["grace_s"]), self.decision_loop.pool)
                    self._synchronise_pool()
                case "refused":
                    _log.warning("%s", message["reason"])
                case "warm" | "agent_ended":
                    pass
                case _:
                    events += self._heard(message)
            self._notify("message", message)
        if agents:
            self.node_manager.agents(agents)
            self._synchronise_pool()
        if events:
            self.decision_loop.on_events(*events)
        # The progress of changed tasks is written before their new processes report
        if self._changed_tasks:
            self.task_manager.progress(self._changed_tasks)
            self._changed_tasks.clear()
            self.decision_loop.write(sync=False)

    def _on_agent(self, message: dict[str, Any]) -> None:
        """Pass an arrival or exit to the scheduler; record the kind that an agent reports, unless [kinds] names it."""
        node, scheduler = message["node"], self.opened.scheduler
        if message.get("noticed"):
            scheduler.noticed(node)
        if not scheduler.agents_stay:
            return
        if message["type"] == "gone":
            scheduler.gone(node)
            return
        scheduler.registered(node, message["gpus"])
        named, kind = self.node_manager.kinds.named, str(message["kind"]).strip()
        if kind.isprintable() and kind and node not in self.site.kind_of and named.get(node) != kind:
            self._set_kinds({**named, node: kind})
            loop, kinds, harvester = self.decision_loop, self.node_manager.kinds, self.harvester
            if mistaken := [one for one in loop.pool if harvester.kind_of(one) != kinds.of(one)]:
                ours = self.node_manager.node_tracker.ours
                loop.on_events(*node_events(loop.pool, ours, loop.now, kinds, mistaken))

    def _heard(self, message: dict[str, Any]) -> list[Event]:
        """Apply a launcher's message; return the event that follows, if any."""
        if message["task"] not in self.task_manager.tracks:
            return []
        if message["type"] == "vacated":
            self.node_manager.vacated(message["task"], message["nodes"])
        if message["type"] in _PROCESS_CHANGES:
            self._changed_tasks.add(message["task"])
        event = self.task_manager.on_message(message)
        return [] if event is None else [event]

    def _synchronise_pool(self) -> None:
        """Apply arrivals and departures of nodes to the pool."""
        loop = self.decision_loop
        if events := self.node_manager.events(loop.pool, loop.now):
            loop.on_events(*events)

    def _observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events or a decision
        """Update the demand after events, and pass them on."""
        if what == "events":
            if not all(isinstance(event, TaskMeasured) for event in value):
                self._quiet_since = time.monotonic()
            if not all(isinstance(event, NodesJoined | NodesLeft) for event in value):  # these keep the demand
                self.want()
        self._notify(what, value)

    def _notify(self, what: str, value: object) -> None:
        for observer in self.observers:
            observer(what, value)

    def broke(self, error: BaseException) -> None:
        """End; the next start recovers."""
        self.decision_loop.break_off(error)

    def drain_nodes(self, nodes: Iterable[str], user: str, *, end: bool) -> bool:
        """Stop using nodes, or use them again; return whether that is written."""
        store, tracker = self.task_store, self.node_manager.node_tracker
        store.undrain(nodes) if end else store.drain(nodes, user, time.time())
        if not self.decision_loop.write():
            return False
        tracker.drained = store.drained
        self.node_manager.leave(() if end else tracker.not_to_use, self.decision_loop.pool)
        self._synchronise_pool()
        self.want()
        return True

    def pause_until(self, time_s: float) -> bool:
        """Use no nodes until a time (0: resume now); return whether that is written."""
        self.harvesting.set_until(time_s)
        self._apply_pause()
        if not self.decision_loop.write():
            return False
        self.want()
        return True

    def _apply_pause(self) -> bool:
        """Start or finish a pause at its time; return whether it changed."""
        tracker, paused = self.node_manager.node_tracker, self.harvesting.paused
        if tracker.paused == paused:
            return False
        tracker.paused = paused
        _log.warning("harvesting is paused: no nodes are used" if paused else "harvesting continues")
        if paused:
            self.node_manager.leave_all(self.decision_loop.pool)
        self._synchronise_pool()
        return True

    def want(self) -> None:
        """Report to the scheduler how many nodes tasks can use, in total and by kind, and the drained nodes."""
        by_kind = {pool.kind: self._usable(pool.kind) for pool in self.site.pools if pool.kind}
        self.node_manager.want(self._usable(), self.task_store.drained, by_kind)

    def _usable(self, kind: str = "") -> int:
        """Return the number of nodes that competing tasks could use, of one kind or of all kinds."""
        paused, most = self.harvester.paused, 0 if self.harvesting.paused else self.site.deciding.max_tasks
        specs = map(self.harvester.spec, [task for task in self.harvester.unfinished if task not in paused][:most])
        return sum(spec.max_nodes for spec in specs if not kind or spec.curve_on(kind) is not None)


class Harvesting:
    """The pause of a live run, which survives a restart, and the latest hand-backs.

    During a pause all tasks wait, and no job of ours is on a node or in the scheduler's queue.
    """

    def __init__(self, task_store: TaskStore, scheduler: Scheduler) -> None:
        self._task_store = task_store
        self._scheduler = scheduler
        self._until_s = float(task_store.fact(_PAUSED) or 0.0)
        self._leaving: dict[str, tuple[float, float]] = {}  # node -> when its workers were killed, and how long it took
        self._hand_backs: deque[HandBack] = deque(maxlen=_HAND_BACKS)

    @property
    def paused(self) -> bool:
        """Whether no node is to be used now."""
        return time.time() < self._until_s

    @property
    def until_s(self) -> float | None:
        """The end of a pause; ``None`` without a pause or a known end."""
        return self._until_s if self.paused and math.isfinite(self._until_s) else None

    @property
    def view(self) -> HarvestingView:
        """Return the state as the API shows it."""
        facts = self._scheduler.facts()
        return HarvestingView(
            paused=self.paused,
            until_s=self.until_s,
            waiting_pilots=(facts.pilots or {}).get(_WAITING, 0),
            partitions=facts.partitions,
            handbacks=tuple(self._hand_backs),
        )

    def set_until(self, until_s: float) -> None:
        """Use no node until a time; 0: use them now. The caller writes the due statements."""
        self._until_s = until_s
        self._task_store.record_fact(_PAUSED, f"{until_s:.3f}" if until_s else "")

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - a message or another observed value
        """Note how an agent left a node that the scheduler wanted."""
        if what != "message" or value["type"] not in {"gone", "agent_ended"}:
            return
        node, after_s = value["node"], float(value.get("after_s", 0.0))
        if value["type"] == "gone":
            self._leaving.pop(node, None)
            if value.get("noticed"):
                self._leaving[node] = (value["t"], after_s)
        elif (left := self._leaving.pop(node, None)) is not None:
            self._hand_backs.append(HandBack(node=node, time_s=left[0], kill_s=left[1], exit_s=after_s))
