"""Objective ``goodput``: progress instead of samples, similar to Pollux (Qiao and others, OSDI 2021).

Progress at size ``n`` with a batch of ``M`` samples is the speed there times the statistical efficiency
``(phi + M0) / (phi + M)``, ``phi`` being the noise scale and ``M0`` the initial batch. A step takes ``M / (n * rate)``
seconds to compute, plus a time that does not depend on ``M``, such as the gradient exchange. ``rate`` is a node's
samples/s at the size with the highest speed per node, over the variable part of a step there. The
curve, measured with ``B = n * per_node``, yields the fixed time: the time to compute ``x = B * (n * rate / thr(n) -
1)`` samples. The speed is therefore ``n * rate * M / (M + x)``, which equals ``thr(n)`` for ``M = B``. Its product with
the efficiency rises in ``M`` up to ``sqrt(phi * x)`` and falls beyond: the best integer ``M`` is next to that value, or
at a limit of the range.

Samples of two models are not comparable, so the objective is the fraction of a task's remaining work. Its square root
favours short tasks, but not with all nodes, and gives long tasks some: the mean completion time becomes short. A sum of
plain fractions would give short tasks more nodes than they use well, and long tasks no nodes.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from msgspec.structs import replace

from bftrain.deciding.objectives import TableObjective, speed, speed_of_one, with_entries
from bftrain.ports import WORK_LEFT
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.deciding.objectives import Entries
    from bftrain.values.batch_scaling import BatchScaling
    from bftrain.values.spread import SpreadSpeeds
    from bftrain.values.table import ValueTable

T = TypeVar("T", TaskSpec, CompetingTask)
_LARGEST: Final = 2.0**53  # floats represent all whole numbers up to here
_NEVER: Final = 1e300  # samples: stands for a fixed time so long that computing time is negligible


def progress(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Return equivalent samples/s at the initial batch size; plain samples/s for tasks with fixed batches."""
    return speed(task, sizes) if task.batch is None else _best(task.curve, task.batch, sizes)[1]


def best_batch(task: CompetingTask, size: int) -> int | None:
    """Return the batch size with the most progress on ``size`` nodes of the kind that the task's curve describes.

    ``None`` if the task declares no batches, or does not run at this size.
    """
    return None if task.batch is None else _tabulated(task.curve, task.batch, size, chosen=True)[0][size] or None


def batches_by_size(task: TaskSpec, kind: str = "", *, chosen: bool = True) -> tuple[int, ...]:
    """Return the batch size at each task size from 0 on, 0 where the task does not run; empty without batches.

    The best batch sizes, or without ``chosen`` those with which the curve was measured.
    """
    curve = None if task.batch is None else task.curve_on(kind)
    if task.batch is None or curve is None:
        return ()
    return _tabulated(curve, task.batch, task.max_nodes, chosen=chosen)[0]


def by_progress(task: T, *, chosen: bool = True) -> T:
    """Return the task with speeds replaced by progress, at the batches of :func:`batches_by_size`, and without batches.

    Its work, in samples of the initial batch, divided by its speed is then the time that it takes.
    """
    batch = task.batch
    if batch is None:
        return task

    def made(curve: SpeedCurve) -> SpeedCurve:
        return _tabulated(curve, batch, task.max_nodes, chosen=chosen)[1]

    found = replace(
        task, curve=made(task.curve), curves={kind: made(curve) for kind, curve in task.curves.items()}, batch=None
    )
    spread: SpreadSpeeds | None = getattr(task, "spread", None)  # tasks in decisions have their expected speeds
    if spread is None:
        return found
    speeds = [each if each.curve is None else replace(each, curve=made(each.curve)) for each in spread.speeds]
    return replace(found, spread=replace(spread, speeds=tuple(speeds)))


@lru_cache(maxsize=512)  # tasks of one model are equal
def _tabulated(
    curve: SpeedCurve, batch: BatchScaling, most: int, *, chosen: bool
) -> tuple[tuple[int, ...], SpeedCurve]:
    """Return the batch sizes and the progress with them, at every task size up to ``most``."""
    sizes = np.arange(most + 1)
    batches, made = _best(curve, batch, sizes, chosen=chosen)
    rates = SpeedCurve(nodes=tuple(range(1, most + 1)), rate=tuple(np.broadcast_to(made, sizes.shape)[1:].tolist()))
    return tuple(np.where(curve.speeds(most) > 0.0, batches, 0.0).astype(np.int64).tolist()), rates


def _best(
    curve: SpeedCurve, batch: BatchScaling, sizes: NDArray[np.int64], *, chosen: bool = True
) -> tuple[Entries, Entries]:
    """Return the best batch sizes, or without ``chosen`` the measured ones, and the progress with them."""
    speeds, initial, noise = curve.speeds(int(sizes[-1])), batch.initial, batch.noise_scale
    measured = np.multiply(batch.measured, sizes)
    # The samples per second of a node while it computes
    rate = max(rate / nodes for nodes, rate in zip(curve.nodes, curve.rate, strict=True)) / (1.0 - batch.fixed_share)
    computing = np.multiply(rate, sizes)
    runs = speeds > 0.0
    with np.errstate(over="ignore"):
        slower = np.minimum(computing / np.where(runs, speeds, 1.0), _NEVER)
        fixed = np.minimum(measured * np.maximum(slower - 1.0, 0.0), _NEVER)
    lowest = np.maximum(initial, sizes if batch.largest else measured)
    highest = np.minimum(batch.largest or lowest, _LARGEST)
    if not chosen:
        lowest = highest = np.clip(measured, lowest, highest)
    middle = np.clip(np.sqrt(noise) * np.sqrt(fixed), lowest, highest)

    def made(batches: Entries) -> Entries:
        parts = batches / np.where(runs, batches + fixed, 1.0)
        efficiency = np.add(noise, initial) / np.where(runs, np.add(noise, batches), 1.0)
        return np.where(runs, computing * parts * efficiency, 0.0)

    below, above = np.floor(middle), np.ceil(middle)
    less, more = made(below), made(above)
    return np.where(more > less, above, below), np.maximum(more, less)


def _parts_of_work(table: ValueTable) -> Entries:
    """Return the square root of the fraction of each task's remaining work done over the horizon, minus costs.

    Remaining work is at least one node's work over the horizon. A task without a known end counts like the task with
    the longest time on one node, and all tasks count equally if no end is known.
    """
    horizon_s, tasks = table.problem.horizon_s, table.problem.tasks
    # Tasks from a Harvester have progress as their speed already
    single: Entries = np.array([speed_of_one(by_progress(task)) for task in tasks])
    work = np.array([np.nan if task.work_left_samples is None else task.work_left_samples for task in tasks])
    left_s = np.fmax(work / single, horizon_s)  # the horizon if the work is unknown
    left_s = np.where(np.isnan(work), left_s.max(), left_s)
    done = np.where(np.isfinite(table.values), np.maximum(table.values, 0.0), 0.0)
    weights = np.array([task.weight for task in tasks])
    return weights[:, None] * np.sqrt(done / (left_s * single)[:, None])


goodput = TableObjective("goodput", partial(with_entries, _parts_of_work), progress, WORK_LEFT)
