"""Speeds as decisions see them if they are not known exactly: with errors, and learnt as tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

import numpy as np
from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.values.curve import ANY_KIND, SpeedCurve
from bftrain.values.events import TaskMeasured
from bftrain.values.task import TaskSpec
from bftrain_replay.simulation.task_progress import TaskProgress


@dataclass(frozen=True, slots=True)
class WrongSpeeds:
    """Multiplies the points of all curves by lognormal factors, drawn by task, kind and size.

    ``error`` is the standard deviation of the logarithm of a factor. A random share ``profiled`` of the tasks is known
    exactly.
    """

    error: float
    profiled: float
    seed: int

    def believed(self, spec: TaskSpec) -> TaskSpec:
        """Return an arriving task as the decisions assume it."""
        if self._generator(spec.name, "").random() < self.profiled:
            return spec
        curves = {kind: self._wrong(curve, spec.name, kind) for kind, curve in spec.curves.items()}
        own = next((kind for kind, curve in spec.curves.items() if curve == spec.curve), None)
        curve = self._wrong(spec.curve, spec.name, ANY_KIND) if own is None else curves[own]
        return replace(spec, curve=curve, curves=curves)

    def _wrong(self, curve: SpeedCurve, task: str, kind: str) -> SpeedCurve:
        factors = np.exp(self.error * self._generator(task, f"={kind}").standard_normal(len(curve.nodes)))
        return SpeedCurve(nodes=curve.nodes, rate=tuple((np.array(curve.rate) * factors).tolist()))

    def _generator(self, *words: str) -> np.random.Generator:
        """Return random numbers that depend on the seed and on these words only."""
        digest = sha256("\n".join((str(self.seed), *words)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8]))


@dataclass(slots=True)
class LearntSpeeds:
    """Reveals the true speed at each size used so far to decisions, like measurements in live runs.

    Unmeasured sizes keep the assumed shape, scaled to the nearest measured size.
    """

    _true: dict[str, TaskSpec] = field(default_factory=dict)
    _believed: dict[str, TaskSpec] = field(default_factory=dict)
    # Measured speeds of each task, by kind and size
    _known: dict[str, dict[tuple[str, int], float]] = field(default_factory=dict)
    _runs: dict[str, tuple[str, int, float]] = field(default_factory=dict)  # kind, size, time of the first call with it

    def submitted(self, spec: TaskSpec, believed: TaskSpec) -> None:
        """Add a submitted task with its assumed speeds."""
        self._true[spec.name], self._believed[spec.name] = spec, believed

    def measured(
        self, running: Iterable[TaskProgress], kind_of: Mapping[str, str], now_s: float
    ) -> Iterator[TaskMeasured]:
        """Yield new curves of tasks that have kept an unmeasured size since the last call."""
        for task in running:
            name, kind = task.spec.name, kind_of.get(task.spec.name, ANY_KIND)
            before = self._runs.get(name)
            if before is None or before[:2] != (kind, task.size):
                self._runs[name] = kind, task.size, now_s
                continue
            known = self._known.setdefault(name, {})
            if before[2] < now_s and (kind, task.size) not in known:
                true = self._true[name].curve_on(kind)
                known[kind, task.size] = 0.0 if true is None else true.speed(task.size)
                yield self._learnt(name, kind, now_s)

    def _learnt(self, name: str, kind: str, now_s: float) -> TaskMeasured:
        spec = self._believed[name]
        sizes = {size: rate for (where, size), rate in self._known[name].items() if where == kind}
        curve = partial(speed_estimates.curve, sizes, largest=spec.max_nodes)
        found = TaskMeasured(time_s=now_s, task=name, curve=curve(stated=spec.curve))
        if kind in spec.curves:
            curves = {**spec.curves, kind: curve(stated=spec.curves[kind]) or spec.curves[kind]}
            found = replace(found, curve=spec.curve, curves=curves)
            self._believed[name] = replace(spec, curves=curves)
        return found
