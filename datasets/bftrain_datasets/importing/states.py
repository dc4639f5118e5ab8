"""States of nodes and jobs as schedulers write them, mostly Slurm."""

from __future__ import annotations

import math
import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.importing.text_columns import Texts, by_text
from bftrain_datasets.log.eventlog import NodeState

FLAGS: Final = "*~#!%$@^-+"  # suffixes that sinfo appends to a state
# Not responding, powering down, in maintenance, rebooting. Powered down (~)
# and powering up (#) are excluded: such a node is available to any job that requests it.
UNUSABLE_FLAGS: Final = frozenset("*!%$@^")
UNUSABLE_WORDS: Final = frozenset(
    (
        "drain", "maint", "maintenance", "not_responding", "no_respond", "power_down", "powering_down", "fail", "down",
        "future", "reboot", "reboot_requested", "reboot_issued", "invalid_reg", "inval", "external", "blocked",
    )
)  # fmt: skip

IDLE_STATES: Final = ("idle", "planned", "plnd", "power_save", "powered_down")
# A draining node still runs jobs; a reserved node waits for a scheduled job
BUSY_STATES: Final = (
    "allocated", "alloc", "mixed", "mix", "completing", "comp", "reserved", "resv", "draining", "drng",
    "failing", "failg", "blocked", "block", "suspended",
)  # fmt: skip
DOWN_STATES: Final = (
    "down", "drained", "drain", "fail", "maint", "unknown", "unk", "boot", "power_up", "pow_up", "powering_up",
    "power_down", "pow_dn", "powering_down", "future", "futr", "inval", "no_respond", "reboot", "reboot_issued",
    "reboot_requested", "perfctrs", "npc", "error", "noresp",
)  # fmt: skip

_NODE_STATES: Final[dict[str, NodeState]] = {
    **dict.fromkeys(DOWN_STATES, NodeState.DOWN),
    **dict.fromkeys(BUSY_STATES, NodeState.BUSY),
    **dict.fromkeys(IDLE_STATES, NodeState.IDLE),
}


@lru_cache(maxsize=1 << 12)
def node_state_of(text: str) -> NodeState | None:
    """Return a node's state from Slurm's term, or None if the term is unknown."""
    word = text.lower().rstrip(FLAGS)
    flags = text[len(word) :]
    base, *more = word.split("+")
    state = _NODE_STATES.get(base)
    if state == NodeState.IDLE and (UNUSABLE_FLAGS.intersection(flags) or UNUSABLE_WORDS.intersection(more)):
        return NodeState.DOWN
    return state


class JobState(IntEnum):
    """State of a job, as far as it matters for its times and findings."""

    OTHER = 0
    WAITING = 1
    REQUEUED = 2
    RUNNING = 3
    COMPLETING = 4  # a job with an end is over; only its epilog still runs
    RESIZING = 5  # one record per size: all except the last have an end
    PREEMPTED = 6
    NODE_FAILED = 7


_JOB_STATES: Final[dict[str, JobState]] = {
    **dict.fromkeys(("PENDING", "PD", "QUEUED", "Q", "WAITING"), JobState.WAITING),
    **dict.fromkeys(("REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"), JobState.REQUEUED),
    # A configuring job waits for nodes already allocated to it
    **dict.fromkeys(
        ("RUNNING", "R", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"), JobState.RUNNING
    ),
    "COMPLETING": JobState.COMPLETING,
    "RESIZING": JobState.RESIZING,
    "PREEMPTED": JobState.PREEMPTED,
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), JobState.NODE_FAILED),
}
_WORD: Final = re.compile(r"\w+")


def job_states_of(column: Texts) -> NDArray[np.int8]:
    """Return each job's state, from the first word of its text."""

    def state_of(text: str) -> int:
        match = _WORD.search(text.upper())
        return _JOB_STATES.get(match[0], JobState.OTHER) if match else JobState.OTHER

    return by_text(column, state_of, np.int8)


def apply_job_states(
    states: NDArray[np.int8], start: NDArray[np.float64], end: NDArray[np.float64], named: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Change start and end times by job state; return the mask of running jobs that had an end.

    Jobs that never started have neither time; the end is infinite while a job runs. ``named`` are the jobs with nodes:
    a requeued job with nodes and an end has run. Unreadable times are kept.
    """
    had_end = end > start
    readable = ~(np.isneginf(start) | np.isneginf(end))
    waiting = readable & ((states == JobState.WAITING) | ((states == JobState.REQUEUED) & ~(had_end & named)))
    running = readable & (
        (states == JobState.RUNNING)
        | ((states == JobState.COMPLETING) & ~had_end)
        | ((states == JobState.RESIZING) & np.isnan(end))
    )
    start[waiting] = end[waiting] = np.nan
    end[running] = math.inf
    runs_until_end: NDArray[np.bool_] = running & had_end
    return runs_until_end
