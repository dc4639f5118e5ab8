"""Outcomes: what came of each pass of a sweep, in a file that only grows.

A line is written whole and synced before the next pass is looked at, so any end of a sweep costs the passes in hand
and no more. The last line of a pass counts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

import msgspec

from bftrain.errors import BadInput
from bftrain.files import naming
from bftrain.values import wire
from bftrain_replay.metrics.task_figures import TaskFigures
from bftrain_replay.results.result import MeasuredTimings, ReferenceFigures, ReplaySummary
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.sweeping.sweep_runs import MadeFrom

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import IO

FORMAT: Final = "bftrain sweep 1"
POINTS: Final = "points.jsonl"
_BEGIN_AGAIN: Final = "move the file away to begin again"


class PassStatus(StrEnum):
    """How a pass ended."""

    DONE = "done"
    FAILED = "failed"


class InRounds(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a run in rounds, those of its measured tasks, and what a clock measured."""

    figures: RoundSummary
    tasks: TaskFigures
    wall_s: float
    shares_wall_s: float


class PassOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a pass: figures of a replay, of rounds or yardsticks, or the reason why there are none.

    ``ended`` says why a replay on a cluster, where nodes never leave, came to an end.
    """

    id: str
    status: PassStatus
    reason: str = ""
    figures: ReplaySummary | None = None
    timings: MeasuredTimings | None = None
    ended: str = ""
    rounds: InRounds | None = None
    yardsticks: ReferenceFigures | None = None
    warnings: tuple[str, ...] = ()
    doubtful_share: float | None = None  # of the idle node-time of the log
    log_source: str = ""  # "records", "counts" or "simulated"
    wall_s: float
    made_from: MadeFrom


class _Heading(msgspec.Struct, frozen=True, kw_only=True):
    format: str


class OutcomeFile:
    """The file of a folder; use it in a ``with`` block. The folder is locked by :class:`ResultFolder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / POINTS
        self._file: IO[bytes] | None = None
        self.known: dict[str, PassOutcome] = {}

    def __enter__(self) -> Self:
        self._file = self._path.open("a+b")
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, outcome: PassOutcome) -> None:
        """Take down what came of a pass."""
        self.known[outcome.id] = outcome
        self._append(wire.encode(outcome))

    def _append(self, line: bytes) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker: only used inside the block
        with naming(self._path):
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _read(self) -> None:
        assert self._file is not None  # noqa: S101 - as above
        self._file.seek(0)
        self.known, whole = _read_outcomes(self._file, self._path)
        self._file.truncate(whole)
        if whole == 0:
            self._append(wire.encode(_Heading(format=FORMAT)))
            with suppress(OSError):  # some file systems sync no folders
                _sync_folder(self._path.parent)


def known_in(folder: Path) -> dict[str, PassOutcome]:
    """Give the outcomes in a folder, perhaps of a sweep that is at work in it."""
    path = folder / POINTS
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return _read_outcomes(file, path)[0]


def _read_outcomes(lines: Iterable[bytes], path: Path) -> tuple[dict[str, PassOutcome], int]:
    """Give what whole lines tell, and their length in bytes; the last one may be cut off where its sweep was ended."""
    known: dict[str, PassOutcome] = {}
    whole = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        where = f"{path}:{number}"
        if number == 1:
            found = wire.decode(line, _Heading, where=where, fix=_BEGIN_AGAIN).format
            if found != FORMAT:
                raise BadInput(f"is of the format {found!r}, not '{FORMAT}'", where=where, fix=_BEGIN_AGAIN)
        else:
            outcome = wire.decode(line, PassOutcome, where=where, fix=_BEGIN_AGAIN)
            known[outcome.id] = outcome
        whole += len(line)
    return known, whole


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
