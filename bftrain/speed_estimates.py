"""Estimate the speed of a task before and after it was measured, and choose the size to measure next.

``bftrain_elastic.manager.speed_measurement`` measures speeds from the reports of launchers, one object for each task;
the functions here turn these measurements into the speed curve that decisions use. All functions are pure, so that
they give the same curve again after a restart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import pairwise
from statistics import median

from bftrain.values.curve import SpeedCurve

_NEWS = 0.05  # relative: a smaller change of a speed is not worth a decision


def first_curve(largest: int, others: Iterable[SpeedCurve] = ()) -> SpeedCurve:
    """Return the curve of an unknown task: one point, so it is linear up to ``largest`` nodes.

    On each node it is taken to be as fast as the ``others`` are on their smallest size, in the median; so it competes
    with them as one of them, gets nodes, and is measured. With no others a node brings one sample a second.
    """
    rates = []
    for other in others:
        points = zip(other.nodes, other.rate, strict=True)
        rates += [rate / nodes for nodes, rate in points if rate > 0][:1]  # the smallest size at which it runs
    return SpeedCurve(nodes=(largest,), rate=(largest * (median(rates) if rates else 1.0),))


def curve(measured: Mapping[int, float], stated: SpeedCurve | None, largest: int) -> SpeedCurve | None:
    """Give the curve up to ``largest`` nodes: measured where it was, and at other sizes the best guess.

    What was stated keeps its shape, scaled to what was measured at the nearest size. With nothing stated the curve
    goes on beyond the largest measured size as it rose up to there, so that a task gets the chance to show more.
    Gives ``stated`` itself, perhaps nothing, as long as nothing was measured.
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
        # Along the line through the last two points, the origin being one of all; it never falls
        (left, low), (right, high) = list(pairwise([(0, 0.0), *known.items()]))[-1]
        points[largest] = high + max(0.0, (high - low) / (right - left)) * (largest - right)
    return SpeedCurve(nodes=tuple(sorted(points)), rate=tuple(points[size] for size in sorted(points)))


def is_news(before: SpeedCurve | None, after: SpeedCurve, largest: int) -> bool:
    """Tell whether the decisions should hear of a curve: a speed up to ``largest`` nodes changed by a twentieth."""
    if before is None:
        return True
    pairs = zip(before.speeds(largest), after.speeds(largest), strict=True)
    return any(abs(new - old) > _NEWS * max(old, new) for old, new in pairs)


def size_to_measure(held: int, smallest: int, known: Container[int]) -> int:
    """Give the number of nodes on which a task should run now, of the ``held`` ones that it was given.

    That is the largest of ``held``, half of it, and so on down to ``smallest`` that is not ``known`` yet: a task
    that was given nodes first shows what it does with all, and then shrinks, which is cheaper than to grow. It grows
    back once, when all are known; a task without nodes measures nothing.
    """
    size = held
    while size > smallest:
        if size not in known:
            return size
        size = max(smallest, size // 2)
    return held if smallest in known else min(held, smallest)
