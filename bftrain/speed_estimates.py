"""Estimate the speed of a task before and after measurements, and choose the size to measure next.

``bftrain_elastic.manager.speed_measurement`` measures speeds from the reports of launchers, one object per task;
the functions here turn these measurements into the speed curve for decisions. All functions are pure and therefore
return equal curves after a restart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import pairwise

from bftrain.values.curve import SpeedCurve

_SIGNIFICANT = 0.05  # relative; smaller changes of a speed need no new decision


def first_curve(largest: int, others: Iterable[SpeedCurve] = ()) -> SpeedCurve:
    """Return the assumed curve of an unmeasured task: one point, linear up to ``largest`` nodes.

    Its speed per node is the median of ``others`` at their smallest sizes; the task therefore competes
    as an equal, gets nodes, and is measured. The default speed is one sample per second and node.
    """
    from statistics import median  # noqa: PLC0415 - few tasks are not measured, and this takes 1 ms

    rates = []
    for other in others:
        points = zip(other.nodes, other.rate, strict=True)
        rates += [rate / nodes for nodes, rate in points if rate > 0][:1]  # the smallest size that runs
    return SpeedCurve(nodes=(largest,), rate=(largest * (median(rates) if rates else 1.0),))


def curve(measured: Mapping[int, float], stated: SpeedCurve | None, largest: int) -> SpeedCurve | None:
    """Return the curve up to ``largest`` nodes: measured speeds, and estimates at other sizes.

    A ``stated`` curve keeps its shape, scaled to the measurement at the nearest size. If it is missing, the curve is
    extrapolated linearly beyond the largest measured size, which gives the task the chance to be measured there.
    Return ``stated`` itself, possibly ``None``, until there are measurements.
    """
    known = {size: rate for size, rate in sorted(measured.items()) if size >= 1 and rate >= 0}
    if not known:
        return stated
    points = dict(known)
    if stated is not None:
        for size, rate in zip(stated.nodes, stated.rate, strict=True):
            if size not in known:
                nearest = min(known, key=lambda other, size=size: abs(other - size))  # type: ignore[misc]  # bound at once
                there = stated.speed(nearest)
                points[size] = rate * known[nearest] / there if there > 0 else known[nearest] / nearest * size
    elif max(known) < largest:
        # Extend the line through the last two points, the origin included; it never falls
        (left, low), (right, high) = list(pairwise([(0, 0.0), *known.items()]))[-1]
        points[largest] = high + max(0.0, (high - low) / (right - left)) * (largest - right)
    return SpeedCurve(nodes=tuple(sorted(points)), rate=tuple(points[size] for size in sorted(points)))


def is_significant_change(before: SpeedCurve | None, after: SpeedCurve, largest: int) -> bool:
    """Return whether a curve needs new decisions: a speed up to ``largest`` nodes changed by a twentieth."""
    if before is None:
        return True
    pairs = zip(before.speeds(largest), after.speeds(largest), strict=True)
    return any(abs(new - old) > _SIGNIFICANT * max(old, new) for old, new in pairs)


def size_to_measure(held: int, smallest: int, known: Container[int]) -> int:
    """Return the number of the ``held`` nodes on which a task should run now for a measurement.

    The result is the largest size among ``held``, ``held / 2``, ..., ``smallest`` that is not in ``known`` yet: a
    task is first measured on all its nodes, and then shrinks, which is cheaper than growing. The task grows
    back once, when all are known; tasks need nodes to be measured.
    """
    size = held
    while size > smallest:
        if size not in known:
            return size
        size = max(smallest, size // 2)
    return held if smallest in known else min(held, smallest)
