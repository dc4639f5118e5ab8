"""TrainingJob: what one row of a workload says; and Unusable: why it cannot become a task."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.text_cells import MOST_DIGITS


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
