"""AllocationProblem: how many nodes for whom? The question one decision answers, as plain data."""

from __future__ import annotations

import msgspec

from bftrain.values import checks
from bftrain.values.curve import SpeedCurve


class CompetingTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """A task as the decision sees it: its present ``size`` and what it may become.

    ``size`` counts the nodes it still holds. It may lie outside the allowed sizes (after a loss of nodes);
    then staying is not a choice. ``deadline_in_s`` counts from now and may be negative.
    """

    name: str
    size: int = 0
    min_nodes: int = 1
    max_nodes: int
    curve: SpeedCurve
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    start_cost_s: float = 0.0
    weight: float = 1.0
    work_left_samples: float | None = None
    deadline_in_s: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        checks.text(self, "name")
        checks.integer(self, "size", at_least=0)
        smallest = checks.integer(self, "min_nodes", at_least=1)
        largest = checks.integer(self, "max_nodes", at_least=1)
        if largest < smallest:
            checks.reject(self, "max_nodes", f"is {largest}, below min_nodes = {smallest}")
        checks.instance(self, "curve", SpeedCurve)
        for field in ("grow_cost_s", "shrink_cost_s", "start_cost_s", "weight"):
            checks.number(self, field, at_least=0.0)
        for field in ("work_left_samples", "deadline_in_s"):
            checks.optional_number(self, field)


class AllocationProblem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Divide ``pool`` nodes over the competing tasks so that the objective over ``horizon_s`` is largest."""

    pool: int
    horizon_s: float
    objective: str = "throughput"
    tasks: tuple[CompetingTask, ...]

    def __post_init__(self) -> None:
        """Check every field; the names must differ and the sizes held now must fit into the pool."""
        pool = checks.integer(self, "pool", at_least=0)
        checks.number(self, "horizon_s", above=0.0)
        checks.text(self, "objective")
        tasks = checks.instances(self, "tasks", CompetingTask)
        checks.different(self, "tasks", [task.name for task in tasks], "give every task its own name")
        held = sum(task.size for task in tasks)
        if held > pool:
            checks.reject(self, "pool", f"is {pool}, but the tasks hold {held} nodes already")
