"""The events of a journal, as a log of idle nodes and the tasks.

Both are replay inputs, so a site can test other settings on its own past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from itertools import chain, count

from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.journal import Journal
from bftrain.values.curve import ANY_KIND, OTHER_KIND, SpeedCurve
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
from bftrain_datasets.log.builder import log_from_pool_changes
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.provenance import LogProvenance, ProvenanceSource

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
    kinds: dict[str, str] = field(default_factory=dict)  # latest node kind by task
    tasks: list[TaskSpec] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # index of each task, by current name
    times: Counter[str] = field(default_factory=Counter)
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
                own = event.spec.name
                while own in self.taken:
                    self.times[event.spec.name] += 1
                    own = f"{event.spec.name}-{self.times[event.spec.name] + 1}"
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
        what = f"steps 1 to {journal.first} were removed, and stand in a copy in its folder archive"
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
