"""Old settings: what a ``config.toml`` of an earlier version leaves open, and how to get the figures of then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_replay.simulation.progress_assumptions import MEMORY, TASK
from bftrain_replay.simulation.replay_settings import PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Mapping

# A replay always writes all of these, so a file without one of them was written by hand and means today's defaults
_ALWAYS_WRITTEN: Final = ("solver", "max_tasks", "semantics", "events", "decision_latency_s", "cost_factor", "seed")
_SAY_HOW: Final = ("progress", "checkpoint_interval_s")


def note_on_progress(written: Mapping[str, object]) -> str:
    """Return a warning if a replay wrote these settings before ``progress`` was one of them; otherwise nothing.

    >>> note_on_progress({"solver": "greedy"})
    ''
    """
    whole = all(name in written for name in _ALWAYS_WRITTEN)
    if not whole or written["semantics"] == PUBLISHED or any(name in written for name in _SAY_HOW):
        return ""
    return (
        f"these settings are of an earlier version and do not say how progress is kept: it was as the tasks say, and "
        f"is now in memory (--progress {MEMORY}), so the figures differ; --progress {TASK} gives those of then"
    )
