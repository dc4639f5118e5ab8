"""A journal as a log of idle nodes and tasks, and its replay: every step is decided again, and accounted for.

Log and tasks are replay inputs, so a site can test other settings on its own past. In the replay of a journal, sizes,
waits and node-time are the recorded ones. A journal contains decisions, and only the sum of a task's reports. Samples
are therefore computed from the curves, scaled to this sum where known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from itertools import chain, count
from time import perf_counter

from msgspec.structs import replace

from bftrain.config import LiveSettings
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput
from bftrain.journal import Journal
from bftrain.rerun import Difference, Rerun, RerunStep, readable_errors
from bftrain.values.actions import Action, Release, Start
from bftrain.values.curve import ANY_KIND, OTHER_KIND, SpeedCurve
from bftrain.values.decision import Decision
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSubmitted,
)
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog, log_from_pool_changes
from bftrain_datasets.log.provenance import LogProvenance, ProvenanceSource
from bftrain_replay.run.result import result_of
from bftrain_replay.simulation.engine import EngineRun, pools_at
from bftrain_replay.simulation.node_time_ledger import PLAIN, HarvestOverTime, Ledger, UnusedReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.rules import ReplayRules
from bftrain_replay.simulation.run_records import AllocationRecorder, DecisionColumns
from bftrain_replay.simulation.task_progress import LossTimes, TaskProgress, carry_out
from bftrain_replay.simulation.unused_nodes import NodesByKind, why_unused
from bftrain_replay.study.study import ReplayStudy, Watch, check_parts, study_of

_MEASURED = ("curve", "curves", "grow_cost_s", "shrink_cost_s", "start_cost_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvents:
    """A journal as a log and tasks. Task times count from the log's start.

    Tasks are ordered by submission. A task has the curve and costs that were known last. A reused name has a number
    appended; ``names`` are those in the journal.
    """

    log: EventLog
    tasks: tuple[TaskSpec, ...]
    names: tuple[str, ...]

    def paced(self, paces: Mapping[str, float]) -> JournalEvents:
        """Return the same with tasks that are this many times as fast, by name."""

        def at_pace(curve: SpeedCurve, pace: float) -> SpeedCurve:
            return SpeedCurve(nodes=curve.nodes, rate=tuple(rate * pace for rate in curve.rate))

        paced = []
        for spec in self.tasks:
            pace = paces.get(spec.name, 1.0)
            curves = {kind: at_pace(curve, pace) for kind, curve in spec.curves.items()}
            paced.append(replace(spec, curve=at_pace(spec.curve, pace), curves=curves))
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
    places: dict[str, int] = field(default_factory=dict)  # index of each task, by name
    times: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)  # failures of each task, by name

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
                own = event.spec.name
                while own in self.taken:
                    self.times[event.spec.name] += 1
                    own = f"{event.spec.name}-{self.times[event.spec.name] + 1}"
                self.taken.add(own)
                self.tasks.append(replace(event.spec, name=own))
            case TaskMeasured() if event.task in self.places:
                self._measured(event)
            case TaskFinished() | TaskCancelled():
                self._forget(event.task)
            case TaskFailed() if event.task in self.places:
                self.failures[event.task] += 1
                if self.failures[event.task] >= self.max_failures:
                    self._forget(event.task)

    def _measured(self, event: TaskMeasured) -> None:
        place = self.places[event.task]
        known = {name: getattr(event, name) for name in _MEASURED if getattr(event, name) is not None}
        batch = self.tasks[place].batch
        if event.noise_scale is not None and batch is not None:
            known["batch"] = replace(batch, noise_scale=event.noise_scale)
        self.tasks[place] = replace(self.tasks[place], **known)

    def tell_kinds(self, nodes: Iterable[str]) -> dict[str, str] | None:
        """Return the kind of every node, if nodes have kinds.

        Nodes without a kind then get a kind with an unused name, on which tasks keep their speed.
        """
        kinds = {node: self.kinds.get(node, ANY_KIND) for node in nodes}
        named = {kind for kind in kinds.values() if kind != ANY_KIND}
        if not named:
            return None
        if ANY_KIND in kinds.values():
            taken = named.union(*(spec.curves for spec in self.tasks))
            names = chain((OTHER_KIND,), (f"{OTHER_KIND}-{number}" for number in count(2)))
            other = next(name for name in names if name not in taken)
            kinds = {node: kind or other for node, kind in kinds.items()}
            self.tasks = [_on_others(spec, other) for spec in self.tasks]
        return kinds

    def _forget(self, name: str) -> None:
        self.places.pop(name, None)
        self.failures.pop(name, None)


def recorded(journal: Journal) -> JournalEvents:
    """Read a whole journal; raise ``BadInput`` if the files with its first steps are gone."""
    if journal.first:
        what = f"steps 1 to {journal.first} were removed from the journal; a copy is in its folder archive"
        raise BadInput(what, where=str(journal.path), fix="put them back, or take a journal that has them")
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
    if isinstance(made_with, LiveSettings) and made_with.policy:  # rounds of a simulation start with the log
        begin_s -= begin_s % made_with.round_s
    provenance = LogProvenance(made_by="journal", sources=(ProvenanceSource.of(journal.path),))
    nodes = sorted({node for _, joined, left in reading.changes for node in (*joined, *left)})
    log = log_from_pool_changes(
        reading.changes,
        node_names=nodes,
        begin_s=begin_s,
        end_s=end_s,
        provenance=provenance,
        kinds=reading.tell_kinds(nodes),
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
class JournalPass:
    """The result of the steps; ``work_samples`` are the finished tasks' samples by their curves."""

    run: EngineRun
    work_samples: Mapping[str, float]
    differences: tuple[Difference, ...]


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
        settings = replace(settings, solver=made_with.policy)
    if reported:
        # Speed ratio of each task to its curve, where known
        followed = process_steps(journal, events, decide_again=False).run.tasks
        done = {task.spec.name: task.done_samples for task in followed if isinstance(task, TaskProgress)}
        known = {name: samples for name, samples in reported.items() if samples > 0.0 and done.get(name, 0.0) > 0.0}
        events = events.paced({name: samples / done[name] for name, samples in known.items()})
    gone = process_steps(journal, events, watch=watch)
    tasks = events.with_work(gone.work_samples)
    study = study_of(result_of(gone.run, settings), events.log, tasks, parts, watch)
    return JournalReplay(study=study, steps=len(journal), differences=gone.differences)


def process_steps(
    journal: Journal, events: JournalEvents, *, decide_again: bool = True, watch: Watch | None = None
) -> JournalPass:
    """Process all steps of ``journal``, and decide them again or follow the recorded decisions."""
    again = Rerun(journal, decide_again=decide_again)
    rules = ReplayRules(ReplaySettings.of(journal.settings_now).progress_kept)
    accounts = _JournalAccounts(events, again.harvester, rules)
    differences = []
    begun = perf_counter()
    for step in again.steps():
        accounts.harvester = again.harvester  # replaced at a change of the settings
        with readable_errors(journal.path, step.step):
            accounts.step(step)
        if step.difference is not None:
            differences.append(step.difference)
        if watch is not None and not watch("journal", accounts.now_s, len(accounts.decisions)):
            break
    run = accounts.close(perf_counter() - begun)
    return JournalPass(run=run, work_samples=accounts.work_samples, differences=tuple(differences))


@dataclass(slots=True)
class _JournalAccounts:
    """The accounts of the steps processed so far. Times are seconds since the log's start."""

    events: JournalEvents
    harvester: Harvester
    rules: ReplayRules
    now_s: float = 0.0
    decisions: DecisionColumns = field(default_factory=DecisionColumns)
    work_samples: dict[str, float] = field(default_factory=dict)  # samples of each finished task
    _ledger: Ledger = field(init=False)
    _allocations: AllocationRecorder = field(init=False)
    _harvest: HarvestOverTime = field(init=False)
    _losses: LossTimes = field(default_factory=LossTimes)
    _tasks: list[TaskProgress] = field(default_factory=list)  # order of submission
    _present: dict[str, TaskProgress] = field(default_factory=dict)  # unfinished tasks by current name
    _kind: dict[str, str] = field(default_factory=dict)  # kind of a task's latest nodes, where nodes have kinds

    def __post_init__(self) -> None:
        self._ledger = Ledger(UnusedReason if self.events.log.kind_names else PLAIN)
        self._allocations = AllocationRecorder(self.events.log.node_names)
        self._harvest = HarvestOverTime(self.events.log.span_s)
        self._ledger.open(0.0, 0, 0, {})

    def step(self, again: RerunStep) -> None:
        """Account for a step."""
        events, decision = again.step.events, again.step.decision
        if events:
            self._move_to(events[-1].time_s)
            for event in events:
                self._happened(event)
            self._carry_out(again.at_once)
            # Drop tasks that were cancelled, or failed too often
            for name in set(self._present).difference(self.harvester.unfinished):
                task = self._present.pop(name)
                task.drop(self.now_s)
                self._over(task)
            self._open(None)
        if decision is not None:
            self._move_to(decision.time_s)
            self.decisions.add(decision, decision.solve_s)
            self._carry_out(decision.actions)
            self._open(decision)

    def close(self, wall_s: float) -> EngineRun:
        """Return the run."""
        now_s = self.now_s
        complete = now_s >= self.events.log.span_s
        self._harvest.sample_until(now_s)
        for task in self._present.values():
            task.advance_to(now_s)
        self._allocations.close(now_s)
        self._harvest.close(now_s)
        self._ledger.close(now_s)
        self._ledger.check(self.events.log, (task.node_s for task in self._tasks))
        return EngineRun(
            complete=complete,
            tasks=(*self._tasks, *self.events.tasks[len(self._tasks) :]),
            ledger=self._ledger,
            decisions=self.decisions,
            harvest=self._harvest,
            losses=self._losses,
            pools=pools_at(self.events.log, self._ledger.times_s),
            wall_s=wall_s,
            allocations=self._allocations,
        )

    def _move_to(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s - self.events.log.start_s)
        self._harvest.sample_until(self.now_s)

    def _happened(self, event: Event) -> None:
        match event:
            case TaskSubmitted() if event.spec.name not in self._present:
                spec = self.events.tasks[len(self._tasks)]
                largest = min(spec.max_nodes, len(self.events.log.node_names))
                task = self.rules.progress(spec, spec.curve.speeds(largest).tolist(), self.now_s)
                task.losses = self._losses
                self._tasks.append(task)
                self._present[event.spec.name] = task
            case TaskFinished() if event.task in self._present:
                task = self._present.pop(event.task)
                task.advance_to(self.now_s)
                task.work_samples = task.done_samples  # all of its work is done, by definition
                task.finish(self.now_s)
                self._over(task)

    def _over(self, task: TaskProgress) -> None:
        self.work_samples[task.spec.name] = task.done_samples
        self._harvest.note(task)
        self._allocations.end(task.spec.name, self.now_s)

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            task = None if isinstance(action, Release) else self._present.get(action.task)
            if task is None or isinstance(action, Release):
                continue  # a task that has just finished loses no work
            if isinstance(action, Start) and self.events.log.kind_names:
                kind = self.events.log.kind_of[action.nodes[0]]
                self._kind[task.spec.name] = kind
                curve = task.spec.curve_on(kind) or task.spec.curve
                task.set_speeds(curve.speeds(min(task.spec.max_nodes, len(self.events.log.node_names))).tolist(), kind)
            carry_out(task, action, self.now_s)
            self._allocations.act(replace(action, task=task.spec.name), self.now_s)
            self._harvest.note(task)

    def _open(self, decision: Decision | None) -> None:
        # The harvester has already applied the whole step; the intermediate holders are known only here
        pool, holding = self.harvester.pool_size, [task for task in self._present.values() if task.size]
        used = sum(task.size for task in holding)
        if decision is None:
            reason = UnusedReason.UNDECIDED if self._present else UnusedReason.NO_TASK
            self._ledger.open(self.now_s, pool, used, {reason: pool - used})
            return
        if self.events.log.kind_names:
            kinds = ((task, self._kind[task.spec.name]) for task in holding)
            standing = NodesByKind.standing(self.events.log, self.harvester.pool, kinds)
            why = standing.why_unused(decision.sizes, unfinished=len(self._present), task_of=self._present.__getitem__)
            self._ledger.open(self.now_s, pool, used, why)
            return
        unused = why_unused(
            pool - used,
            room=sum(task.spec.max_nodes for task in holding) - used,
            sizes=decision.sizes,
            running=len(holding),
            unfinished=len(self._present),
            spec_of=lambda name: self._present[name].spec,
        )
        self._ledger.open(self.now_s, pool, used, unused)
