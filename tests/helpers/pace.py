"""How long things may take on a machine that has other work."""

from __future__ import annotations

import os


def busy_s(idle_s: float) -> float:
    """Return how long what takes up to ``idle_s`` seconds on an idle machine may take on this one, now."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return idle_s * max(1.0, waiting)
