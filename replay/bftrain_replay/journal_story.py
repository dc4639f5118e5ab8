"""The steps of a journal in sentences, with nodes, tasks and sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

import msgspec

from bftrain.journal import JournalStep
from bftrain.nodesets import fold
from bftrain.text_formats import counted
from bftrain.values.actions import Action, Grow, Release, Shrink, Start, Stop
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)

_CALENDAR_S: Final = 1e8  # times from here on are seconds since 1970, smaller ones count from the start of a log
_CHANGES: Final = {
    TaskFinished: "has finished",
    TaskCancelled: "was cancelled",
    TaskPaused: "was paused",
    TaskResumed: "was resumed",
    TaskEdited: "was edited by its owner",
}


class StepFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The steps to show, filtered by tasks, nodes and time; empty for all."""

    tasks: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float | None = None
    until_s: float | None = None

    def wants(self, step: JournalStep) -> bool:
        """Return whether a step passes all filters."""
        at_s = time_of(step)
        if (self.since_s is not None and at_s < self.since_s) or (self.until_s is not None and at_s > self.until_s):
            return False
        things, nodes = (*step.events, *_actions(step)), set(self.nodes)
        has_task = not self.tasks or any(_names_task(one, self.tasks) for one in things)
        return has_task and (not nodes or any(not nodes.isdisjoint(getattr(one, "nodes", ())) for one in things))


def time_of(step: JournalStep) -> float:
    """Return the time of a step's decision, or without a decision of its last event."""
    return step.decision.time_s if step.decision is not None else step.events[-1].time_s


def clock(time_s: float) -> str:
    """Format a calendar time, or seconds since the start of a log."""
    if time_s < _CALENDAR_S:
        return f"{time_s:g} s"
    return datetime.fromtimestamp(time_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def sentences(step: JournalStep) -> Iterator[str]:
    """Yield sentences on a step's events and consequences."""
    yield from map(_event, step.events)
    decision = step.decision
    if decision is None:
        yield "no decision was recorded"
        return
    actions = _actions(step)
    # Happens after a restart, and in idle periods under history-dependent objectives
    if not step.events and not actions:
        yield "it was decided again, with no change"
    for action in actions:
        if not isinstance(action, Release):  # events already list the nodes that left
            yield f"-> {_action(action, decision.sizes.get(action.task, 0))}"
    yield from (f"note: {note}" for note in (*decision.notes, decision.fallback or decision.solver_words) if note)


def _actions(step: JournalStep) -> tuple[Action, ...]:
    return () if step.decision is None else (*step.decision.at_once, *step.decision.actions)


def _names_task(thing: Event | Action, tasks: Collection[str]) -> bool:
    own = thing.spec.name if isinstance(thing, TaskSubmitted) else getattr(thing, "task", None)
    return own in tasks or (isinstance(thing, TaskEdited) and thing.renamed in tasks)


def _event(event: Event) -> str:
    match event:
        case NodesJoined(nodes=nodes, kind=kind):
            return f"{fold(nodes)} became idle" + (f", of kind {kind}" if kind else "")
        case NodesLeft(nodes=nodes):
            return f"{fold(nodes)} left"
        case TaskSubmitted(spec=spec):
            owner = f" by {spec.user}" if spec.user else ""
            return f"task '{spec.name}' was submitted{owner} for {spec.min_nodes} to {counted(spec.max_nodes, 'node')}"
        case TaskFailed(task=task, reason=reason):
            return f"task '{task}' failed" + (f": {reason.partition(chr(10))[0]}" if reason else "")
        case TaskMeasured(task=task):
            return f"task '{task}' was measured"
        case TaskEdited(renamed=name) if name:
            return f"task '{event.task}' {_CHANGES[TaskEdited]}, and is now called '{name}'"
        case _:
            return f"task '{event.task}' {_CHANGES[type(event)]}"


def _action(action: Start | Grow | Shrink | Stop, size: int) -> str:
    nodes = fold(action.nodes)
    match action:
        case Start():
            return f"{action.task} starts on {counted(len(action.nodes), 'node')}: {nodes}"
        case Grow():
            return f"{action.task} grows to {counted(size, 'node')} by {nodes}"
        case Shrink():
            return f"{action.task} loses {nodes} ({action.cause})"
        case Stop():
            return f"{action.task} stops on {nodes} ({action.cause})"
