"""Settings of a simulated main scheduler (docs/how-to/schedule.md). Equal settings and logs give equal figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from bftrain.errors import BadInput
from bftrain.files import text_lines
from bftrain.values import options
from bftrain.values.options import Option

LIMIT: Final = "limit"
ACTUAL: Final = "actual"
ESTIMATES: Final = (LIMIT, ACTUAL)

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
_LOG: Final = "the log's value"


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``bftrain schedule``; ``None`` means the log's value, or for ``first`` all rows."""

    policy: Annotated[str, Option("fcfs, easy, fairshare, ostrich, ostrich-fifo, or FILE.py:NAME")] = "easy"
    estimates: Annotated[str, Option("The run times that the policy sees", choices=ESTIMATES, rare=True)] = LIMIT
    nodes: Annotated[int | None, Option("Nodes of the machine", default=_LOG, at_least=1)] = None
    cores_per_node: Annotated[int | None, Option("Processors of a node", default=_LOG, at_least=1, rare=True)] = None
    sharing: Annotated[str, Option("none: a job gets whole nodes; cores: processors", choices=SHARINGS)] = WHOLE_NODES
    map: Annotated[
        str, Option("Meanings of columns in a table of jobs: submit=COL, start=COL, elapsed=COL:min, count=COL")
    ] = ""
    preset: Annotated[str, Option("The table is of this public set: pm100, alcf, helios ..", rare=True)] = ""
    least_run_s: Annotated[float, Option("Minimum run time in seconds", at_least=0.0, rare=True)] = 0.0
    time_factor: Annotated[
        float, Option("Multiplies the gaps between submissions; below 1 the load rises", above=0.0, rare=True)
    ] = 1.0
    window: Annotated[str, Option("Only jobs submitted in A:B, seconds UTC or ISO times; either may be empty")] = ""
    first: Annotated[int | None, Option("Only the first rows of the log", at_least=1, rare=True)] = None
    until: Annotated[str, Option("End: seconds UTC, an ISO time, or last-submit", default="when all jobs are done")] = (
        ""
    )
    backfill_depth: Annotated[
        int, Option("fairshare, ostrich: jobs to plan, from the first that does not fit", at_least=0, rare=True)
    ] = 50
    backfill_interval_s: Annotated[
        float,
        Option(
            "fairshare, ostrich: backfill only at multiples of these seconds; 0: at any time", at_least=0.0, rare=True
        ),
    ] = 0.0
    backfill_window_s: Annotated[
        float,
        Option("fairshare, ostrich: plan starts up to this many seconds ahead; 0: no limit", at_least=0.0, rare=True),
    ] = 0.0
    half_life_s: Annotated[
        float, Option("fairshare: half-life of usage in seconds; 0: no decay", at_least=0.0, rare=True)
    ] = 7 * A_DAY_S
    decay: Annotated[str, Option("fairshare: decay and ranking of usage", choices=DECAYS, rare=True)] = CONTINUOUS
    campaign_gap_s: Annotated[
        float,
        Option(
            "Jobs at least these seconds after the first job of a campaign start a new campaign", above=0.0, rare=True
        ),
    ] = 600.0
    done_campaigns: Annotated[
        str, Option("ostrich: order of virtually finished campaigns", choices=DONE_CAMPAIGNS, rare=True)
    ] = BY_END
    shares: Annotated[str, Option("fairshare, ostrich: file of users and their shares", default="equal shares")] = ""
    max_backlog_s: Annotated[
        float, Option("Stop when more work waits than the machine does in this many seconds", above=0.0, rare=True)
    ] = 30 * A_DAY_S

    def __post_init__(self) -> None:
        options.check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """The settings that concern a policy, with the same names, and each user's share."""

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
