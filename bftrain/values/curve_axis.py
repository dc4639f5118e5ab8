"""CurveAxis: many speed curves concatenated on a single axis, evaluated by a single numpy call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.values.curve import SpeedCurve

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST: Final = 2**26  # nodes: even with equally many curves, positions stay exact integers below 2**53


@dataclass(frozen=True, slots=True)
class CurveAxis:
    """Every curve has a section of the axis, from 0 to a point beyond its sizes; there the speed is constant."""

    offsets: Integers
    nodes: Floats
    rates: Floats

    @classmethod
    def of(cls, curves: Sequence[SpeedCurve], last: Integers) -> CurveAxis | None:
        """Concatenate ``curves``; ``last`` contains the largest size that will be requested of each.

        ``None`` if a curve has so large a size that positions on the axis would be rounded.
        """
        points = np.fromiter((len(curve.nodes) for curve in curves), dtype=np.int64, count=len(curves))
        measured_nodes = np.fromiter(chain.from_iterable(curve.nodes for curve in curves), dtype=np.float64)
        measured_rates = np.fromiter(chain.from_iterable(curve.rate for curve in curves), dtype=np.float64)
        if max(measured_nodes.max(initial=0.0), last.max(initial=0)) > _MOST:
            return None
        ends = points.cumsum()
        beyond = np.maximum(last, measured_nodes[ends - 1].astype(np.int64)) + 1
        offsets = (beyond + 1).cumsum() - beyond - 1
        measured = np.ones(measured_nodes.size + 2 * points.size, dtype=np.bool_)
        final = (points + 2).cumsum() - 1
        measured[final] = measured[final - points - 1] = False
        nodes, rates = np.zeros(measured.size), np.zeros(measured.size)
        nodes[measured], nodes[final] = measured_nodes, beyond
        rates[measured], rates[final] = measured_rates, measured_rates[ends - 1]
        return cls(offsets, nodes + np.repeat(offsets, points + 2), rates)

    def speeds(self, row: Integers, sizes: Integers) -> Floats:
        """Return the speed of curve ``row`` at each of ``sizes``; bit-identical to the curve's own result."""
        found: Floats = np.interp(sizes + self.offsets[row], self.nodes, self.rates)
        return found

    def at(self, sizes: Floats) -> Floats:
        """Return the speed of every curve at one size per curve, possibly fractional."""
        place = np.searchsorted(self.nodes, np.floor(sizes) + self.offsets, side="right") - 1  # points are whole
        slope = np.diff(self.rates)[place] / np.diff(self.nodes)[place]
        return slope * (sizes - (self.nodes[place] - self.offsets)) + self.rates[place]
