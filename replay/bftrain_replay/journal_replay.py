"""A journal as a log of idle nodes and tasks, and its replay: every step is decided again, and accounted for.

Log and tasks are replay inputs, so a site can test other settings on its own past. In the replay of a journal, sizes,
waits and node-time are the recorded ones. A journal does not record progress, so samples are computed from the curves.
The file of a live run also has the total that each task reported, to which its curve is then scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from itertools import chain, count

from msgspec.structs import replace

from bftrain.config import LiveSettings
from bftrain.errors import BadInput
from bftrain.journal import Journal
from bftrain.rerun import Difference, Rerun, RerunStep, readable_errors
from bftrain.values.actions import Action, Release
from bftrain.values.curve import ANY_KIND, OTHER_KIND, SpeedCurve
from bftrain.values.decision import Decision
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSubmitted,
)
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog, log_from_pool_changes
from bftrain_datasets.log.provenance import LogProvenance, ProvenanceSource
from bftrain_replay.run.result import result_of
from bftrain_replay.simulation.engine import Engine, EngineRun
from bftrain_replay.simulation.fixed_cluster import EndReason
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.rules import DecisionDelay, ReplayRules
from bftrain_replay.simulation.run_records import AllocationRecorder
from bftrain_replay.simulation.task_progress import TaskProgress
from bftrain_replay.simulation.unused_nodes import NodesByKind
from bftrain_replay.study.study import ReplayStudy, Watch, check_parts, study_of

_MEASURED = ("curve", "curves", "grow_cost_s", "shrink_cost_s", "start_cost_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvents:
    """A journal as a log and tasks. Task times count from the log's start.

    Tasks are ordered by submission, and have the curve and costs that were known last. A reused name gets a number;
    ``names`` are the latest names in the journal.
    """

    log: EventLog
    tasks: tuple[TaskSpec, ...]
    names: tuple[str, ...]

    def paced(self, paces: Mapping[str, float]) -> JournalEvents:
        """Return the same with tasks that are this many times as fast, by task name."""
        paced = []
        for spec in self.tasks:
            pace = paces.get(spec.name, 1.0)
            curves = {kind: curve.times(pace) for kind, curve in spec.curves.items()}
            paced.append(replace(spec, curve=spec.curve.times(pace), curves=curves))
        return dataclass_replace(self, tasks=tuple(paced))

    def with_work(self, work_samples: Mapping[str, float]) -> tuple[TaskSpec, ...]:
        """Return the tasks for a what-if replay, with the work that they turned out to have, by name."""
        return tuple(
            replace(spec, work_samples=work_samples[spec.name]) if work_samples.get(spec.name, 0.0) > 0.0 else spec
            for spec in self.tasks
        )


@dataclass(slots=True)
class _Reading:
    """The state after the events read so far."""

    max_failures: int
    # Pool changes: time, joined, left
    changes: list[tuple[float, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)  # latest kind of each node
    tasks: list[TaskSpec] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # index of each task, by current name
    taken: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)  # failures of each task, by current name

    def take_in(self, event: Event, moment_s: float) -> None:
        match event:
            case NodesJoined():
                self.changes.append((moment_s, event.nodes, ()))
                self.kinds.update(dict.fromkeys(event.nodes, event.kind))
            case NodesLeft():
                self.changes.append((moment_s, (), event.nodes))
            case TaskSubmitted() if event.spec.name not in self.places:
                self.places[event.spec.name] = len(self.tasks)
                self.names.append(event.spec.name)
                own = _unused_name(event.spec.name, self.taken)
                self.taken.add(own)
                self.tasks.append(replace(event.spec, name=own))
            case TaskMeasured() if event.task in self.places:
                self._measured(event)
            case TaskEdited() if event.task in self.places:
                self._edited(event)
            case TaskFinished() | TaskCancelled():
                self._forget(event.task)
            case TaskFailed() if event.task in self.places:
                self.failures[event.task] += 1
                if self.failures[event.task] >= self.max_failures:
                    self._forget(event.task)

    def _edited(self, event: TaskEdited) -> None:
        place = self.places[event.task]
        before, spec = self.tasks[place], event.spec
        least, most = min(before.min_nodes, spec.min_nodes), max(before.max_nodes, spec.max_nodes)
        # Sizes that it had before stay possible
        self.tasks[place] = replace(spec, name=before.name, min_nodes=least, max_nodes=most)
        if event.renamed and event.renamed not in self.places:
            self.places[event.renamed] = self.places.pop(event.task)
            self.failures[event.renamed] = self.failures.pop(event.task, 0)
            self.names[place] = event.renamed

    def _measured(self, event: TaskMeasured) -> None:
        place = self.places[event.task]
        known = {name: getattr(event, name) for name in _MEASURED if getattr(event, name) is not None}
        batch = self.tasks[place].batch
        if event.noise_scale is not None and batch is not None:
            known["batch"] = replace(batch, noise_scale=event.noise_scale)
        self.tasks[place] = replace(self.tasks[place], **known)

    def name_kinds(self, nodes: Iterable[str]) -> dict[str, str] | None:
        """Return the kind of every node, or ``None`` if no node has a kind.

        Nodes without a kind get one with an unused name, and tasks a curve for it: their speed stays the same.
        """
        kinds = {node: self.kinds.get(node, ANY_KIND) for node in nodes}
        named = {kind for kind in kinds.values() if kind != ANY_KIND}
        if not named:
            return None
        if ANY_KIND in kinds.values():
            other = _unused_name(OTHER_KIND, named.union(*(spec.curves for spec in self.tasks)))
            kinds = {node: kind or other for node, kind in kinds.items()}
            self.tasks = [_on_others(spec, other) for spec in self.tasks]
        return kinds

    def _forget(self, name: str) -> None:
        self.places.pop(name, None)
        self.failures.pop(name, None)


def _unused_name(name: str, used: Container[str]) -> str:
    """Return the name, with a number if it is used."""
    return next(each for each in chain((name,), (f"{name}-{number}" for number in count(2))) if each not in used)


def recorded(journal: Journal) -> JournalEvents:
    """Read a whole journal; raise ``BadInput`` if its first steps were removed."""
    if journal.first:
        what = f"steps 1 to {journal.first} were removed from the journal"
        fix = "name the oldest copy in the folder archive next to it, which starts at step 1"
        raise BadInput(what, where=str(journal.path), fix=fix)
    reading, begin_s, end_s = _Reading(journal.settings.max_failures), None, 0.0
    later = {stood.step: stood.settings.max_failures for stood in journal.restart_snapshots()}
    reading.max_failures = later.get(0, reading.max_failures)
    for step in journal.steps():
        if step.events:
            end_s = step.events[-1].time_s  # time after its last event
            begin_s = end_s if begin_s is None else begin_s
            for event in step.events:
                reading.take_in(event, end_s)
        end_s = step.decision.time_s if step.decision is not None else end_s
        reading.max_failures = later.get(step.number, reading.max_failures)
    if begin_s is None:
        raise BadInput("contains no event", where=str(journal.path))
    made_with = journal.settings_now
    if isinstance(made_with, LiveSettings) and made_with.policy:
        begin_s -= begin_s % made_with.round_s  # rounds of a simulation count from the start of the log
    provenance = LogProvenance(made_by="journal", sources=(ProvenanceSource.of(journal.path),))
    nodes = sorted({node for _, joined, left in reading.changes for node in (*joined, *left)})
    log = log_from_pool_changes(
        reading.changes,
        node_names=nodes,
        begin_s=begin_s,
        end_s=end_s,
        provenance=provenance,
        kinds=reading.name_kinds(nodes),
    )
    # Make task times count from the log's start
    moved = []
    for spec in reading.tasks:
        deadline_s = None if spec.deadline_s is None else spec.deadline_s - begin_s
        moved.append(replace(spec, submit_s=max(0.0, spec.submit_s - begin_s), deadline_s=deadline_s))
    return JournalEvents(log=log, tasks=tuple(moved), names=tuple(reading.names))


def _on_others(spec: TaskSpec, other: str) -> TaskSpec:
    """Return a task that runs on kind ``other`` as it does on nodes without a kind."""
    curve = spec.curve_on(ANY_KIND)
    if not spec.curves or curve is None:
        return spec
    named = {kind: of_kind for kind, of_kind in spec.curves.items() if kind != ANY_KIND}
    return replace(spec, curves={**named, other: curve})


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalReplay:
    """A replayed journal: as a study, and the decisions that differ from the recorded ones."""

    study: ReplayStudy
    steps: int
    differences: tuple[Difference, ...]


def rerun(
    journal: Journal,
    events: JournalEvents,
    *,
    baseline: str = "",
    reported: Mapping[str, float] | None = None,
    watch: Watch | None = None,
) -> JournalReplay:
    """Decide ``journal`` again, and replay its ``events`` as log and tasks without costs, and with ``baseline``.

    ``reported``: samples by task, as far as known; the task's curve is scaled to this sum.
    """
    made_with = journal.settings_now
    settings = ReplaySettings.of(made_with)
    parts = check_parts(settings, baseline)
    if isinstance(made_with, LiveSettings) and made_with.policy:
        settings = replace(settings, solver=made_with.policy)  # named as the decider in the figures
    if reported:
        # Speed ratio of each task to its curve, where known
        _, followed = process_steps(journal, events, decide_again=False)
        done = {task.spec.name: task.done_samples for task in followed.tasks if isinstance(task, TaskProgress)}
        known = {name: samples for name, samples in reported.items() if samples > 0.0 and done.get(name, 0.0) > 0.0}
        events = events.paced({name: samples / done[name] for name, samples in known.items()})
    engine, done_again = process_steps(journal, events, watch=watch)
    tasks = events.with_work(engine.work_samples)
    study = study_of(result_of(done_again, settings), events.log, tasks, parts, watch)
    return JournalReplay(study=study, steps=len(journal), differences=tuple(engine.differences))


def process_steps(
    journal: Journal, events: JournalEvents, *, decide_again: bool = True, watch: Watch | None = None
) -> tuple[JournalEngine, EngineRun]:
    """Process all steps of ``journal``, and decide them again or follow the recorded decisions."""
    engine = JournalEngine(journal, events, Rerun(journal, decide_again=decide_again), watch)
    return engine, engine.run()


class JournalEngine(Engine):
    """An engine whose moments are the steps of a journal."""

    def __init__(self, journal: Journal, events: JournalEvents, again: Rerun, watch: Watch | None) -> None:
        rules = ReplayRules(ReplaySettings.of(journal.settings_now).progress_kept)
        records = AllocationRecorder(events.log.node_names)
        super().__init__(events.log, events.tasks, again.harvester, rules, DecisionDelay(), None, records)
        self._path, self._again, self._watch = journal.path, again, watch
        self._present: dict[str, TaskProgress] = {}  # unfinished tasks by current name
        self.work_samples: dict[str, float] = {}  # samples done by each task that finished, was cancelled or failed
        self.differences: list[Difference] = []

    def _moments(self) -> tuple[float, EndReason]:
        """Process the steps; return the last moment, and ``UNTIL`` if that is the end of the log."""
        self._latest_s = 0.0
        for step in self._again.steps():
            with readable_errors(self._path, step.step):
                self._step(step)
            if step.difference is not None:
                self.differences.append(step.difference)
            if self._watch is not None and not self._watch("journal", self._latest_s, len(self._decisions)):
                break
        whole = self._latest_s >= self._log.span_s
        return self._latest_s, EndReason.UNTIL if whole else EndReason.INTERRUPTED

    def _step(self, again: RerunStep) -> None:
        events, decision = again.step.events, again.step.decision
        if events:
            now_s = self._move_to(events[-1].time_s)
            for event in events:
                self._happened(event, now_s)
            self._apply(again.at_once, now_s)
            # Drop tasks that were cancelled, or failed too often
            for name in [name for name in self._present if name not in self._again.harvester.unfinished]:
                task = self._present.pop(name)
                before = task.size
                task.drop(now_s)
                self._leave(task, before, now_s)
            waiting = UnusedReason.UNDECIDED if self._present else UnusedReason.NO_TASK
            self._open(now_s, {waiting: self._again.harvester.pool_size - self._used})
        if decision is not None:
            now_s = self._move_to(decision.time_s)
            self._decisions.add(decision, decision.solve_s)
            self._apply(decision.actions, now_s)
            self._open(now_s, self._why_unused(decision))

    def _move_to(self, time_s: float) -> float:
        self._latest_s = max(self._latest_s, time_s - self._log.start_s)
        self._harvest.sample_until(self._latest_s)
        return self._latest_s

    def _happened(self, event: Event, now_s: float) -> None:
        match event:
            case TaskSubmitted() if event.spec.name not in self._present:
                spec = self._specs[len(self._arrived)]
                task = self._rules.progress(spec, self._speeds_of(spec, spec.curve), now_s)
                task.losses = self._losses
                self._arrived[spec.name] = self._present[event.spec.name] = task
                self._unfinished += 1
            case TaskEdited() if event.task in self._present and event.renamed not in {"", *self._present}:
                self._present[event.renamed] = self._present.pop(event.task)
            case TaskFinished() if event.task in self._present:
                task = self._present.pop(event.task)
                task.advance_to(now_s)
                task.work_samples = task.done_samples  # all of its work is done, by definition
                self._finish(task, now_s)

    def _leave(self, task: TaskProgress, before: int, now_s: float) -> None:
        super()._leave(task, before, now_s)
        self.work_samples[task.spec.name] = task.done_samples

    def _apply(self, actions: Iterable[Action], now_s: float) -> None:
        """Carry out the actions on unfinished tasks, under their names in the log."""
        found = [action for action in actions if not isinstance(action, Release) and action.task in self._present]
        super()._apply([replace(action, task=self._present[action.task].spec.name) for action in found], now_s)
        self._harvest.note(*self._changed)
        self._changed.clear()

    def _curve_on(self, spec: TaskSpec, kind: str) -> SpeedCurve:
        return spec.curve_on(kind) or spec.curve  # the kind's curve may have been measured later

    def _common_kind(self, nodes: Sequence[str]) -> str:
        return self._log.kind_of[nodes[0]]  # kinds may have changed during the run

    def _open(self, now_s: float, unused: dict[UnusedReason, int]) -> None:
        # The harvester has already applied the whole step; the intermediate holders are known only here
        self._ledger.open(now_s, self._again.harvester.pool_size, self._used, unused)

    def _why_unused(self, decision: Decision) -> dict[UnusedReason, int]:
        self._pool = self._again.harvester.pool_size
        if self._kinds is not None:
            holding = ((task, self._kind[task.spec.name]) for task in self._present.values() if task.size)
            self._kinds = NodesByKind.counted(self._log, self._again.harvester.pool, holding)
        names = {name: task.spec.name for name, task in self._present.items()}
        return self._unused({names.get(name, name): size for name, size in decision.sizes.items()})
