"""Text about fallback decisions, where the chosen solver gave no sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bftrain.values.decision import UNCHANGED
from bftrain.values.solution import Termination

# Name of the replay without costs. It is no bound: if other tasks finish first, a replay with costs can harvest more
CEILING: Final = "without costs"
_LEAST_SHARE: Final = 0.01  # fraction of the decisions; smaller shares do not relabel a column
_HAPPENED: Final[Mapping[str, str]] = {
    Termination.INFEASIBLE: "found no plan",
    Termination.TIME_LIMIT: "ran out of time",
    Termination.INTERRUPTED: "was interrupted",
    Termination.FAILED: "failed",
}


def sentence(
    solver: str, decisions: int, causes: Mapping[str, int], decided_by: Mapping[str, int], *, called: str = ""
) -> str:
    """Return how often ``solver`` did not decide, the reasons and the fallbacks; "" if it always decided.

    ``causes`` counts the solver's missing decisions by cause, ``decided_by`` all decisions by decider. ``called`` is
    the solver's name in the sentence.

    >>> sentence("highs", 305, {"infeasible": 305}, {"greedy": 305})
    'highs found no plan in 305 of 305 decisions; greedy decided'
    """
    others = _others(solver, decided_by)
    if not causes or not others:
        return ""
    *first, last = (f"{_HAPPENED.get(cause, f'ended with {cause!r}')} in {count:,}" for cause, count in causes.items())
    failed = f"{', '.join(first)} and {last}" if first else last
    return f"{called or solver} {failed} of {decisions:,} decisions; {_instead(others)}"


def column_label(solver: str, decisions: int, decided_by: Mapping[str, int], name: str = "") -> str:
    """Return the column heading of a solver: ``name`` (default: its own), with its fallbacks and their share.

    >>> column_label("highs", 305, {"greedy": 305})
    'highs (greedy decided 100 %)'
    """
    part = _share(solver, decisions, decided_by)
    return f"{name or solver} ({part})" if part else name or solver


def _share(solver: str, decisions: int, decided_by: Mapping[str, int]) -> str:
    """Return the share of fallback decisions as text; "" below 1 %."""
    others = _others(solver, decided_by)
    count = sum(others.values())
    if not decisions or count < _LEAST_SHARE * decisions:
        return ""
    percent = f"{100.0 * count / decisions:.0f} %"
    if percent == "100 %" and count < decisions:
        percent = "> 99 %"
    if len(others) > 1:
        return f"others decided {percent}"
    (who,) = others
    return f"{percent} {UNCHANGED}" if who == UNCHANGED else f"{who} decided {percent}"


def _others(solver: str, decided_by: Mapping[str, int]) -> dict[str, int]:
    return {who: count for who, count in decided_by.items() if who != solver and count}


def _instead(others: Mapping[str, int]) -> str:
    if len(others) == 1:
        (who,) = others
        return "sizes stayed unchanged" if who == UNCHANGED else f"{who} decided"
    return ", ".join(
        f"sizes stayed unchanged in {count:,}" if who == UNCHANGED else f"{who} decided {count:,}"
        for who, count in others.items()
    )
