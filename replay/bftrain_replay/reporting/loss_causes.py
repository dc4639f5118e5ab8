"""Causes: why idle node-time did not become work that counts, in words and colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bftrain_replay.accounting.node_time_ledger import UnusedReason
from bftrain_replay.simulation.task_progress import SampleLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCause:
    """One way in which idle node-time went; ``key`` names it in the figures, ``meaning`` says what it is.

    ``happened`` ends a sentence that begins with so many node-hours. ``explanation`` says on what a cause depends that
    no setting changes; it is empty where only settings do, and replays try these
    (:mod:`bftrain_replay.alternatives.advice`).
    """

    key: str
    name: str
    meaning: str
    happened: str
    colour: str
    explanation: str
    lost: bool  # nodes were held, but the work was lost; otherwise they were not used


CAUSES: Final = (
    IdleCause(
        key=UnusedReason.NO_TASK,
        name="No task left",
        meaning="every task that had arrived was finished",
        happened="stayed unused because every task that had arrived was finished",
        colour="@unused",
        explanation="The tasks that were handed in need no more: only more tasks, or longer ones, use this time.",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.TASK_CAP,
        name="Too few compete",
        meaning="those that may compete were full, others waited outside (max_tasks)",
        happened="stayed unused because the tasks that may compete were full while others waited outside",
        colour="@unused",
        explanation="",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.AT_MAXIMUM,
        name="Tasks are full",
        meaning="every task was at its largest size",
        happened="stayed unused because every task was at its largest size",
        colour="@unused",
        explanation="The number of tasks and the largest size of each (max_nodes) limit what is used.",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.BELOW_MINIMUM,
        name="Too few nodes",
        meaning="fewer were left than any waiting task needs",
        happened="stayed unused because they were fewer nodes than any waiting task needs",
        colour="@unused",
        explanation="Only tasks that run on fewer nodes (min_nodes) can use them.",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.NOT_WORTH,
        name="Too short to be worth it",
        meaning="taking them would have cost more than it gained",
        happened="stayed unused because taking them would have cost more than it gained",
        colour="@unused",
        explanation="How much it is depends on what rescaling and start-up cost, and on how long nodes stay.",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.UNDECIDED,
        name="Not yet decided",
        meaning="the decision on them was still to take effect",
        happened="stayed unused until a decision on them took effect",
        colour="@unused",
        explanation="How much it is depends on how soon decisions take effect: --decision-latency and --min-interval.",
        lost=False,
    ),
    IdleCause(
        key=UnusedReason.OTHER_KIND,
        name="Of the other kind",
        meaning="tasks that wanted more run on other kinds of nodes, or held some",
        happened="stayed unused because tasks that wanted more run on other kinds of nodes, or held some",
        colour="@unused",
        explanation="Only tasks whose speed on these nodes is measured can use them.",
        lost=False,
    ),
    IdleCause(
        key=SampleLoss.START_UP,
        name="Start-up",
        meaning="waits while tasks began on fresh nodes",
        happened="went by while tasks began on fresh nodes",
        colour="@start",
        explanation="How much it is depends on what a start takes: launching workers and reading a checkpoint.",
        lost=True,
    ),
    IdleCause(
        key=SampleLoss.RESCALING,
        name="Rescaling",
        meaning="waits while running tasks changed their size",
        happened="went by while running tasks changed their size",
        colour="@rescaling",
        explanation="",
        lost=True,
    ),
    IdleCause(
        key=SampleLoss.PREEMPTION,
        name="Preemption",
        meaning="work to be done again after nodes were taken back",
        happened="of work had to be done again after nodes were taken back",
        colour="@preempted",
        explanation="How much it is depends on how tasks keep their progress: --progress.",
        lost=True,
    ),
    IdleCause(
        key=SampleLoss.UNNOTICED,
        name="Finished unnoticed",
        meaning="spent by tasks that had ended, until the next event",
        happened="went to tasks that were finished already, before that was noticed",
        colour="@unnoticed",
        explanation="This is a rule of the published replayer; realistic replays notice at once.",
        lost=True,
    ),
)


def node_hours(summary: Mapping[str, Any], cause: IdleCause) -> float:
    """Node-hours that went this way."""
    if cause.lost:
        return float(summary["lost"][cause.key]["node_h"])
    return float(summary["unused_node_h"].get(cause.key, 0.0))  # one of the reasons is there only where kinds differ


def useful_node_hours(summary: Mapping[str, Any]) -> float:
    """Node-hours of work that counts."""
    return float(summary["used_node_h"]) - sum(float(lost["node_h"]) for lost in summary["lost"].values())
