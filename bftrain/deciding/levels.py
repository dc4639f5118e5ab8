"""LevelCoupling: makes solvers raise the task with the smallest entry first, then the second smallest, and so on.

Solvers with native support search for levels directly; all other solvers get a linear programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrain.values.coupling import CouplingModel, LinearExpression, linear_sum

if TYPE_CHECKING:
    from bftrain.values.problem import AllocationProblem

Entries = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LevelCoupling:
    """Raise the level of the worst-off task as far as possible, then the next, ...; then maximise the sum of ``spare``.

    ``counted`` contains the indices of the tasks that count. All of them are raised in turn, or with ``first`` only
    that number of the worst-off. ``spare`` has a value per second for every table entry; it decides between plans
    with equal levels.
    """

    counted: tuple[int, ...]
    spare: Entries
    first: int | None = None
    of_entries: ClassVar[bool] = True  # the total depends on the entries only

    def couple(self, model: CouplingModel) -> None:
        """Add goals in order: the sum of the k smallest entries, for k = 1, 2, ..."""
        worst_first(model, [model.value(place) for place in self.counted], self.first)
        model.maximise(leftover(model, self.spare))

    def total(self, chosen: Entries, sizes: Sequence[int], problem: AllocationProblem) -> float:  # noqa: ARG002 - a port
        """Return the benefit of the worst-off task."""
        return float(chosen[list(self.counted)].min()) if self.counted else 0.0


@dataclass(frozen=True, kw_only=True)
class UserGroup:
    """A user's tasks: their ``places`` (indices) by submission, without tasks that cannot be raised.

    ``weight`` is the user's share. A ``fifo`` user spends all on the first task that can still be raised; other users
    raise their tasks together, by ``weights``.
    """

    name: str
    places: tuple[int, ...]
    weights: tuple[float, ...]
    weight: float = 1.0
    fifo: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupLevels:
    """Raise the worst-off of ``groups`` first; a group's benefit is the sum over its tasks divided by its weight.

    Each group divides its nodes by its own rule. ``one_kind`` means that all nodes have one kind: only then the
    nodes of a group are a number, and can be divided over groups. Otherwise, and for solvers that need a programme, all
    tasks rise together, each in proportion to its part of its group's weight, and a fifo group like a single task.
    """

    groups: tuple[UserGroup, ...]
    spare: Entries
    one_kind: bool
    of_entries: ClassVar[bool] = True

    @property
    def no_programme(self) -> str:
        """The reason why no linear programme expresses this; empty if one does."""
        return "linear programmes cannot express groups: use exact" if self.one_kind else ""

    def couple(self, model: CouplingModel) -> None:
        """Add the goals under which all tasks rise together."""
        parts: list[LinearExpression] = []
        for group in self.groups:
            if group.fifo:
                parts.append(linear_sum(map(model.value, group.places)) / group.weight)
            else:
                whole = sum(group.weights)
                rates = (group.weight * weight / whole for weight in group.weights)
                parts.extend(model.value(place) / rate for place, rate in zip(group.places, rates, strict=True))
        worst_first(model, parts, None)
        for place in (place for group in self.groups if group.fifo for place in group.places[:-1]):
            model.maximise(model.value(place))
        model.maximise(leftover(model, self.spare))

    def total(self, chosen: Entries, sizes: Sequence[int], problem: AllocationProblem) -> float:  # noqa: ARG002 - a port
        """Return the benefit of the worst-off group; if all tasks rise together, of the worst-off task."""
        levels: list[float] = []
        for group in self.groups:
            got = chosen[list(group.places)]
            if group.fifo or self.one_kind:
                levels.append(float(got.sum()) / group.weight)
            else:
                levels.append(float((got / np.array(group.weights)).min()) * sum(group.weights) / group.weight)
        return min(levels, default=0.0)


def leftover(model: CouplingModel, spare: Entries) -> LinearExpression:
    """Return the sum of the entries of ``spare`` at the chosen sizes."""
    finite = np.where(np.isfinite(spare), spare, 0.0)
    return linear_sum(model.over_sizes(place, row) for place, row in enumerate(finite))


def worst_first(model: CouplingModel, parts: Sequence[LinearExpression], first: int | None) -> None:
    """Maximise the smallest of ``parts``, then the sum of the two smallest, and so on, or of the ``first`` smallest.

    The sum of the k smallest is the largest ``k t - sum of max(0, t - part)`` over all t.
    """
    steps = len(parts) if first is None else min(first, len(parts))
    for smallest in range(1, steps + 1):
        level = model.variable(lower=-inf)
        if smallest == 1:
            for part in parts:
                model.at_least(part - level, 0.0)
            model.maximise(level)
        elif smallest == len(parts):
            model.maximise(linear_sum(parts))
        else:
            short = [model.variable() for _ in parts]
            for part, lacking in zip(parts, short, strict=True):
                model.at_least(part + lacking - level, 0.0)
            model.maximise(level * smallest - linear_sum(short))
