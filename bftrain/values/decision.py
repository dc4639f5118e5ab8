"""The record of one decision: the chosen sizes, their origin and quality."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

import msgspec

from bftrain.values import checks
from bftrain.values.actions import Action
from bftrain.values.solution import Quality, Termination
from bftrain.values.wire import NOTHING, Mapped, unchecked

UNCHANGED: Final = "unchanged"  # replaces a solver's name if sizes did not change
# Endings of a decision's ``fallback``: no sizes of any solver, or those of the solver named between these words
STAYED: Final = "sizes stay as they were"
_TAKEN: Final = ("sizes of ", " taken")


def taken_from(solver: str) -> str:
    """Return the end of a decision's ``fallback`` text if its sizes are those of ``solver``."""
    return solver.join(_TAKEN)


class Decision(Mapped, frozen=True, kw_only=True):
    """New sizes of all competing tasks (0: the task waits) and the resulting actions.

    ``at_once`` contains the actions that events since the last decision required immediately, before this decision
    (nodes returned, tasks paused); ``actions`` contains the actions added by the decision.

    ``solver``, ``bound``, ``termination``, ``solver_words`` and ``solve_s`` belong to the solver asked first;
    ``quality`` and ``value`` belong to the actual ``sizes``. ``fallback`` is empty if these are the
    solver's own; otherwise it names the origin of the sizes, and the reason.
    ``kinds`` are the node kinds of the tasks, if nodes have kinds. ``batches`` are the samples per step over all
    nodes of a task, for tasks with an adjustable batch size, if the objective chooses it.
    ``notes`` are remarks on events since the last decision (a node that joined twice, ...).
    """

    time_s: float
    number: int
    pool: int
    used: int
    sizes: Mapping[str, int]
    value: float
    bound: float | None
    solver: str
    termination: Termination
    quality: Quality
    solver_words: str = ""
    fallback: str = ""
    solve_s: float = 0.0
    at_once: tuple[Action, ...] = ()
    actions: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()
    kinds: Mapping[str, str] = NOTHING
    batches: Mapping[str, int] = NOTHING

    def __post_init__(self) -> None:
        checks.number(self, "time_s")
        checks.integer(self, "number", at_least=1)
        checks.integer(self, "pool", "used", at_least=0)
        checks.counts(self, "sizes")
        checks.kinds(self, "kinds")
        checks.counts(self, "batches")
        checks.number(self, "value")
        checks.optional_number(self, "bound")
        checks.text(self, "solver")
        checks.choice(self, "termination", Termination)
        checks.choice(self, "quality", Quality)
        checks.words(self, "solver_words", "fallback")
        checks.number(self, "solve_s", at_least=0.0)
        for field in ("at_once", "actions"):
            checks.sequence(self, field, _action, "a list of actions")
        checks.texts(self, "notes")
        if self.used > self.pool:
            checks.reject(self, "used", f"is {self.used}, above pool = {self.pool}")

    @property
    def decided_by(self) -> str:
        """The solver of the actual sizes, or ``unchanged`` if no solver returned any."""
        if not self.fallback:
            return self.solver
        before, after = _TAKEN
        taken = self.fallback.rpartition("; ")[2]
        if taken.startswith(before) and taken.endswith(after):
            return taken.removeprefix(before).removesuffix(after)
        return UNCHANGED

    def same_as(self, other: Decision) -> bool:
        """Return whether ``other`` is equal, apart from solver times and solver texts."""
        plain = {"solve_s": 0.0, "solver_words": ""}
        return msgspec.structs.replace(self, **plain) == msgspec.structs.replace(other, **plain)


def _action(given: object) -> Action:
    if isinstance(given, Action):
        return given
    raise TypeError


# Template for decision_of(), which replaces fields without validating them again
_USUAL: Final = Decision(
    time_s=0.0,
    number=1,
    pool=0,
    used=0,
    sizes=NOTHING,
    value=0.0,
    bound=0.0,
    solver=UNCHANGED,
    termination=Termination.OPTIMAL,
    quality=Quality.PROVEN,
)


def decision_of(*, time_s: float, sizes: Mapping[str, int], **fields: Any) -> Decision:  # noqa: ANN401 - fields of a decision
    """Return a decision of the core, with frozen ``sizes``.

    Only values from plug-ins, and times from the caller, are checked.
    """
    given = fields["notes"] or fields["kinds"] or fields["batches"] or fields["fallback"]
    if given or type(time_s) is not float or not isfinite(time_s):
        return Decision(time_s=time_s, sizes=sizes, **fields)
    frozen = sizes if isinstance(sizes, MappingProxyType) else MappingProxyType(sizes)
    return unchecked(_USUAL, time_s=time_s, sizes=frozen, **fields)
