"""TaskSizing: from what a job says to sizes, speeds and work."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from bftrain.values.curve import SpeedCurve
from bftrain_datasets.workloads.job import UnusableJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bftrain_datasets.workloads.job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTask:
    """A job as a task: the sizes it may have, its speeds, its work, and the seconds that it ideally takes.

    Work is counted in steps where speeds are steps/s, and in seconds where nothing but a duration is known: then the
    speed is 1 on the nodes it wants. ``curves`` are by kind of node, where several were asked for.
    """

    curve: SpeedCurve
    curves: Mapping[str, SpeedCurve] = field(default_factory=dict)
    min_nodes: int
    max_nodes: int
    work: float
    ideal_s: float


class TaskSizing:
    """Sizes jobs for the kinds of nodes in ``rates``, a single one being that of all nodes.

    ``reference`` has the speeds that the ideal duration refers to.
    """

    def __init__(
        self,
        rates: Mapping[str, Mapping[str, Mapping[int, float]]],
        reference: Mapping[str, Mapping[int, float]] | None = None,
        *,
        elastic: bool = False,
        per_node: int | None = None,
        nodes: int | None = None,
    ) -> None:
        self._rates = rates
        self._reference = reference if reference is not None else next(iter(rates.values()), {})
        self._elastic = elastic
        self._per_node = per_node or 1
        self._nodes = nodes

    def size(self, job: TrainingJob) -> SizedTask:
        """Size one job; raises :class:`UnusableJob` if it cannot run here."""
        if job.duration_s is not None:
            size = job.nodes or -(-job.gang // self._per_node)
            sized = SizedTask(
                curve=_flat(size), min_nodes=size, max_nodes=size, work=job.duration_s, ideal_s=job.duration_s
            )
        else:
            sized = self._by_speed(job)
        if self._nodes is not None and sized.min_nodes > self._nodes:
            what = f"'{job.name}' wants {sized.min_nodes:,} nodes, and there are {self._nodes:,}"
            raise UnusableJob("too_large", what, "say with --nodes how many there are, or leave the job out")
        return sized

    def _by_speed(self, job: TrainingJob) -> SizedTask:
        points = {kind: self._points(job, rates.get(job.model, {})) for kind, rates in self._rates.items()}
        if not any(points.values()):
            wanted = "" if self._elastic else f" on {job.gang}"
            what = f"'{job.name}': no speed of '{job.model}'{wanted} is in the table"
            raise UnusableJob("unknown_speed", what, "add it to the table, or choose another kind with --node-kind")
        fitting = {kind: [size for size, each in found.items() if each > 0] for kind, found in points.items()}
        fitting = {kind: sizes for kind, sizes in fitting.items() if sizes}
        if not fitting:
            what = f"'{job.name}': the table says with 0 that '{job.model}' does not fit on {job.gang} of this kind"
            raise UnusableJob("does_not_fit", what, "choose another kind with --node-kind, or try --elastic")
        steps = job.steps or 0.0
        curves = {kind: _curve(tuple(points[kind].items())) for kind in fitting}
        ideal = self._reference.get(job.model, {}).get(job.gang) or self._first_rate(job) or _fastest(points.values())
        return SizedTask(
            curve=next(iter(curves.values())),
            curves=curves if len(self._rates) > 1 else {},
            min_nodes=min(sizes[0] for sizes in fitting.values()),
            max_nodes=max(sizes[-1] for sizes in fitting.values()),
            work=steps,
            ideal_s=steps / ideal,
        )

    def _points(self, job: TrainingJob, gangs: Mapping[int, float]) -> dict[int, float]:
        """Give the speeds of a job on one kind by its number of nodes there."""
        if self._elastic:
            return {gang // self._per_node: each for gang, each in gangs.items() if gang % self._per_node == 0}
        rate = gangs.get(job.gang)
        return {} if rate is None else {-(-job.gang // self._per_node): rate}

    def _first_rate(self, job: TrainingJob) -> float:
        """Give its speed on the first kind that it runs on as it is; 0 if there is none."""
        return next(filter(None, (rates.get(job.model, {}).get(job.gang) for rates in self._rates.values())), 0.0)


def _fastest(points: Iterable[Mapping[int, float]]) -> float:
    return max(rate for found in points for rate in found.values())


@lru_cache(maxsize=1024)
def _flat(size: int) -> SpeedCurve:
    return SpeedCurve(nodes=(size,), rate=(1.0,))


@lru_cache(maxsize=1024)
def _curve(points: tuple[tuple[int, float], ...]) -> SpeedCurve:
    """Keep what was measured as it is, monotone or not."""
    return SpeedCurve(nodes=tuple(size for size, _ in points), rate=tuple(rate for _, rate in points))
