"""TrainingJob: what one row of a workload says; UnusableJob: why it cannot become a task; and the row counts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import HAZARDS, FindingsTally
from bftrain_datasets.importing.text_cells import MOST_DIGITS

_BATCH: Final = re.compile(r"\s*\(batch size (\d+)\)")
_ODD: Final = re.compile(r"[^a-z0-9]+")


def short(model: str) -> str:
    """Shorten a type to what can stand in the name of a task: ``resnet-18-b64``."""
    plain = _ODD.sub("-", _BATCH.sub(r" b\1", model).lower()).strip("-")
    return plain or "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job that wants ``gang`` GPUs or processors all at once.

    Either it runs for ``duration_s`` seconds, or it does ``steps`` steps of a ``model``. ``nodes`` is how many whole
    nodes it wants, where the file itself says so. ``slack`` times its ideal duration is what it may take.
    """

    name: str
    submit_s: float
    gang: int
    nodes: int | None = None
    duration_s: float | None = None
    steps: float | None = None
    model: str = ""
    weight: float = 1.0
    slack: float | None = None
    user: str = ""


class UnusableJob(Exception):
    """A row becomes no task: the ``reason`` is the name of a hazard; ``what`` is wrong, and the ``fix``."""

    def __init__(self, reason: str, what: str, fix: str = "correct the row, or leave it out") -> None:
        super().__init__(reason, what, fix)
        self.reason = reason
        self.what = what
        self.fix = fix


def number_of(text: str, field: str, *, reason: str = "malformed") -> float:
    """Read the number in a field."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnusableJob(reason, f"{field}: {text[:40]!r} is no number", f"give {field} as a plain number")
    return value


def gang_of(text: str, field: str) -> int:
    """Read how many GPUs or processors a job wants: 0 says that it wants none."""
    digits = text.strip().removesuffix(".0")
    if not digits.isdecimal():
        raise UnusableJob("malformed", f"{field}: {text[:40]!r} is no whole number", f"give {field} as a whole number")
    if len(digits) > MOST_DIGITS or int(digits) > MOST_NODES:
        raise UnusableJob("bad_count", f"{field}: {digits[:40]} are more than any machine has")
    if int(digits) == 0:
        raise UnusableJob("no_gpus", f"{field}: 0")
    return int(digits)


def duration_of(seconds: float, field: str) -> float:
    """Check how long a job ran."""
    if seconds < 0:
        raise UnusableJob("backwards", f"{field}: {seconds:g} s is less than nothing")
    if seconds == 0:
        raise UnusableJob("no_work", f"{field}: 0")
    return seconds


T = TypeVar("T")

MOST_KEPT: Final = 1000  # refusals whose words are kept; all of them are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that became no task: the ``reason`` is the name of a hazard; ``where`` it stands, ``what`` is wrong."""

    reason: str
    where: str
    what: str


class WorkloadRowCounts(FindingsTally):
    """The tally of one file, with the words of what was refused; of very many rows some are only counted."""

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self.strict = strict
        self.refused: list[RefusedRow] = []

    def jobs(self, rows: Iterable[tuple[int, T]], make: Callable[[T], TrainingJob]) -> Iterator[TrainingJob]:
        """Yield the job that is made of each row, given after its line; rows that cannot be used are refused."""
        for line, row in rows:
            self.row(line)
            try:
                job = make(row)
            except UnusableJob as why:
                self.refuse(why)
            else:
                yield job

    def refuse(self, why: UnusableJob) -> None:
        """Leave the row unused; a strict import ends here if that is doubtful."""
        where = self.where
        self.set_aside(why.reason)
        if self.strict and HAZARDS[why.reason].doubt:
            raise BadInput(why.what, where=where, fix=why.fix)
        if len(self.refused) < MOST_KEPT:
            self.refused.append(RefusedRow(reason=why.reason, where=where, what=why.what))
