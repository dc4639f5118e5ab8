"""The name of a coupled objective, which ``exact`` does not support, as settings take it."""

from __future__ import annotations

from typing import Final

from bftrain_solvers.worst_off_objective import WorstOff

COUPLED: Final = f"{__file__}:{WorstOff.__name__}"
