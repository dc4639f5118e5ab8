"""Whether a scheduler's commands are on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from bftrain.ports import Availability


def found_all(programs: Sequence[str], remedy: str) -> Availability:
    """Say whether all ``programs`` are on PATH, without running any."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return Availability(ok=True)
    return Availability(ok=False, reason=f"no command {', '.join(missing)} here", fix=remedy)
