"""Exposition: figures in the text form that Prometheus reads, version 0.0.4."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricFamily(NamedTuple):
    """All series of one name. ``kind`` is counter, gauge or histogram; a series is a suffix, labels and a value."""

    name: str
    kind: str
    about: str
    series: Sequence[tuple[str, Mapping[str, str], float]]


def counter(name: str, about: str, value: float) -> MetricFamily:
    """Give something that only grows; its name ends with ``_total``."""
    return MetricFamily(name, "counter", about, [("", {}, value)])


def gauge(name: str, about: str, value: float) -> MetricFamily:
    """Give something that rises and falls."""
    return MetricFamily(name, "gauge", about, [("", {}, value)])


def by(label: str, name: str, kind: str, about: str, values: Mapping[str, float]) -> MetricFamily:
    """Give one series for each value of a label."""
    return MetricFamily(name, kind, about, [("", {label: key}, value) for key, value in values.items()])


class Histogram:
    """How often something took how long, in seconds."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def family(self) -> MetricFamily:
        """Give it as series."""
        series: list[tuple[str, Mapping[str, str], float]] = []
        total = 0
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            total += count
            series.append(("_bucket", {"le": "+Inf" if math.isinf(bound) else repr(float(bound))}, total))
        return MetricFamily(
            self._name, "histogram", self._about, [*series, ("_sum", {}, self._sum), ("_count", {}, total)]
        )


def text(families: Iterable[MetricFamily]) -> str:
    """Give families in the form that is read."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: MetricFamily) -> Iterator[str]:
    about = family.about.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {about}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.series:
        inside = ",".join(f'{name}="{_escaped(given)}"' for name, given in labels.items())
        yield f"{family.name}{suffix}{f'{{{inside}}}' if inside else ''} {_number(value)}"


def _escaped(given: str) -> str:
    return given.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
