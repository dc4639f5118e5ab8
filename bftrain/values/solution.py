"""Solution: the sizes found by a solver, why it stopped, and its own message, kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from bftrain.short_repr import some
from bftrain.values import checks
from bftrain.values.wire import NOTHING, Mapped


class Termination(StrEnum):
    """The reason why the solver stopped."""

    OPTIMAL = "optimal"  # proven to be the best
    HEURISTIC = "heuristic"  # a rule completed, without a proof
    GAP = "gap"  # the requested relative gap, or the closest that the solver could prove
    TIME_LIMIT = "time_limit"
    INFEASIBLE = "infeasible"  # only an objective that couples tasks can cause it
    INTERRUPTED = "interrupted"
    FAILED = "failed"  # missing, unsuitable, skipped, crashed, or an invalid result


class Quality(StrEnum):
    """Quality of the returned sizes."""

    PROVEN = "proven"  # value equals bound
    FEASIBLE = "feasible"  # allowed, perhaps not optimal
    NONE = "none"  # no sizes


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a solver: time, gap and threads."""

    deadline_s: float = 10.0
    relative_gap: float = 0.0
    threads: int = 1

    def __post_init__(self) -> None:
        checks.number(self, "deadline_s", above=0.0)
        checks.number(self, "relative_gap", at_least=0.0)
        checks.integer(self, "threads", at_least=1)


class Solution(Mapped, frozen=True, kw_only=True):
    """New sizes for all competing tasks, and their total ``value``; no sizes are worth more than ``bound``.

    ``bound`` is ``None`` if unknown. ``kinds`` are the node kinds of tasks; unlisted tasks get nodes without a kind.
    """

    sizes: Mapping[str, int]
    value: float | None
    bound: float | None
    termination: Termination
    quality: Quality
    solver: str
    solver_words: str = ""
    wall_s: float = 0.0
    kinds: Mapping[str, str] = NOTHING

    def __repr__(self) -> str:
        held = [f"{name}: {size}" for name, size in self.sizes.items() if size]
        value = "no value" if self.value is None else f"value {self.value:.10g}"
        tasks = f"{len(held):,} of {len(self.sizes):,} tasks hold nodes"
        return f"<Solution of {self.solver}: {self.termination}, {self.quality}, {value}, {tasks}: {some(held)}>"

    def __post_init__(self) -> None:
        checks.counts(self, "sizes")
        checks.kinds(self, "kinds")
        checks.optional_number(self, "value", "bound")
        checks.number(self, "wall_s", at_least=0.0)
        checks.text(self, "solver")
        checks.words(self, "solver_words")
        checks.choice(self, "termination", Termination)
        checks.choice(self, "quality", Quality)
        if self.quality is Quality.NONE and self.sizes:
            checks.reject(self, "quality", "is 'none', but there are sizes")
        if self.quality is not Quality.NONE and self.value is None:
            checks.reject(self, "value", "is missing, but there are sizes")
        if self.termination is Termination.OPTIMAL and self.quality is not Quality.PROVEN:
            checks.reject(self, "quality", "must be 'proven' when the termination is 'optimal'")

    @classmethod
    def failed(
        cls, solver: str, words: str, *, termination: Termination = Termination.FAILED, wall_s: float = 0.0
    ) -> Solution:
        """Return a solution of ``solver`` with no sizes: ``termination``, reason (``words``), ``wall_s`` (seconds)."""
        return cls(
            sizes={},
            value=None,
            bound=None,
            termination=termination,
            quality=Quality.NONE,
            solver=solver,
            solver_words=words,
            wall_s=wall_s,
        )
