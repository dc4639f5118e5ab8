"""DecisionRequest: the input of one decision at one moment, so that another thread can solve it."""

from __future__ import annotations

import msgspec

from bftrain.values.problem import AllocationProblem


class DecisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The competing tasks and the nodes at ``time_s``; ``problem`` is ``None`` if no task competes.

    ``named`` are the tasks that the admission named, ``admitted`` the known ones of them. ``asked_after`` counts
    what had happened by then, so that an answer that comes too late is known as such.
    """

    time_s: float
    asked_after: int
    named: tuple[str, ...]
    admitted: tuple[str, ...]
    problem: AllocationProblem | None
