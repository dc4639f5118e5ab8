"""TaskEntry: an unfinished task with its nodes, its totals so far, and its description for decisions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr, replace

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


MOST_FITS: Final = 8  # cost fits with cached descriptions
_MOST_DESCRIPTIONS: Final = 64  # limit per task


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The submission time, and the totals until ``since_s``: node-seconds, and samples according to the curve.

    ``started_s`` is the time of the last start. Times are on the clock of the events. Rescaling costs are not deducted.
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
        return TaskHistory(
            submitted_s=self.submitted_s,
            since_s=now_s,
            held_node_s=self.held_node_s + passed_s * size,
            done_samples=self.done_samples + passed_s * speed,
            started_s=self.started_s,
        )


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
    changes: int = 0  # number of changes of its size, kind or spec
    # Descriptions by cost fit, size and kind, which recur; the same object each time, by which rows of tables are found
    _descriptions: dict[tuple[CostFit | None, int, str], CompetingTask] = field(default_factory=dict)
    _checked: CompetingTask | None = None  # built from ``spec``; later descriptions are modified copies
    _alike: dict[CostFit | None, CompetingTask] = field(default_factory=dict)  # descriptions by cost fit
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
        """Samples/s on the present nodes."""
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
        self.changes += 1

    def edited(self, spec: TaskSpec, now_s: float) -> None:
        """Apply its owner's changes; finished work stays finished."""
        self.advance_to(now_s)
        self._forget_spec()
        self.spec = spec

    def _forget_spec(self) -> None:
        self._checked = self._by_progress = None
        self._alike.clear()
        self._descriptions.clear()

    def measured(self, event: TaskMeasured, *, recount: bool = False) -> None:
        """Apply new measurements; with ``recount`` also to the samples so far, which the former curve gave."""
        self.advance_to(event.time_s)
        before = self._least_speed
        known = {
            name: value
            for name in ("curve", "curves", "grow_cost_s", "shrink_cost_s", "start_cost_s")
            if (value := getattr(event, name)) is not None
        }
        self._forget_spec()
        if known:
            self.spec = replace(self.spec, **known)
        if event.noise_scale is not None and self.spec.batch is not None:
            self.spec = replace(self.spec, batch=replace(self.spec.batch, noise_scale=event.noise_scale))
        if event.work_left_samples is not None:
            self.work_left_samples = event.work_left_samples
        if recount and before > 0.0 and (after := self._least_speed) > 0.0 and after != before:
            self.past = replace(self.past, done_samples=self.past.done_samples * after / before)

    @property
    def _least_speed(self) -> float:
        """Samples/s at the minimum size, on the present kind of nodes."""
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
        timeless = spec.deadline_s is None and not history
        if timeless and len(self._descriptions) >= _MOST_DESCRIPTIONS:
            self._descriptions.clear()
        if timeless and (alike := self._alike.get(fit)) is not None:
            seen = self._descriptions[fit, size, self.kind] = unchecked(alike, size=size, kind=kind)
            return seen
        had = self.past.until(time_s, size, self.speed) if history else None
        grow_cost_s, shrink_cost_s, start_cost_s = fit.costs_of(spec) if fit is not None else costs_of(spec)
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
        seen = copy(self._checked)  # copies are not checked: the fields changed below were computed here, within bounds
        for name, value in changing.items():
            force_setattr(seen, name, value)
        if timeless:
            if len(self._alike) >= MOST_FITS:
                self._alike.clear()
            self._alike[fit] = self._descriptions[fit, size, self.kind] = seen
        return seen
