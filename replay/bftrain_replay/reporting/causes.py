"""Causes: why idle node-time did not become work that counts, in words and colours, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bftrain_replay.ledger import Unused
from bftrain_replay.progress import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One way in which idle node-time went; ``key`` names it in the figures, ``help`` says what would make it less.

    ``meaning`` says what it is; ``happened`` ends a sentence that begins with so many node-hours.
    """

    key: str
    name: str
    meaning: str
    happened: str
    colour: str
    help: str
    lost: bool  # nodes were held, but the work was lost; otherwise they were not used


CAUSES: Final = (
    Cause(
        key=Unused.NO_TASK,
        name="No task left",
        meaning="every task that had arrived was finished",
        happened="stayed unused because every task that had arrived was finished",
        colour="@unused",
        help="Hand in more tasks, or longer ones.",
        lost=False,
    ),
    Cause(
        key=Unused.TASK_CAP,
        name="Too few compete",
        meaning="those that may compete were full, others waited outside (max_tasks)",
        happened="stayed unused because the tasks that may compete were full while others waited outside",
        colour="@unused",
        help="Let more tasks compete: raise --max-tasks.",
        lost=False,
    ),
    Cause(
        key=Unused.AT_MAXIMUM,
        name="Tasks are full",
        meaning="every task was at its largest size",
        happened="stayed unused because every task was at its largest size",
        colour="@unused",
        help="Hand in more tasks, or tasks that can grow larger (max_nodes).",
        lost=False,
    ),
    Cause(
        key=Unused.BELOW_MINIMUM,
        name="Too few nodes",
        meaning="fewer were left than any waiting task needs",
        happened="stayed unused because they were fewer nodes than any waiting task needs",
        colour="@unused",
        help="Hand in some tasks that run on fewer nodes (min_nodes).",
        lost=False,
    ),
    Cause(
        key=Unused.NOT_WORTH,
        name="Too short to be worth it",
        meaning="taking them would have cost more than it gained",
        happened="stayed unused because taking them would have cost more than it gained",
        colour="@unused",
        help="Make rescaling and start-up cheaper.",
        lost=False,
    ),
    Cause(
        key=Unused.UNDECIDED,
        name="Not yet decided",
        meaning="the decision on them was still to take effect",
        happened="stayed unused until a decision on them took effect",
        colour="@unused",
        help="Decide faster or more often: --decision-latency, --min-interval, a faster solver.",
        lost=False,
    ),
    Cause(
        key=Unused.OTHER_KIND,
        name="Of the other kind",
        meaning="tasks that wanted more run on other kinds of nodes, or held some",
        happened="stayed unused because tasks that wanted more run on other kinds of nodes, or held some",
        colour="@unused",
        help="Hand in tasks that run on these nodes, and measure their speed there.",
        lost=False,
    ),
    Cause(
        key=Loss.START_UP,
        name="Start-up",
        meaning="waits while tasks began on fresh nodes",
        happened="went by while tasks began on fresh nodes",
        colour="@start",
        help="Keep workers warm, or let tasks start from a checkpoint that is near.",
        lost=True,
    ),
    Cause(
        key=Loss.RESCALING,
        name="Rescaling",
        meaning="waits while running tasks changed their size",
        happened="went by while running tasks changed their size",
        colour="@rescaling",
        help="Make rescaling cheaper, or rarer: --min-interval.",
        lost=True,
    ),
    Cause(
        key=Loss.PREEMPTION,
        name="Preemption",
        meaning="work to be done again after the batch queue took nodes back",
        happened="of work had to be done again after the batch queue took nodes back",
        colour="@preempted",
        help="Commit more often, so that less is lost when nodes are taken back.",
        lost=True,
    ),
    Cause(
        key=Loss.UNNOTICED,
        name="Finished unnoticed",
        meaning="spent by tasks that had ended, until the next event",
        happened="went to tasks that were finished already, before that was noticed",
        colour="@unnoticed",
        help="This is a rule of the published replayer; realistic replays notice at once.",
        lost=True,
    ),
)


def node_hours(told: Mapping[str, Any], cause: Cause) -> float:
    """Node-hours that went this way."""
    if cause.lost:
        return float(told["lost"][cause.key]["node_h"])
    return float(told["unused_node_h"].get(cause.key, 0.0))  # one of the reasons is there only where kinds differ


def useful_node_hours(told: Mapping[str, Any]) -> float:
    """Node-hours of work that counts."""
    return float(told["used_node_h"]) - sum(float(lost["node_h"]) for lost in told["lost"].values())
