"""TaskTable: the unfinished tasks with their nodes, totals so far, and descriptions for decisions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from bftrain.deciding.goodput import by_progress
from bftrain.deciding.node_stay import CostFit, costs_of
from bftrain.node_units import host_of
from bftrain.values.curve import ANY_KIND
from bftrain.values.events import TaskMeasured
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec
from bftrain.values.wire import unchecked

if TYPE_CHECKING:
    from bftrain.values.curve import SpeedCurve


_MOST_DESCRIPTIONS: Final = 64  # limit per task


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The submission time, and the totals until ``since_s``: node-seconds, and samples according to the curve.

    ``started_s`` is the time of the last start, recorded only if tasks take turns. Times are on the clock of the
    events. Rescaling costs are not deducted.
    """

    submitted_s: float
    since_s: float
    held_node_s: float = 0.0
    done_samples: float = 0.0
    started_s: float = 0.0  # missing in journals of earlier versions

    def until(self, now_s: float, size: int, speed: float) -> TaskHistory:
        """Return the totals at ``now_s``, after holding ``size`` nodes at ``speed`` samples/s since ``since_s``."""
        passed_s = now_s - self.since_s
        if passed_s <= 0.0:
            return self
        held_node_s, done_samples = self.held_node_s + passed_s * size, self.done_samples + passed_s * speed
        return replace(self, since_s=now_s, held_node_s=held_node_s, done_samples=done_samples)


def speed_at(curve: SpeedCurve, size: int) -> float:
    """Return the curve's speed at one size. Called at every change, and several times as fast as numpy."""
    place = bisect_left(curve.nodes, size)
    if place == len(curve.nodes):
        return curve.rate[-1]
    above, fastest = curve.nodes[place], curve.rate[place]
    below, slowest = (curve.nodes[place - 1], curve.rate[place - 1]) if place else (0, 0.0)
    return slowest + (fastest - slowest) * (size - below) / (above - below)


@dataclass(slots=True)
class TaskEntry:
    """An unfinished task with its nodes (node -> group), all of the same ``kind``, and its history."""

    spec: TaskSpec
    past: TaskHistory
    held: dict[str, int] = field(default_factory=dict)
    kind: str = ANY_KIND
    failures: int = 0
    work_left_samples: float | None = None
    paused: bool = False
    chooses_batch: bool = False  # whether decisions choose its batch; its speed is then the progress at the best batch
    place_of: Callable[[str], str] = host_of
    expected: tuple[CompetingTask, CompetingTask] | None = None  # original, and copy with expected speeds
    # Descriptions by cost fit, size and kind, which recur: the same object each time
    _descriptions: dict[tuple[CostFit | None, int, str], CompetingTask] = field(default_factory=dict)
    _checked: CompetingTask | None = None  # built from ``spec``; later descriptions are modified copies
    _speed: float | None = None
    _nodes: tuple[str, ...] | None = None
    _by_progress: TaskSpec | None = None

    @property
    def decided(self) -> TaskSpec:
        """The task as described to decisions: by progress if they choose its batch."""
        if not self.chooses_batch or self.spec.batch is None:
            return self.spec
        if self._by_progress is None:
            self._by_progress = by_progress(self.spec)
        return self._by_progress

    @property
    def size(self) -> int:
        """The number of allocated nodes."""
        return len(self.held)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The allocated nodes: the same object until they change."""
        if self._nodes is None:
            self._nodes = tuple(self.held)
        return self._nodes

    @property
    def speed(self) -> float:
        """Samples/s on the current nodes."""
        if self._speed is None:
            curve = self.decided.curve_on(self.kind) if self.held else None
            self._speed = 0.0 if curve is None else speed_at(curve, len(self.held))
            if self.decided.spread is not None:
                places = len(set(map(self.place_of, self.held)))
                self._speed = self.decided.spread.speed(len(self.held), places, self._speed, self.kind)
        return self._speed

    def advance_to(self, now_s: float) -> None:
        """Add the totals until now to the history; call before the nodes or the speed change."""
        if now_s > self.past.since_s:
            self.past = self.past.until(now_s, len(self.held), self.speed)
        self._speed = self._nodes = None

    def replace_spec(self, spec: TaskSpec, now_s: float) -> None:
        """Change the description; finished work stays finished."""
        self.advance_to(now_s)
        self.spec = spec
        self._checked = self._by_progress = None
        self._descriptions.clear()

    def measured(self, event: TaskMeasured, *, recount: bool = False) -> None:
        """Apply new measurements; ``recount`` corrects the samples so far, which are estimates by the former curve."""
        before, spec = self._least_speed, self.spec
        known = {
            name: value
            for name in ("curve", "curves", "grow_cost_s", "shrink_cost_s", "start_cost_s")
            if (value := getattr(event, name)) is not None
        }
        if event.noise_scale is not None and spec.batch is not None:
            known["batch"] = replace(spec.batch, noise_scale=event.noise_scale)
        self.replace_spec(replace(spec, **known) if known else spec, event.time_s)
        if event.work_left_samples is not None:
            self.work_left_samples = event.work_left_samples
        if recount and before > 0.0 and (after := self._least_speed) > 0.0 and after != before:
            self.past = replace(self.past, done_samples=self.past.done_samples * after / before)

    @property
    def _least_speed(self) -> float:
        """Samples/s at the minimum size, on the current kind of nodes."""
        curve = self.decided.curve_on(self.kind) or self.decided.curve
        return speed_at(curve, self.spec.min_nodes)

    def competing(
        self, time_s: float, *, history: bool = False, turn_s: float = 0.0, fit: CostFit | None = None
    ) -> CompetingTask:
        """Return the task's description for a decision at ``time_s``; cached until something changes.

        With ``history`` it includes the totals so far; with ``fit`` its costs are fitted to the stay of nodes. A turn
        is ``turn_s`` of work, plus work for the duration of a start, plus the start.
        """
        seen = None if history else self._descriptions.get((fit, len(self.held), self.kind))
        if seen is not None:
            return seen
        spec, size = self.spec, len(self.held)
        kind = self.kind if size else ANY_KIND
        had = self.past.until(time_s, size, self.speed) if history else None
        grow_cost_s, shrink_cost_s, start_cost_s = costs_of(spec, fit)
        changing: dict[str, object] = {
            "size": size,
            "kind": kind,
            "grow_cost_s": grow_cost_s,
            "shrink_cost_s": shrink_cost_s,
            "start_cost_s": start_cost_s,
            "deadline_in_s": None if spec.deadline_s is None else spec.deadline_s - time_s,
            "age_s": max(0.0, time_s - had.submitted_s) if had else 0.0,
            "held_node_s": had.held_node_s if had else 0.0,
            "done_samples": had.done_samples if had else 0.0,
            "turn_s": turn_s + 2.0 * spec.start_cost_s if had and turn_s and size else 0.0,
            "tenure_s": time_s - had.started_s if had and turn_s and size else 0.0,
        }
        if self._checked is None:
            seen_spec = self.decided
            self._checked = CompetingTask(
                name=spec.name,
                min_nodes=spec.min_nodes,
                max_nodes=spec.max_nodes,
                curve=seen_spec.curve,
                curves=seen_spec.curves,
                user=spec.user,
                weight=spec.weight,
                batch=seen_spec.batch,
                work_left_samples=self.work_left_samples,
                **changing,  # type: ignore[arg-type]  # each is of its field's type
            )
        seen = unchecked(self._checked, **changing)  # computed here, within bounds
        if spec.deadline_s is None and not history:
            if len(self._descriptions) >= _MOST_DESCRIPTIONS:
                self._descriptions.clear()
            self._descriptions[fit, size, self.kind] = seen
        return seen


class TaskTable(dict[str, TaskEntry]):
    """Unfinished tasks by submission, and the owner of every allocated node.

    ``now_s`` is the present time, set by the caller.
    """

    def __init__(self, place_of: Callable[[str], str] = host_of) -> None:
        super().__init__()
        self._place_of = place_of
        self.now_s = 0.0
        self.chooses_batches = False
        self.turn_s = 0.0  # work for this time is part of a turn; 0: tasks take no turns
        self._owner: dict[str, str] = {}

    @property
    def used(self) -> int:
        """The number of nodes that all tasks hold together."""
        return len(self._owner)

    def unpaused(self) -> Iterator[str]:
        """Yield the tasks that want nodes: all except those paused by their owners."""
        return (name for name, member in self.items() if not member.paused)

    def add(self, member: TaskEntry) -> None:
        """Add a task, with its nodes."""
        self[member.spec.name] = member
        member.chooses_batch, member.place_of = self.chooses_batches, self._place_of
        self._owner.update(dict.fromkeys(member.held, member.spec.name))

    def edit(self, spec: TaskSpec, name: str, now_s: float) -> None:
        """Apply the changes of its owner to a task, which is called ``name`` from now on and keeps its place."""
        if name != spec.name:
            members = {name if key == spec.name else key: entry for key, entry in self.items()}
            self.clear()
            self.update(members)
            self._owner.update(dict.fromkeys(self[name].held, name))
        self[name].replace_spec(replace(spec, name=name), now_s)

    def remove(self, task: str) -> tuple[str, ...]:
        """Remove a task; return its nodes."""
        nodes = self.release_all(task)
        del self[task]
        return nodes

    def assign(self, task: str, nodes: Mapping[str, int], kind: str = ANY_KIND) -> None:
        """Assign nodes (node -> group) to a task without nodes of another kind."""
        member = self[task]
        member.advance_to(self.now_s)
        if self.turn_s and not member.held:
            member.past = replace(member.past, started_s=self.now_s)
        member.held.update(nodes)
        member.kind = kind
        self._owner.update(dict.fromkeys(nodes, task))

    def withdraw(self, task: str, nodes: Iterable[str]) -> None:
        """Remove nodes from a task."""
        member = self[task]
        member.advance_to(self.now_s)
        for node in nodes:
            del member.held[node], self._owner[node]

    def release_all(self, task: str) -> tuple[str, ...]:
        """Remove all nodes from a task and return them."""
        nodes = self[task].nodes
        self.withdraw(task, nodes)
        return nodes

    def lose(self, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Remove departed nodes from their tasks; return task -> its losses."""
        losses: dict[str, list[str]] = {}
        for node in nodes:
            if node in self._owner:
                losses.setdefault(self._owner[node], []).append(node)
        for task, lost in losses.items():
            self.withdraw(task, lost)
        return losses
