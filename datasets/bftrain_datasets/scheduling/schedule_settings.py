"""Settings of a simulated main scheduler (docs/how-to/schedule.md). The same settings and log give the same figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import msgspec

from bftrain.errors import BadInput
from bftrain.files import text_lines
from bftrain.values import checks

LIMIT: Final = "limit"
ACTUAL: Final = "actual"
LAST_TWO: Final = "last2"
ESTIMATES: Final = (LIMIT, ACTUAL, LAST_TWO)

FIRST_FIT: Final = "first-fit"
CONTIGUOUS: Final = "contiguous"
PLACEMENTS: Final = (FIRST_FIT, CONTIGUOUS)

WHOLE_NODES: Final = "none"
CORES: Final = "cores"
SHARINGS: Final = (WHOLE_NODES, CORES)

CONTINUOUS: Final = "continuous"
PUBLISHED: Final = "published"
DECAYS: Final = (CONTINUOUS, PUBLISHED)

BY_END: Final = "by-end"
OLDEST_FIRST: Final = "oldest-first"
DONE_CAMPAIGNS: Final = (BY_END, OLDEST_FIRST)

LAST_SUBMIT: Final = "last-submit"
A_DAY_S: Final = 86_400.0


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``bftrain schedule``, one per option; ``None`` means the value in the log."""

    policy: str = "easy"  # which jobs start
    estimates: str = LIMIT  # run times used for planning
    nodes: int | None = None  # size of the machine
    cores_per_node: int | None = None
    sharing: str = WHOLE_NODES  # whole nodes, or processors of shared nodes
    map: str = ""  # meanings of columns in a table of jobs, as for bftrain import
    preset: str = ""  # public set of the table
    least_run_s: float = 0.0  # lower bound of run times
    time_factor: float = 1.0  # the gaps between submissions are multiplied by it
    window: str = ""  # A..B: only jobs submitted then; seconds UTC or ISO times
    first: int | None = None  # only the first rows of the log
    until: str = ""  # end of the simulation: seconds UTC, an ISO time, or last-submit; "" when all jobs are done
    placement: str = FIRST_FIT  # choice among the free nodes
    backfill_depth: int = 50  # fairshare, ostrich: jobs examined after the first that has to wait
    backfill_interval_s: float = 0.0  # fairshare, ostrich: backfill at multiples of it only; 0 whenever jobs may start
    backfill_window_s: float = 0.0  # fairshare, ostrich: starts further ahead are not planned; 0 for no limit
    half_life_s: float = 7 * A_DAY_S  # fairshare: after which usage counts half; 0 for no decay
    decay: str = CONTINUOUS  # fairshare: how usage decays and is ranked
    campaign_gap_s: float = 600.0  # a job submitted later than this after a campaign's first begins a new one
    done_campaigns: str = BY_END  # ostrich: order of campaigns that ended virtually; "oldest-first" as published
    shares: str = ""  # file of the users' shares; "" for equal ones
    max_backlog_s: float = 30 * A_DAY_S  # a larger backlog, in time on the whole machine, ends the run

    def __post_init__(self) -> None:
        checks.text(self, "policy")
        checks.one_of(self, "estimates", ESTIMATES)
        checks.one_of(self, "placement", PLACEMENTS)
        checks.one_of(self, "sharing", SHARINGS)
        checks.one_of(self, "decay", DECAYS)
        checks.one_of(self, "done_campaigns", DONE_CAMPAIGNS)
        for name in ("nodes", "cores_per_node", "first"):
            if getattr(self, name) is not None:
                checks.integer(self, name, at_least=1)
        for name in ("time_factor", "campaign_gap_s", "max_backlog_s"):
            checks.number(self, name, above=0.0)
        for name in ("half_life_s", "backfill_interval_s", "backfill_window_s", "least_run_s"):
            checks.number(self, name, at_least=0.0)
        checks.integer(self, "backfill_depth", at_least=0)
        for name in ("window", "until", "shares", "map", "preset"):
            if getattr(self, name) != "":
                checks.text(self, name)


class ScheduleOptions(TypedDict, total=False):
    """The fields of ``ScheduleSettings`` as keyword arguments of ``bftrain.schedule``; a test compares the two."""

    policy: str
    estimates: str
    nodes: int | None
    cores_per_node: int | None
    sharing: str
    map: str
    preset: str
    least_run_s: float
    time_factor: float
    window: str
    first: int | None
    until: str
    placement: str
    backfill_depth: int
    backfill_interval_s: float
    backfill_window_s: float
    half_life_s: float
    decay: str
    campaign_gap_s: float
    done_campaigns: str
    shares: str
    max_backlog_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options of a policy: depth and times of backfilling, decay, and each user's share."""

    backfill_depth: int = 50
    backfill_interval_s: float = 0.0
    backfill_window_s: float = 0.0
    half_life_s: float = 0.0
    decay: str = CONTINUOUS
    done_campaigns: str = BY_END
    shares: Sequence[float] = ()


COMMENT: Final = "#"
FIX: Final = "write a user and a number above 0 on each line, such as: 17 2.5"


def load_shares(path: Path) -> dict[str, float]:
    """Return the shares by user from lines of user and share; users not listed have a share of 1."""
    shares: dict[str, float] = {}
    for number, line in text_lines(path):
        where = f"{path}:{number}"
        words = line.partition(COMMENT)[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != 2:  # noqa: PLR2004 - a user and a number
            raise BadInput(f"{len(words)} words", where=where, fix=FIX)
        user, text = words
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not 0 < share < math.inf:  # also false for NaN
            raise BadInput(f"{text!r} is not a share", where=where, fix=FIX)
        if user in shares:
            raise BadInput(f"names user '{user}' twice", where=where, fix="remove one of the lines")
        shares[user] = share
    return shares
