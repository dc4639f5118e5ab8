"""TaskManager: tracks the state of each task by its launcher's reports; stores and learns from them.

LauncherPool passes orders to the launcher of each task; departures that can wait are graceful.

Lost report lines leave sample counts exact, except the last ones of a script without a State. With each step, a worker
reports the running sum ``total`` of its samples since step ``since``. Lines are lost when a socket is full, the daemon
is down, or a node fails. For two lines with equal ``since``, the difference of their sums is the work between them,
whether or not the lines between arrived. A script with a State keeps the sum in the state: its ``since`` is 0, and the
sum counts from the start of the training.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import median
from threading import Lock
from typing import Any, Final

from msgspec.structs import replace

from bftrain import registry, speed_estimates
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, BftrainError, BrokenPlugin
from bftrain.live import timeouts
from bftrain.live.daemon.task_store import TaskStore, UsageLedger, day_of, midnight_before
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.schemas import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.model.site_config import SiteSettings, environment_of
from bftrain.ports import Launcher
from bftrain.values import wire
from bftrain.values.actions import Action, Cause, Plan, Release
from bftrain.values.curve import SpeedCurve
from bftrain.values.events import (
    Event,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)
from bftrain.values.task import TaskSpec
from bftrain.values.wire import NOTHING
from bftrain_elastic.errors import BadJob, ElasticError
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement

_log = logging.getLogger(__name__)
_REASON_LETTERS: Final = 4000
_EVENT_LETTERS: Final = 2000  # letters of a reason in the journal
_NOTED_STARTS: Final = frozenset({3, 10, 30, 100, 300, 1000})  # counts of starts without steps that trigger a notice
_RESTORE_THREADS: Final = 8  # tasks that are restored at the same time
_ALL_OF_IT: Final = 0.999  # share of the work: whole batches seldom add up to it exactly


@dataclass(eq=False, repr=False)
class TaskManager:
    """Updates stored tasks, progress and hours together."""

    _task_store: TaskStore
    _harvester: Harvester
    _launcher_pool: LauncherPool
    ledger: UsageLedger

    def __post_init__(self) -> None:
        self.tracks: dict[str, TaskProgressTrack] = {}  # unfinished tasks
        self._counted: set[str] = set()  # tasks with counted hours but unwritten progress
        self._ended: list[str] = []  # finished tasks that launchers still know
        self.held_up: dict[str, str] = {}  # unfinished tasks that cannot be run now -> why
        self._restore_slots = asyncio.Semaphore(_RESTORE_THREADS)

    @property
    def now(self) -> float:
        """The time on the clock of the events, which never runs backwards."""
        return max(self._harvester.time_s, time.time())

    async def restore(self, record: LiveTaskRecord, tried: asyncio.Event) -> bool:
        """Register a task with its launcher after a restart, and set ``tried``; return whether it continues.

        A task with a rejected job has failed. A task that cannot run at present (missing file system, broken launcher)
        is put on hold and retried.
        """
        try:
            name, track = record.name, self.begin(record)
            while self.tracks.get(name) is track:  # not cancelled meanwhile
                error = await self._add(record)
                if self.tracks.get(name) is not track:
                    if error is None and self._task_store.get(name) is None:
                        self._launcher_pool.drop(name)  # finished meanwhile: its drop came before this add
                elif error is None:
                    self.held_up.pop(name, None)
                    if held := self._harvester.held.get(name):
                        track.held, track.held_since_s, track.skip_start = held, self.now, True
                    return True
                elif isinstance(error.__cause__, BadJob):
                    _log.warning("task '%s' cannot continue: %s", name, error)
                    self.finish(name, LiveTaskState.FAILED, str(error))
                else:
                    self.hold_up(name, str(error) or type(error).__name__)
                    tried.set()
                    await asyncio.sleep(timeouts.TIMEOUTS.task_retry_s)
            return False
        finally:
            tried.set()

    async def _add(self, record: LiveTaskRecord) -> BaseException | None:
        """Register a task with its launcher in a thread; return the error. A hanging thread frees its slot."""
        async with self._restore_slots:
            attempt = asyncio.ensure_future(run_in_daemon_thread(lambda: self._launcher_pool.add(record)))
            await asyncio.wait((attempt,), timeout=timeouts.TIMEOUTS.restore_task_s)
        await asyncio.wait((attempt,))
        return attempt.exception()

    def hold_up(self, name: str, why: str) -> None:
        """Record why a task cannot run now."""
        if self.held_up.get(name) != why:
            _log.warning("task '%s' cannot continue for now and is retried: %s", name, why)
        self.held_up[name] = why

    def begin(self, record: LiveTaskRecord) -> TaskProgressTrack:
        """Start to track a task."""
        self.ledger.begin(record, record.progress)
        track = self.tracks[record.name] = TaskProgressTrack(record, record.progress)
        return track

    def on_event(self, event: Event) -> None:
        """Apply an event to its task."""
        match event:
            case TaskFinished():
                self.finish(event.task, LiveTaskState.DONE)
            case TaskCancelled():
                self.finish(event.task, LiveTaskState.CANCELLED)
            case TaskFailed():
                self._failed(event.task, event.reason)

    def hold(self, time_s: float, *, decided: bool = False, gone: AbstractSet[str] = frozenset()) -> None:
        """Record the tasks' nodes since ``time_s``: after a decision, or after events with ``gone`` nodes."""
        holdings = self._harvester.held
        self._cut_day(time_s)
        for name, track in self.tracks.items():
            before, nodes = track.held, holdings.get(name, ())
            if nodes is not before and nodes != before:  # true for few tasks
                track.hold(nodes, time_s, decided=decided, gone=gone)
                if nodes and track.record.spec.curves:
                    track.kind = self._harvester.kind_of(nodes[0])
                if before:
                    self._count(track, before)

    def _cut_day(self, time_s: float) -> None:
        """Assign all work until midnight to the previous day."""
        day, before = day_of(time_s), self.ledger.day
        if before and day > before:
            midnight = midnight_before(time_s)
            for track in self.tracks.values():
                track.advance_to(midnight)
                self._count(track, track.held)
        self.ledger.day = max(day, before)

    def finish(self, name: str, state: LiveTaskState, reason: str = "") -> None:
        """Record that a task has finished, and drop state that only unfinished tasks need."""
        record, track = self._task_store.get(name), self.tracks.pop(name, None)
        self._ended.append(name)
        self.held_up.pop(name, None)
        if record is None or track is None:
            return
        now, before = self.now, track.held
        track.hold((), now)
        self._count(track, before)
        self.ledger.forget(record.number)
        record = replace(record, state=state, progress=track.progress, ended_s=now, reason=reason or record.reason)
        self._task_store.change(record)
        self.progress(())

    def _count(self, track: TaskProgressTrack, held: Collection[str]) -> None:
        """Count a task's work on its previous nodes, in the same write as its progress."""
        self.ledger.count(track.record, track.progress, next(iter(held), ""))
        self._counted.add(track.record.name)

    def written(self) -> None:
        """Let launchers forget finished tasks whose final state is on disk."""
        while self._ended:
            self._launcher_pool.drop(self._ended.pop())

    def _failed(self, name: str, reason: str) -> None:
        record, track = self._task_store.get(name), self.tracks.get(name)
        if record is None or track is None:
            return
        reason = reason[-_REASON_LETTERS:]
        _log.warning("task '%s' failed: %s", name, reason.partition("\n")[0])
        track.progress = replace(track.progress, failures=track.progress.failures + 1)
        if name in self._harvester.unfinished:  # it is retried
            progress = track.advance_to(self.now)
            self._count(track, track.held)
            self._task_store.change(replace(record, reason=reason, progress=progress))
            self.progress(())
        else:
            self.finish(name, LiveTaskState.FAILED, reason)

    def trouble(self, name: str, text: str) -> None:
        """Record the latest problem of a task."""
        record, text = self._task_store.get(name), text[-_REASON_LETTERS:]
        if record is not None and record.reason != text:
            self._task_store.change(replace(record, reason=text))

    def on_message(self, message: Mapping[str, Any]) -> Event | None:
        """Apply a launcher's message; return the event that follows from it."""
        name = message["task"]
        track = self.tracks.get(name)
        if track is None:
            return None  # it has finished
        track.on_message(message)
        event: Event | None = None
        notice = ""
        match message["type"]:
            case "note":
                notice = f": {message['text']}"
            case "starting" if track.starts in _NOTED_STARTS:
                notice = f" started {track.starts} times without a step"
            case "done":
                notice, event = _missing(track), TaskFinished(time_s=self.now, task=name)
            case "failed":
                event = TaskFailed(time_s=self.now, task=name, reason=message["reason"][-_EVENT_LETTERS:])
        if notice:
            _log.warning("task '%s'%s", name, notice)
            self.trouble(name, notice.removeprefix(":").strip())
        return event

    def learned(self) -> list[TaskMeasured]:
        """Return measurements for the decision core, and narrow tasks where a speed is to be measured."""
        now, events = self.now, []
        for name, track in self.tracks.items():
            # The time of an unfinished start counts as start cost, which protects the task
            starting = self._harvester.uses_history and track.starting_since is not None
            if (track.news or starting) and name in self._harvester.unfinished:
                spec = self._harvester.spec(name)
                event = track.learn(spec, now, self._harvester.longest_start_s, self._speed_ratios(name, spec))
                events += [] if event is None else [event]
                self._narrow(track)
        return events

    def narrow(self) -> None:
        """Limit tasks to sizes whose speed is being measured."""
        for track in self.tracks.values():
            self._narrow(track)

    def _narrow(self, track: TaskProgressTrack) -> None:
        name = track.record.name
        size = track.size_to_run()
        if size != track.narrowed:
            track.narrowed = size
            self._launcher_pool.call(name, "narrow", size)

    def _speed_ratios(self, task: str, spec: TaskSpec) -> dict[str, float]:
        """Return how much faster tasks are on other kinds than on this task's: medians over tasks measured on both."""
        own = self.tracks[task].kind
        if not own:
            return {}
        all_speeds = [track.speeds_of for track in self.tracks.values()]
        all_speeds += [record.progress.speeds_of for record in self._task_store.finished]
        ratios = {}
        for kind in spec.curves:
            both = [(speeds[kind], speeds[own]) for speeds in all_speeds if kind in speeds and own in speeds]
            if both:
                ratios[kind] = median(_per_node(there) / _per_node(here) for there, here in both)
        return ratios

    def hand_batches(self, batches: Mapping[str, int]) -> None:
        """Set the decided batches of tasks that were submitted with their speeds."""
        for name, batch in batches.items():
            track = self.tracks.get(name)
            if track is not None and not track.record.guessed:
                track.batch_decided = True
                self._launcher_pool.call(name, "set_batch", batch)

    def work_left(self, time_s: float) -> list[TaskMeasured]:
        """Return the remaining work of running tasks, for objectives that use it."""
        return [
            TaskMeasured(
                time_s=time_s, task=track.record.name, work_left_samples=max(0.0, work - track.progress.done_samples)
            )
            for track in self.tracks.values()
            if track.held and (work := track.record.spec.work_samples) is not None
        ]

    def progress(self, names: Collection[str] | None = None) -> None:
        """Store the progress of ``names`` and of tasks with newly counted hours, or of all tasks."""
        now = self.now
        self._cut_day(now)
        for name in list(self.tracks) if names is None else self._counted.union(names):
            track = self.tracks.get(name)
            if track is not None and (track.held or track.progress != track.record.progress):
                self._task_store.progressed(name, track.advance_to(now))
                self._count(track, track.held)
        self._counted.clear()
        self._task_store.add_writes(self.ledger.due())


def _missing(track: TaskProgressTrack) -> str:
    """Return how much work a finished task has left undone, as text; "" if none."""
    work, progress = track.record.spec.work_samples, track.progress
    if work is None or not progress.step or progress.samples >= work * _ALL_OF_IT:
        return ""  # the progress of a task that never reports is unknown
    return f" finished after {progress.samples:,.0f} of {work:,.0f} samples"


def task_events(
    unfinished: Collection[str],
    paused: Collection[str],
    records: Iterable[LiveTaskRecord],
    held_up: Collection[str],
    time_s: float,
) -> Iterator[Event]:
    """Yield the events that bring the decision core's tasks in line with the stored ones and their owners' requests.

    ``unfinished`` and ``paused`` come from the decision core. Tasks ``held_up`` cannot run now and therefore get no
    nodes. Requests are stored before their event; a crash between the two is repaired here.
    """
    wanted = {record.name: record for record in records if record.unfinished}
    for name in unfinished:
        if name not in wanted:
            yield TaskCancelled(time_s=time_s, task=name)  # the program of such a task is unknown
    for name, record in wanted.items():
        if name not in unfinished:
            yield TaskSubmitted(time_s=time_s, spec=record.spec)
        waits = record.state is LiveTaskState.PAUSED or name in held_up
        if waits and name not in paused:
            yield TaskPaused(time_s=time_s, task=name)
        elif name in paused and not waits:
            yield TaskResumed(time_s=time_s, task=name)


_LEARN_EVERY_S: Final = 5.0  # time between measurements of a task that reach the decisions
_LONGEST_START_S: Final = 300.0  # limit of a start's protection: some programs never report a step
_FRESH_S: Final = 5.0  # seconds that the last measured speed is shown; at least ``_FRESH_STEPS`` steps
_FRESH_STEPS: Final = 3.0
_COST_NEWS: Final = 0.2  # relative: a smaller change of a cost is not worth a decision
_COST_NEWS_S: Final = 0.1
_NOISE_NEWS: Final = 0.1  # relative: a smaller change of the noise scale is not worth a decision
_NOISE_WEIGHT: Final = 0.1  # weight of the last report


def _per_node(speeds: Mapping[int, float]) -> float:
    """Return the speed per node at the smallest measured size."""
    size = min(speeds)
    return speeds[size] / size


@dataclass(eq=False)
class TaskProgressTrack:
    """The progress of one unfinished task. ``advance_to`` updates ``progress``."""

    record: LiveTaskRecord
    progress: Progress
    measuring: SpeedMeasurement = field(default_factory=SpeedMeasurement)
    held: tuple[str, ...] = ()
    held_since_s: float = 0.0
    running: int = 0  # number of nodes with confirmed workers
    narrowed: int | None = None
    reported_s: float = 0.0  # time of the last report
    rate: float = 0.0  # samples/s over the last reports
    learned_s: float = 0.0
    news: bool = False  # newer speeds or costs than those known to the decisions
    batch_decided: bool = False  # the curve, made for another batch size, does not apply
    starts: int = 0  # starts since its last step
    starting_since: float | None = None  # time of an allocation that has not produced a step yet
    kind: str = ""  # kind of its nodes, if its speed depends on it
    copied_step: int = 0  # step of the in-memory copy on a node outside the task; 0: none
    skip_start: bool = False  # ignore the next "starting": the task has been running since before this daemon
    _by_kind: dict[str, SpeedMeasurement] = field(default_factory=dict)
    _line: tuple[float, int] | None = None
    _step_s: float = 0.0  # duration of the last step
    _began_at_step: int | None = None  # step at which its first start continued

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Apply a message of the task."""
        match message["type"]:
            case "starting" if self.skip_start:
                self.skip_start = False
                return
            case "starting":
                self._measure_on(self.kind)
                self.starts, self.starting_since = self.starts + 1, float(message["t"])
            case "confirmed":
                step = int(message.get("step", 0))
                self.running, self._line = int(message["size"]), None
                if self._began_at_step is None and not self.progress.step:
                    self._began_at_step = step
                left = min(self.progress.in_memory_step, step) if self.running > 1 else 0  # copies on other nodes
                self.progress = replace(self.progress, in_memory_step=left)
            case "paused":
                self.running, self.rate = 0, 0.0
                self.progress = replace(self.progress, in_memory_step=0)  # no process of the task is left
            case "in_memory" | "on_disk" | "copied" as where:
                self._keep(where, int(message["step"]))
            case "report":
                self._report(message)
            case "done" if message.get("total") is not None:  # work since the last report that arrived
                samples = max(self.progress.samples, float(message["total"]))
                step = max(self.progress.step, int(message["step"]))
                self._add_progress(replace(self.progress, samples=samples, step=step))
        if self.kind and not self._by_kind:  # it has been running since before this daemon
            self._measure_on(self.kind)
        self.news |= self.measuring.on_message(dict(message))

    def _measure_on(self, kind: str) -> None:
        """Keep the measurements of each kind apart."""
        if kind:
            self.measuring = self._by_kind.setdefault(kind, self.measuring if not self._by_kind else SpeedMeasurement())

    def _keep(self, where: str, step: int) -> None:
        if where == "copied":
            self.copied_step = step
        elif where == "in_memory":
            self.progress = replace(self.progress, in_memory_step=step)
        else:
            self.progress = replace(self.progress, committed_step=max(self.progress.committed_step, step))

    def _report(self, message: Mapping[str, Any]) -> None:
        step, samples, t = int(message["step"]), int(message["samples"]), float(message["t"])
        if self._line is not None and step == self._line[1] + 1 and t > self._line[0]:
            self._step_s = t - self._line[0]
            rate = samples / self._step_s
            rate = rate if isfinite(rate) else self.rate
            self.rate = rate if not self.rate else 0.8 * self.rate + 0.2 * rate
        self.starts, self.starting_since = 0, None
        self._line, self.reported_s = (t, step), float(message.get("received_at", t))
        self._add_progress(counted(self.progress, message, began_at_step=self._began_at_step))
        self.news |= message.get("noise") is not None

    def _add_progress(self, after: Progress) -> None:
        """Count new samples, weighted by their batch's statistical efficiency in the work done."""
        before, batch = self.progress, self.record.spec.batch
        if batch is not None and after.samples > before.samples:
            done = after.samples - before.samples
            counts = batch.efficiency(done / max(1, after.step - before.step), after.noise_scale)
            after = replace(after, equivalent_samples=before.done_samples + done * counts)
        self.progress = after

    def hold(
        self, nodes: tuple[str, ...], time_s: float, *, decided: bool = False, gone: AbstractSet[str] = frozenset()
    ) -> None:
        """Record the task's nodes after a decision, after ``gone`` nodes have left, or when it stops or waits."""
        if nodes == self.held:
            return
        changes: dict[str, Any] = {"node_s": self._node_s(time_s)}
        if self.progress.started_s is None:
            changes["started_s"] = time_s
        if self.held and decided:
            changes["rescales"] = self.progress.rescales + 1
        elif gone and not gone.isdisjoint(self.held):
            changes["preemptions"] = self.progress.preemptions + 1
        self.progress = replace(self.progress, **changes)
        self.held, self.held_since_s = nodes, time_s
        if not nodes:
            self.starting_since = None

    def _node_s(self, time_s: float) -> float:
        return self.progress.node_s + len(self.held) * (time_s - self.held_since_s)

    def advance_to(self, time_s: float) -> Progress:
        """Update the progress to this time, maybe before the last update: decisions count from their request on."""
        if self.held:
            self.progress = replace(self.progress, node_s=self._node_s(time_s))
        self.held_since_s = time_s
        return self.progress

    def speed(self, time_s: float) -> float:
        """Return the current samples/s, as far as they are known."""
        if not self.rate or not self.held:
            return 0.0
        fresh_s = max(_FRESH_S, _FRESH_STEPS * self._step_s)
        return self.rate if time_s - self.reported_s < fresh_s else 0.0

    @property
    def speeds(self) -> dict[int, float]:
        """All measured speeds on the present kind, from before a restart and since."""
        before = self.progress.speeds_of.get(self.kind, {}) if self.kind else self.progress.speeds
        return {**before, **self.measuring.speeds()}

    @property
    def speeds_of(self) -> Mapping[str, Mapping[int, float]]:
        """The measured speeds by kind, of a task with speeds by kind."""
        now = {kind: measuring.speeds() for kind, measuring in self._by_kind.items()}
        found = {
            kind: {**self.progress.speeds_of.get(kind, {}), **now.get(kind, {})}
            for kind in {**self.progress.speeds_of, **now}
        }
        return {kind: speeds for kind, speeds in found.items() if speeds}

    @property
    def settled(self) -> frozenset[int]:
        """The sizes with a reliable measured speed."""
        return self.measuring.settled().union(() if self.kind else self.progress.settled)

    def learn(
        self, spec: TaskSpec, time_s: float, longest_start_s: float = inf, ratios: Mapping[str, float] = NOTHING
    ) -> TaskMeasured | None:
        """Return measurements for the decision core; ``None`` if they would change no decision.

        An unfinished start costs at least its current duration, up to ``longest_start_s``. On kinds where the task was
        not measured yet, it is assumed to be faster than on its kind by ``ratios`` (default: equally fast).
        """
        if not (self.news or self.starting_since) or time_s - self.learned_s < _LEARN_EVERY_S:
            return None
        self.news, self.learned_s = False, time_s
        costs = {**self.progress.costs, **{str(change): cost for change, cost in self.measuring.costs().items()}}
        self.progress = replace(
            self.progress,
            speeds=self.speeds,
            speeds_of=self.speeds_of,
            settled=tuple(sorted(self.settled)),
            costs=costs,
        )
        stated = None if self.record.guessed else self.record.spec.curve_on(self.kind)
        curve = speed_estimates.curve(self.speeds, stated, spec.max_nodes)
        if curve is not None and (
            self.batch_decided
            or not speed_estimates.is_significant_change(spec.curve_on(self.kind), curve, spec.max_nodes)
        ):
            curve = None
        changed: dict[str, Any] = {}
        if self.starting_since is not None:
            so_far_s = min(time_s - self.starting_since, longest_start_s, _LONGEST_START_S)
            costs["start"] = max(spec.start_cost_s, so_far_s)
        for name in ("grow_cost_s", "shrink_cost_s", "start_cost_s"):
            before, after = getattr(spec, name), costs.get(name.removesuffix("_cost_s"))
            if after is not None and abs(after - before) > max(_COST_NEWS_S, _COST_NEWS * max(before, after)):
                changed[name] = after
        if (noise := self._changed_noise(spec)) is not None:
            changed["noise_scale"] = noise
        if curve is None and not changed:
            return None
        if curve is not None and spec.curves:
            changed["curves"] = self._on_kinds(spec.curves, curve, ratios)
        return TaskMeasured(time_s=time_s, task=self.record.name, curve=curve, **changed)

    def _on_kinds(
        self, known: Mapping[str, SpeedCurve], curve: SpeedCurve, ratios: Mapping[str, float]
    ) -> dict[str, SpeedCurve]:
        """Return the curves by kind: the measured one, and if no speed was stated, estimates for unmeasured kinds."""
        found = {**known, self.kind: curve} if self.kind else dict(known)
        if self.record.guessed:
            for kind in known.keys() - self.speeds_of.keys() - {self.kind}:
                rates = (rate * ratios.get(kind, 1.0) for rate in curve.rate)
                found[kind] = SpeedCurve(nodes=curve.nodes, rate=tuple(rates))
        return found

    def _changed_noise(self, spec: TaskSpec) -> float | None:
        """Return the noise scale if decisions use it, and it differs from the value they used last."""
        noise = self.progress.noise_scale
        if noise is None or spec.batch is None:
            return None
        before = spec.batch.noise_scale
        return noise if abs(noise - before) > _NOISE_NEWS * max(noise, before) else None

    def size_to_run(self) -> int | None:
        """Return the size to run at to measure all speeds; ``None``: all its nodes."""
        if not self.record.guessed or not self.held:
            return None
        size = speed_estimates.size_to_measure(len(self.held), self.record.spec.min_nodes, self.settled)
        return None if size == len(self.held) else size


def counted(progress: Progress, message: Mapping[str, Any], *, began_at_step: int | None = None) -> Progress:
    """Return the progress of a task after a report; the sum of samples never decreases.

    ``began_at_step`` is the step at which the first processes of the task started, if known.
    """
    step, samples, total = int(message["step"]), int(message["samples"]), message.get("total")
    since = int(message.get("since") or 0)
    from_the_beginning = total is not None and since == 0
    if total is None:
        after = replace(progress, samples=progress.samples + samples, counted_since=None)
    elif from_the_beginning:
        after = replace(progress, samples=max(progress.samples, float(total)), counted_since=None)
    else:
        after = _with_difference(progress, step, since, float(total))
    if step <= progress.step:  # done before: only the sum is remembered, for the next line to be compared with
        return replace(after, samples=progress.samples)
    if progress.earlier_samples is None:
        earlier = _earlier(progress, after, step, samples, began_at_step) if from_the_beginning else 0.0
        after = replace(after, earlier_samples=earlier)
    loss = message.get("loss")
    after = replace(after, noise_scale=_smoothed(progress.noise_scale, message.get("noise")))
    return replace(after, step=step, loss=progress.loss if loss is None else float(loss))


def _smoothed(before: float | None, reported: float | None) -> float | None:
    """Return the noise scale after a report: single estimates scatter widely."""
    if reported is None:
        return before
    return float(reported) if before is None else (1.0 - _NOISE_WEIGHT) * before + _NOISE_WEIGHT * float(reported)


def _with_difference(progress: Progress, step: int, since: int, total: float) -> Progress:
    """Add the work since the last line with equal ``since``, or since step ``since``.

    Steps that were already counted, for example when repeated after a restart, are not added again. Steps between the
    last known step and ``since`` belong to a process whose last lines were lost; they are assumed to have average size.
    """
    first, before, stride = since, 0.0, progress.report_stride
    if since == progress.counted_since and progress.counted_step < step:
        first, before = progress.counted_step, progress.counted_total
        stride = min(stride or step - first, step - first)
    done, steps = max(0.0, total - before), step - first
    if first < progress.step < step:
        done *= (step - progress.step) / steps
    elif first == since and 0 < progress.step < step:
        # A script that reports every tenth step may be nine steps ahead of its reports
        ahead = max(1, stride) - 1
        done += done / (steps + ahead) * max(0, since - progress.step - ahead)
    return replace(
        progress,
        samples=progress.samples + done,
        counted_since=since,
        counted_step=step,
        counted_total=total,
        report_stride=stride,
    )


def _earlier(before: Progress, after: Progress, step: int, samples: int, began_at_step: int | None) -> float:
    """Return the samples that were done in the task's folder before this task."""
    if before.samples or before.step or step <= 1:
        return 0.0
    others = max(0.0, after.samples - samples)  # all samples except this step's
    return others if began_at_step is None else others * min(1.0, max(0, began_at_step) / (step - 1))


Tell = Callable[[dict[str, Any]], None]
_DEFAULT_STALL_LIMIT_S: Final = 1800.0  # default for jobs without a setting


class LauncherPool:
    """The launchers in use, each made for its first task. ``hub`` may be ``None`` where agents are not used."""

    def __init__(self, tell: Tell, hub: AgentHub | None, site: SiteSettings) -> None:
        self._tell = tell
        self._hub = hub
        self._site = site
        self._launchers: dict[str, Launcher] = {}
        self._making = Lock()
        self._by_task: dict[str, Launcher] = {}  # task -> its launcher
        # node to vacate gracefully -> the task on it, and since when (monotonic)
        self._lingering: dict[str, tuple[str, float]] = {}

    def add(self, record: LiveTaskRecord) -> None:
        """Register a task with its launcher. May take a moment, as a folder is made. From any thread."""
        where = f"task '{record.name}'"
        launcher = self.launcher(record.launcher)
        try:
            launcher.add(record.name, _job(record, self._site))
        except ElasticError as error:
            raise BadInput(error.what, where=error.where or where, fix=error.fix) from error
        except OSError as error:
            raise BadInput(f"its folder cannot be made: {error}", where=where) from error
        self._by_task[record.name] = launcher

    def drop(self, task: str) -> None:
        """Forget a finished task."""
        launcher = self._by_task.pop(task, None)
        if launcher is not None:
            launcher.drop(task)

    def call(self, task: str, method: str, value: object) -> None:
        """Call an optional method of a task's launcher, ``narrow`` or ``set_batch``."""
        if (optional := getattr(self._by_task.get(task), method, None)) is not None:
            optional(task, value)

    def carry_out(self, actions: Iterable[Action], *, vacating: Collection[str] = ()) -> None:
        """Carry out actions without blocking. Nodes in ``vacating`` are vacated as in a planned change."""
        remaining: list[Action] = []
        for action in actions:
            if vacating and isinstance(action, Release):
                nodes = tuple(node for node in action.nodes if node not in vacating)
                remaining += [Release(nodes=nodes)] if nodes else []
            else:
                remaining.append(action)
        orders, now = [wire.plain(action) for action in remaining], time.monotonic()
        for order in orders if vacating else ():
            if slow := set(order["nodes"]).intersection(vacating):
                order["cause"] = str(Cause.DECIDED)  # a planned change gets more time
                self._lingering.update(dict.fromkeys(slow, (order["task"], now)))
        self._apply(orders)

    def _apply(self, orders: Collection[dict[str, Any]]) -> None:
        """Pass orders to the launchers of their tasks, releases of nodes to all launchers."""
        for launcher in tuple(self._launchers.values()):
            if own := [order for order in orders if self._by_task.get(order.get("task", ""), launcher) is launcher]:
                launcher.apply(own)

    def establish(self, plan: Plan) -> None:
        """Report the plan to launchers after a restart: tasks continue on their nodes and stop on all other nodes."""
        tasks = [task for task in self._by_task if task not in plan.holdings]
        tasks += [task for task in plan.holdings if task in self._by_task]
        held = {task: list(plan.holdings.get(task, ())) for task in tasks}
        self._apply(
            [{"action": "start" if nodes else "stop", "task": task, "nodes": nodes} for task, nodes in held.items()]
        )

    def keep(self, nodes: Iterable[str]) -> None:
        """Cancel the vacating of nodes that are ours again."""
        for node in nodes:
            self._lingering.pop(node, None)

    def clear(self, nodes: Collection[str]) -> None:
        """Clear nodes immediately that were being vacated gracefully."""
        hurried = [node for node in nodes if self._lingering.pop(node, None) is not None]
        if hurried:
            self._apply([{"action": "release", "nodes": hurried}])

    def vacated(self, task: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Record that a task has left nodes; return the nodes that were being vacated."""
        gone = tuple(node for node in nodes if self._lingering.get(node, ("", 0.0))[0] == task)
        for node in gone:
            del self._lingering[node]
        return gone

    def overdue(self, patience_s: float) -> frozenset[str]:
        """Return nodes that are being vacated for longer than ``patience_s``, or whose task has been dropped."""
        latest = time.monotonic() - patience_s
        return frozenset(
            node for node, (task, since) in self._lingering.items() if since <= latest or task not in self._by_task
        )

    @property
    def lingering(self) -> frozenset[str]:
        """The nodes that tasks are still vacating."""
        return frozenset(self._lingering)

    def close(self) -> None:
        """Stop all processes. May take a while: must not be called in the event loop."""
        for launcher in tuple(self._launchers.values()):
            with suppress(Exception):  # the remaining ones must be closed anyway
                launcher.close()

    def launcher(self, name: str) -> Launcher:
        """Return the launcher of this name, made on first use."""
        with self._making:  # tasks in several threads share one launcher
            found = self._launchers.get(name)
            if found is None:
                where = f"launcher '{name}'"
                make = registry.load("launcher", name)
                try:
                    found = make(self._tell, self._hub)
                except (BftrainError, ElasticError):
                    raise
                except Exception as error:
                    raise BrokenPlugin(f"cannot be made: {type(error).__name__}: {error}", where=where) from error
                self._launchers[name] = found
            return found


def _job(record: LiveTaskRecord, site: SiteSettings) -> dict[str, Any]:
    """Return the job as a launcher takes it, without empty entries, which older launchers may not know."""
    run, environment = record.run, environment_of(record.run, dict(site.environments), site.environment)
    limit_s = site.times.stall_s if run.stall_limit_s is None else run.stall_limit_s
    optional = {
        "finish_code": run.finish_code,
        "finish_file": run.finish_file or None,
        "work_samples": record.spec.work_samples,
        "stall_limit_s": None if limit_s == _DEFAULT_STALL_LIMIT_S else limit_s,
        "setup": environment.setup or None,
        "prefix": environment.prefix or None,
        "python": environment.python or None,
    }
    job: dict[str, Any] = {"argv": run.argv, "folder": run.folder, "cwd": run.cwd, "env": run.env}
    job |= {"stop_grace_s": run.stop_grace_s, "workers_per_node": run.workers_per_node}
    job["identity"] = f"{record.number} {record.submitted_s!r}"  # a new journal counts from 1 again
    return job | {name: value for name, value in optional.items() if value is not None}
