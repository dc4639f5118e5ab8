"""Parts of a workload import: options, row data, the reasons for unusable rows, and row counts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final, TypeVar

from bftrain.errors import BadInput, BadValue
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import HAZARDS, FindingsTally
from bftrain_datasets.importing.text_cells import MOST_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """Settings that are missing in a job file.

    ``format`` selects the reader (default: detected from the content). ``speeds`` is a throughput table. Tasks get the
    speeds on its node ``kinds`` (default: all); with ``node_kind``, only the speeds on this kind. ``reference`` is the
    kind for the ideal duration of a deadline. ``elastic`` allows all measured gangs instead of the requested one;
    ``by_hosts`` keeps their speeds on several hosts. ``per_node`` GPUs or processors make a node. Jobs larger than
    ``nodes`` nodes are rejected.

    Only the ``first`` jobs are considered. Jobs that arrive in the ``window`` (start and end on the file's clock)
    become tasks. ``submit_s`` counts from ``begin_s`` (seconds UTC; default: the first task). ``zone`` is the default
    time zone. A ``strict`` import stops at the first doubtful row.
    """

    format: str | None = None
    speeds: Path | str | None = None
    node_kind: str | None = None
    kinds: tuple[str, ...] = ()
    reference: str | None = None
    elastic: bool = False
    by_hosts: bool = False
    per_node: int | None = None
    nodes: int | None = None
    begin_s: float | None = None
    window: tuple[float | None, float | None] = (None, None)
    first: int | None = None
    zone: tzinfo = UTC
    strict: bool = False

    def __post_init__(self) -> None:
        for field in ("per_node", "nodes", "first"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise BadValue(f"must be at least 1, not {value}", where=f"WorkloadOptions.{field}")
        if self.by_hosts and (self.per_node or 1) > 1:
            what, fix = "counts GPUs, and per_node makes nodes of them", "omit one"
            raise BadValue(what, where="WorkloadOptions.by_hosts", fix=fix)
        if self.kinds and self.node_kind is not None:
            fix = "set one: speeds of several kinds, or of one kind"
            raise BadValue("and node_kind are both set", where="WorkloadOptions.kinds", fix=fix)


_BATCH: Final = re.compile(r"\s*\(batch size (\d+)\)")
_ODD: Final = re.compile(r"[^a-z0-9]+")


def short(model: str) -> str:
    """Return a short form of a type, valid in task names: ``resnet-18-b64``."""
    plain = _ODD.sub("-", _BATCH.sub(r" b\1", model).lower()).strip("-")
    return plain or "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job that needs ``gang`` GPUs or processors simultaneously.

    It runs for ``duration_s`` seconds, or does ``steps`` steps of a ``model``. ``nodes`` is the number of whole nodes,
    if the file has it. The deadline is ``slack`` times the ideal duration after submission.
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
    """Raised for an unusable row: ``reason`` is a hazard name, ``what`` the problem, ``fix`` the advice."""

    def __init__(self, reason: str, what: str, fix: str = "correct the row, or remove it") -> None:
        super().__init__(reason, what, fix)
        self.reason = reason
        self.what = what
        self.fix = fix


def number_of(text: str, field: str, *, reason: str = "malformed") -> float:
    """Return the number in a field."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnusableJob(reason, f"{field}: {text[:40]!r} is not a number", f"write {field} as a plain number")
    return value


def gang_of(text: str, field: str) -> int:
    """Return a job's number of GPUs or processors; 0 if missing."""
    digits = text.strip().removesuffix(".0")
    if not digits.isdecimal():
        raise UnusableJob("malformed", f"{field}: {text[:40]!r} is not a whole number", "use a whole number")
    if len(digits) > MOST_DIGITS or int(digits) > MOST_NODES:
        raise UnusableJob("bad_value", f"{field}: {digits[:40]} are more than any machine has")
    if int(digits) == 0:
        raise UnusableJob("no_usage", f"{field}: 0")
    return int(digits)


def duration_of(seconds: float, field: str) -> float:
    """Return a run time after checking that it is not negative."""
    if seconds < 0:
        raise UnusableJob("bad_value", f"{field}: {seconds:g} s is negative")
    if seconds == 0:
        raise UnusableJob("no_usage", f"{field}: 0")
    return seconds


T = TypeVar("T")

MOST_KEPT: Final = 1000  # rejected rows with messages; further rows are only counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A rejected row: the ``reason`` is a hazard name, ``where`` its place, ``what`` the problem."""

    reason: str
    where: str
    what: str


class WorkloadRowCounts(FindingsTally):
    """The tally of a file, with messages for rejected rows, up to a limit."""

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self.strict = strict
        self.refused: list[RefusedRow] = []

    def jobs(self, rows: Iterable[tuple[int, T]], make: Callable[[T], TrainingJob]) -> Iterator[TrainingJob]:
        """Yield the job that ``make`` returns for each (line, row); reject unusable rows."""
        for line, row in rows:
            self.row(line)
            try:
                job = make(row)
            except UnusableJob as why:
                self.refuse(why)
            else:
                yield job

    def refuse(self, why: UnusableJob) -> None:
        """Reject the row; a strict import stops here if the reason is a doubt."""
        where = self.where
        self.set_aside(why.reason)
        if self.strict and HAZARDS[why.reason].doubt:
            raise BadInput(why.what, where=where, fix=why.fix)
        if len(self.refused) < MOST_KEPT:
            self.refused.append(RefusedRow(reason=why.reason, where=where, what=why.what))
