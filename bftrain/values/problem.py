"""AllocationProblem: the input of one decision as plain data: how many nodes for which task?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from bftrain.values import checks
from bftrain.values.curve import SpeedCurve
from bftrain.values.kinds import ANY_KIND, curve_on
from bftrain.values.mapped import NOTHING, Mapped
from bftrain.values.sharing import Entity


class CompetingTask(Mapped, frozen=True, kw_only=True):
    """A task as the decision sees it: its present ``size`` and what it may become.

    ``size`` counts the nodes it still holds, all of one ``kind``. It may lie outside the allowed sizes (after a loss
    of nodes); then staying is not a choice. ``deadline_in_s`` counts from now and may be negative.

    ``curves`` are its speeds by kind; without them ``curve`` holds on nodes of every kind (see ``TaskSpec``).
    What it had so far: ``age_s`` since it was submitted, ``held_node_s`` node-seconds and ``done_samples``. A Harvester
    tells these three only to objectives and solvers with the capability ``uses_history``; to others all of them are 0.
    """

    name: str
    size: int = 0
    min_nodes: int = 1
    max_nodes: int
    curve: SpeedCurve
    curves: Mapping[str, SpeedCurve] = NOTHING
    kind: str = ""
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    start_cost_s: float = 0.0
    weight: float = 1.0
    work_left_samples: float | None = None
    deadline_in_s: float | None = None
    user: str = ""
    age_s: float = 0.0
    held_node_s: float = 0.0
    done_samples: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        checks.text(self, "name")
        checks.integer(self, "size", at_least=0)
        smallest = checks.integer(self, "min_nodes", at_least=1)
        largest = checks.integer(self, "max_nodes", at_least=1)
        if largest < smallest:
            checks.reject(self, "max_nodes", f"is {largest}, below min_nodes = {smallest}")
        checks.instance(self, "curve", SpeedCurve)
        if self.curves is not NOTHING:
            checks.mapped(self, "curves", SpeedCurve)
        for field in ("grow_cost_s", "shrink_cost_s", "start_cost_s", "weight"):
            checks.number(self, field, at_least=0.0)
        for field in ("work_left_samples", "deadline_in_s"):
            checks.optional_number(self, field)
        for label in ("kind", "user"):
            if getattr(self, label) != "":
                checks.text(self, label)
        for field in ("age_s", "held_node_s", "done_samples"):
            checks.number(self, field, at_least=0.0)

    def __hash__(self) -> int:
        """Hash what tells most of them apart: tables are kept by task."""
        return hash((self.name, self.size, self.kind, self.curve))

    def curve_on(self, kind: str) -> SpeedCurve | None:
        """Give its speed on nodes of ``kind``; ``None`` if it does not run there."""
        return curve_on(self, kind)

    def on(self, kind: str) -> CompetingTask | None:
        """Give it as it is where all nodes are of ``kind``; ``None`` if it does not run there.

        ``curve`` is then its speed on these, and ``size`` what it holds of them. ``curves`` still tells of all kinds.
        """
        curve = self.curve_on(kind)
        if curve is None:
            return None
        size = self.size if kind == self.kind else 0
        if curve is self.curve and kind == self.kind:
            return self
        return replace(self, curve=curve, kind=kind, size=size)


class AllocationProblem(Mapped, frozen=True, kw_only=True):
    """Divide ``pool`` nodes over the competing tasks so that the objective over ``horizon_s`` is largest.

    Where nodes have kinds, ``pools`` counts the nodes of each; they add up to ``pool``. ``entities`` are the users
    (``CompetingTask.user``) who share by weight, those not named with weight 1; ``prices`` what a node of a kind costs,
    1 if not named.
    """

    pool: int
    horizon_s: float
    objective: str = "throughput"
    tasks: tuple[CompetingTask, ...]
    pools: Mapping[str, int] = NOTHING
    entities: Mapping[str, Entity] = NOTHING
    prices: Mapping[str, float] = NOTHING

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
        if self.pools is not NOTHING:
            self._check_pools(pool)
        if self.entities is not NOTHING:
            checks.mapped(self, "entities", Entity)
        if self.prices is not NOTHING:
            checks.positive(self, "prices")

    def _check_pools(self, pool: int) -> None:
        pools = checks.pools(self, "pools")
        if pools and sum(pools.values()) != pool:
            checks.reject(self, "pools", f"add up to {sum(pools.values())}, but pool = {pool}")
        if not pools:
            return
        held: dict[str, int] = {}
        for task in self.tasks:
            if task.size:
                held[task.kind] = held.get(task.kind, 0) + task.size
        for kind, count in held.items():
            if count > pools.get(kind, 0):
                problem = f"has {pools.get(kind, 0)} nodes of kind '{kind}', but the tasks hold {count} already"
                checks.reject(self, "pools", problem)

    @property
    def by_kind(self) -> Mapping[str, int]:
        """How many nodes there are of every kind; where nodes have no kinds there is one, without a name."""
        return self.pools or {ANY_KIND: self.pool}
