"""Solution: what a solver found, why it stopped, and its own words for it, kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from bftrain.short_repr import some
from bftrain.values import checks
from bftrain.values.wire import NOTHING, Mapped


class Termination(StrEnum):
    """Why the solver stopped."""

    OPTIMAL = "optimal"  # nothing better exists, and it is proven
    HEURISTIC = "heuristic"  # a rule ran to its end; it proves nothing
    GAP = "gap"  # within the relative gap that was asked for, or as close as the solver could prove
    TIME_LIMIT = "time_limit"
    INFEASIBLE = "infeasible"  # only an objective that couples tasks can cause it
    INTERRUPTED = "interrupted"
    FAILED = "failed"  # crashed, refused or answered nonsense


class Quality(StrEnum):
    """What the returned sizes are."""

    PROVEN = "proven"  # value equals bound
    FEASIBLE = "feasible"  # allowed, perhaps not best
    NONE = "none"  # there are none


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how hard a solver may try."""

    deadline_s: float = 10.0
    relative_gap: float = 0.0
    threads: int = 1

    def __post_init__(self) -> None:
        checks.number(self, "deadline_s", above=0.0)
        checks.number(self, "relative_gap", at_least=0.0)
        checks.integer(self, "threads", at_least=1)


class Solution(Mapped, frozen=True, kw_only=True):
    """New sizes for all competing tasks. ``value`` is theirs; none has more than ``bound`` (``None``: unknown).

    ``kinds`` says of which kind the nodes of a task are; a task not named there gets nodes without a kind.
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
        """Say that there are no sizes, and why, in the solver's words."""
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
