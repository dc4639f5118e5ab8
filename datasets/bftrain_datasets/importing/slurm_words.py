"""Words of Slurm: for states of nodes, such as ``idle~`` or ``MIXED+PLANNED``, and for no time and no nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from bftrain_datasets.log.eventlog import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

NO_TIME: Final = frozenset({"", "0", "unknown", "none", "n/a"})
NO_NODES: Final = frozenset({"", "none assigned", "none", "unknown", "n/a", "(null)"})

FLAGS: Final = "*~#!%$@^-+"  # that sinfo appends to a state
# Not responding, going to be powered down or being so, in maintenance, to be rebooted or being so. Powered down (~)
# and powering up (#) are left: such a node is there for any job that asks for it.
UNUSABLE_FLAGS: Final = frozenset("*!%$@^")
UNUSABLE_WORDS: Final = frozenset(
    (
        "drain", "maint", "maintenance", "not_responding", "no_respond", "power_down", "powering_down", "fail", "down",
        "future", "reboot", "reboot_requested", "reboot_issued", "invalid_reg", "inval", "external", "blocked",
    )
)  # fmt: skip

IDLE_STATES: Final = ("idle", "planned", "plnd", "power_save", "powered_down")
# A node that drains still runs jobs; one that is reserved waits for a job of the scheduler's
BUSY_STATES: Final = (
    "allocated", "alloc", "mixed", "mix", "completing", "comp", "reserved", "resv", "draining", "drng",
    "failing", "failg", "blocked", "block", "suspended",
)  # fmt: skip
DOWN_STATES: Final = (
    "down", "drained", "drain", "fail", "maint", "unknown", "unk", "boot", "power_up", "pow_up", "powering_up",
    "power_down", "pow_dn", "powering_down", "future", "futr", "inval", "no_respond", "reboot", "reboot_issued",
    "reboot_requested", "perfctrs", "npc", "error", "noresp",
)  # fmt: skip

_STATES: Final[dict[str, NodeState]] = {
    **dict.fromkeys(DOWN_STATES, NodeState.DOWN),
    **dict.fromkeys(BUSY_STATES, NodeState.BUSY),
    **dict.fromkeys(IDLE_STATES, NodeState.IDLE),
}


@lru_cache(maxsize=1 << 12)
def state_of(text: str) -> NodeState | None:
    """Tell what a node in this state is to us, or None if it is no state of Slurm."""
    word = text.lower().rstrip(FLAGS)
    flags = text[len(word) :]
    base, *more = word.split("+")
    state = _STATES.get(base)
    if state == NodeState.IDLE and (UNUSABLE_FLAGS.intersection(flags) or UNUSABLE_WORDS.intersection(more)):
        return NodeState.DOWN
    return state


def moment_of(text: str, seconds: Callable[[str], float]) -> float | None:
    """Seconds UTC, or None where Slurm says in one of its ways that there was no such moment: 0 is one of them."""
    try:
        return seconds(text) or None
    except ValueError:
        if text.lower() in NO_TIME:
            return None
        raise


def nodes_of(text: str) -> str:
    """Give a node set as it is, or nothing where Slurm says in one of its ways that there is none."""
    return "" if text.lower() in NO_NODES else text
