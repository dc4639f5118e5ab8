"""``bftrain.load_run``: runs of every kind, read from their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain_replay.rounds.round_result import ROUNDS
from bftrain_replay.run.run import Run, load
from bftrain_replay.schedule_run import SCHEDULE
from bftrain_replay.study_run import REPLAY

KINDS: Final = (REPLAY, ROUNDS, SCHEDULE)


def load_run(folder: str | Path) -> Run:
    """Read the ``folder`` that a replay, a run in rounds or a schedule wrote; raises ``BadInput`` for any other.

    >>> from bftrain import load_run, replay
    >>> replay("log.npz", "tasks.toml").write("result")
    >>> load_run("result").tasks["name"].iloc[0]
    'a'
    """
    return load(Path(folder), KINDS)
