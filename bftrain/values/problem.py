"""AllocationProblem: the input of one decision as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import force_setattr, replace

from bftrain.values import checks
from bftrain.values.batch_scaling import BatchScaling, check_batch
from bftrain.values.curve import ANY_KIND, SpeedCurve, curve_on
from bftrain.values.sharing import Entity
from bftrain.values.wire import NOTHING, Mapped


class CompetingTask(Mapped, frozen=True, kw_only=True):
    """A task in a decision: its present ``size`` and the sizes it may get.

    ``size`` counts its nodes, all of a single ``kind``. ``size`` may be outside the allowed range (after a loss
    of nodes); then keeping it is not an option. ``deadline_in_s`` counts from now and may be negative.

    ``curves`` are its speeds by kind; without them ``curve`` applies to every kind (see ``TaskSpec``). If only
    ``curves`` are set, ``curve`` is the first of them. ``batch`` contains the allowed batch sizes.
    Its history: ``age_s`` since its submission, ``held_node_s`` node-seconds and ``done_samples``. A task with
    nodes has started ``tenure_s`` ago. A plan that stops it counts it as worse off by ``turn_s``
    seconds of its current speed. A Harvester sets these five only for fair objectives, and for objectives and solvers
    with the capability ``uses_history``; otherwise all are 0.
    """

    name: str
    size: int = 0
    min_nodes: int = 1
    max_nodes: int
    curve: SpeedCurve = None  # type: ignore[assignment]  # the first of ``curves`` stands in
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
    tenure_s: float = 0.0
    turn_s: float = 0.0
    batch: BatchScaling | None = None

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.integer(self, "size", at_least=0)
        checks.bounds(self)
        checks.mapped(self, "curves", SpeedCurve)
        given: SpeedCurve | None = self.curve
        if given is None:
            if not self.curves:
                checks.reject(self, "curve", "is missing", "give curve, or curves by kind of node")
            force_setattr(self, "curve", next(iter(self.curves.values())))
        checks.instance(self, "curve", SpeedCurve)
        checks.number(self, "grow_cost_s", "shrink_cost_s", "start_cost_s", "weight", at_least=0.0)
        checks.optional_number(self, "work_left_samples", "deadline_in_s")
        checks.optional_text(self, "kind", "user")
        checks.number(self, "age_s", "held_node_s", "done_samples", "tenure_s", "turn_s", at_least=0.0)
        check_batch(self, self.batch, self.max_nodes)

    def __hash__(self) -> int:
        # These fields distinguish most tasks, even of equal model and size. Costs matter: fitted costs change over time
        costs = (self.grow_cost_s, self.start_cost_s)
        return hash((self.name, self.size, self.kind, self.curve, costs, self.weight, self.work_left_samples))

    def curve_on(self, kind: str) -> SpeedCurve | None:
        """Return the task's speed on nodes of ``kind``, or ``None`` if the task does not run there."""
        return curve_on(self.curve, self.curves, kind)

    def on(self, kind: str) -> CompetingTask | None:
        """Return the task as if all nodes were of ``kind``, or ``None`` if the task does not run there.

        ``curve`` is then its speed on these, and ``size`` the number of its nodes among these. ``curves`` is unchanged.
        """
        curve = self.curve_on(kind)
        if curve is None:
            return None
        size = self.size if kind == self.kind else 0
        if curve is self.curve and kind == self.kind:
            return self
        return replace(self, curve=curve, kind=kind, size=size)


class AllocationProblem(Mapped, frozen=True, kw_only=True):
    """Divide ``pool`` nodes among the competing tasks to maximise the objective over ``horizon_s``.

    If nodes have kinds, ``pools`` counts the nodes of each; they add up to ``pool``. ``entities`` are the users
    (``CompetingTask.user``) with their weights, 1 by default; ``prices`` are the node prices by kind,
    1 by default.
    """

    pool: int
    horizon_s: float
    objective: str = "throughput"
    tasks: tuple[CompetingTask, ...]
    pools: Mapping[str, int] = NOTHING
    entities: Mapping[str, Entity] = NOTHING
    prices: Mapping[str, float] = NOTHING

    def __post_init__(self) -> None:
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
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")

    def _check_pools(self, pool: int) -> None:
        pools = checks.pools(self, "pools")
        if not pools:
            return
        if sum(pools.values()) != pool:
            checks.reject(self, "pools", f"add up to {sum(pools.values())}, but pool = {pool}")
        held = Counter[str]()
        for task in self.tasks:
            held[task.kind] += task.size
        for kind, count in held.items():
            if count > pools.get(kind, 0):
                problem = f"has {pools.get(kind, 0)} nodes of kind '{kind}', but the tasks hold {count} already"
                checks.reject(self, "pools", problem)

    @property
    def by_kind(self) -> Mapping[str, int]:
        """The number of nodes of every kind; nodes without kinds count under the empty name."""
        return self.pools or {ANY_KIND: self.pool}
