"""Plans (node names by task), and the actions that lead from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import final

import msgspec

from bftrain.values import checks
from bftrain.values.wire import Mapped


class Plan(Mapped, frozen=True, kw_only=True):
    """The nodes of each task. Waiting tasks are not listed."""

    holdings: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        holdings = checks.holdings(self, "holdings")
        owner: dict[str, str] = {}
        for task, nodes in holdings.items():
            if not nodes:
                checks.reject(self, "holdings", f"task '{task}' is listed without nodes")
            for node in nodes:
                if node in owner:
                    checks.reject(self, "holdings", f"node '{node}' serves both '{owner[node]}' and '{task}'")
                owner[node] = task

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes of each task with nodes."""
        return {task: len(nodes) for task, nodes in self.holdings.items()}


class Cause(StrEnum):
    """The reason why a task loses nodes."""

    DECIDED = "decided"  # a new decision, or its owner edited it
    PREEMPTED = "preempted"  # the main scheduler reclaimed them
    BELOW_MINIMUM = "below_minimum"  # the remaining nodes after a preemption were too few
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"  # its owner paused it


class _Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="action"):
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not checks.names(self, "nodes"):
            checks.reject(self, "nodes", "names no node")


class _TaskAction(_Action, frozen=True, kw_only=True):
    task: str

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text(self, "task")


@final  # lets type checkers accept `type(action) is Release`; isinstance is far slower for other types
class Release(_Action, frozen=True, kw_only=True, tag="release"):
    """Stop all processes on these nodes and return the nodes now; they have left the pool."""


@final
class Start(_TaskAction, frozen=True, kw_only=True, tag="start"):
    """Start a waiting task on these nodes."""


@final
class Grow(_TaskAction, frozen=True, kw_only=True, tag="grow"):
    """Add these nodes to a running task."""


class _CausedAction(_TaskAction, frozen=True, kw_only=True):
    cause: Cause = Cause.DECIDED

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice(self, "cause", Cause)


@final
class Shrink(_CausedAction, frozen=True, kw_only=True, tag="shrink"):
    """Remove these nodes from a task, which continues on the rest."""


@final
class Stop(_CausedAction, frozen=True, kw_only=True, tag="stop"):
    """Remove all nodes of a task; the task then waits, or is finished if it was cancelled or failed too often."""


Action = Release | Start | Grow | Shrink | Stop


def apply_actions(plan: Plan, actions: Iterable[Action]) -> Plan:
    """Return ``plan`` after ``actions``, without checking that they are possible.

    >>> from bftrain import Grow, Plan, apply_actions
    >>> dict(apply_actions(Plan(holdings={"a": ("n1",)}), [Grow(task="a", nodes=("n2",))]).holdings)
    {'a': ('n1', 'n2')}
    """
    holdings = dict(plan.holdings)
    for action in actions:
        match action:
            case Start(task=task, nodes=nodes) | Grow(task=task, nodes=nodes):
                holdings[task] = holdings.get(task, ()) + nodes
            case Shrink(task=task, nodes=nodes) | Stop(task=task, nodes=nodes):
                gone = set(nodes)
                holdings[task] = tuple(node for node in holdings.get(task, ()) if node not in gone)
            case Release():
                pass  # separate actions shrink or stop the tasks on released nodes
    return Plan(holdings={task: nodes for task, nodes in holdings.items() if nodes})
