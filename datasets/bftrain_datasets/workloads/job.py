"""Parts of a workload import: options, row data, and the reasons for unusable rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final, TypeVar

from bftrain.errors import BadValue
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import FindingsTally, SkippedRow
from bftrain_datasets.importing.text_columns import MOST_DIGITS

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """Settings that are missing in a job file.

    ``format`` selects the reader (default: detected from the content). ``speeds`` is a throughput table. Tasks get the
    speeds on its node ``kinds`` (default: all). ``reference`` is the kind for the ideal duration of a deadline.
    ``elastic`` allows all measured gangs instead of the requested one; ``by_hosts`` keeps their speeds on several
    hosts. ``per_node`` GPUs or processors make a node. Jobs larger than ``nodes`` nodes are rejected.

    Only the ``first`` jobs are considered. Jobs that arrive in the ``window`` (start and end on the file's clock)
    become tasks. ``submit_s`` counts from ``begin_s`` (seconds UTC; default: the first task). ``zone`` is the default
    time zone. A ``strict`` import rejects doubtful rows.
    """

    format: str | None = None
    speeds: Path | str | None = None
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
            what, fix = "counts GPUs, but per_node groups GPUs into nodes", "omit one"
            raise BadValue(what, where="WorkloadOptions.by_hosts", fix=fix)


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


def number_of(text: str, *, reason: str = "malformed", at_least: float = -math.inf) -> float:
    """Return the number in a field."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < at_least:
        raise SkippedRow(reason)
    return value


def gang_of(text: str) -> int:
    """Return a job's number of GPUs or processors, at least 1."""
    digits = text.strip().removesuffix(".0")
    if not digits.isdecimal():
        raise SkippedRow("malformed")
    if len(digits) > MOST_DIGITS or int(digits) > MOST_NODES:
        raise SkippedRow("bad_value")
    if int(digits) == 0:
        raise SkippedRow("no_usage")
    return int(digits)


def duration_of(seconds: float) -> float:
    """Return a run time after checking that it is positive."""
    if seconds <= 0:
        raise SkippedRow("no_usage" if seconds == 0 else "bad_value")
    return seconds


def jobs_of(
    tally: FindingsTally, rows: Iterable[tuple[int, T]], make: Callable[[T], TrainingJob]
) -> Iterator[TrainingJob]:
    """Yield the job that ``make`` returns for each (line, row); skip unusable rows."""
    for line, row in rows:
        tally.row(line)
        try:
            job = make(row)
        except SkippedRow as why:
            tally.set_aside(why.reason)
        else:
            yield job
