"""A coupled objective, which ``exact`` does not support, and its name as settings take it."""

from __future__ import annotations

from typing import Final

from bftrain_solvers.worst_off_objective import WorstOff

__all__ = ["COUPLED", "WorstOff"]

COUPLED: Final = f"{__file__}:{WorstOff.__name__}"
