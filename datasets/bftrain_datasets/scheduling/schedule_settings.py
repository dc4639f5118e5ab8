"""Settings of a simulated main scheduler. With these and the same log, every figure repeats (docs/schedule.md)."""

from __future__ import annotations

from typing import Final, TypedDict

import msgspec

from bftrain.errors import suggestion
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

LAST_SUBMIT: Final = "last-submit"
A_DAY_S: Final = 86_400.0


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a log is rescheduled. Each field is an option of ``bftrain schedule``; ``None`` leaves it to the log."""

    policy: str = "easy"  # who starts when
    estimates: str = LIMIT  # which run times the policy plans with
    nodes: int | None = None  # of the machine
    cores_per_node: int | None = None
    sharing: str = WHOLE_NODES  # whether jobs get whole nodes, or processors of nodes that they share
    time_factor: float = 1.0  # the gaps between submissions are multiplied by it
    window: str = ""  # A..B: only jobs submitted then; seconds UTC or ISO times
    first: int | None = None  # only so many rows of the log, from its begin
    until: str = ""  # when it ends: seconds UTC, an ISO time, or last-submit; "" when all jobs are done
    placement: str = FIRST_FIT  # which of the free nodes a job gets
    backfill_depth: int = 50  # fairshare, ostrich: how many jobs may be looked at after the first that has to wait
    half_life_s: float = 7 * A_DAY_S  # fairshare: after which usage counts half; 0 for ever
    campaign_gap_s: float = 600.0  # a job submitted so long after a campaign's first begins a new one
    shares: str = ""  # file of the users' shares; "" for equal ones
    max_backlog_s: float = 30 * A_DAY_S  # more waiting work than the whole machine does in this time ends it

    def __post_init__(self) -> None:
        """Check every field."""
        checks.text(self, "policy")
        _one_of(self, "estimates", ESTIMATES)
        _one_of(self, "placement", PLACEMENTS)
        _one_of(self, "sharing", SHARINGS)
        for name in ("nodes", "cores_per_node", "first"):
            if getattr(self, name) is not None:
                checks.integer(self, name, at_least=1)
        for name in ("time_factor", "campaign_gap_s", "max_backlog_s"):
            checks.number(self, name, above=0.0)
        checks.number(self, "half_life_s", at_least=0.0)
        checks.integer(self, "backfill_depth", at_least=0)
        for name in ("window", "until", "shares"):
            if getattr(self, name) != "":
                checks.text(self, name)


class ScheduleOptions(TypedDict, total=False):
    """The fields of ``ScheduleSettings`` as keyword arguments of ``bftrain.schedule``; a test keeps them alike."""

    policy: str
    estimates: str
    nodes: int | None
    cores_per_node: int | None
    sharing: str
    time_factor: float
    window: str
    first: int | None
    until: str
    placement: str
    backfill_depth: int
    half_life_s: float
    campaign_gap_s: float
    shares: str
    max_backlog_s: float


def _one_of(settings: ScheduleSettings, field: str, known: tuple[str, ...]) -> None:
    given = checks.text(settings, field)
    if given not in known:
        checks.reject(settings, field, f"is {given!r}", suggestion(given, known))
