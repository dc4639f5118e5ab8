"""An objective that ties tasks together, which ``exact`` cannot express, by the name that settings take."""

from __future__ import annotations

from typing import Final

from bftrain_solvers.worst_off_objective import WorstOff

COUPLED: Final = f"{__file__}:{WorstOff.__name__}"
