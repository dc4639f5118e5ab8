"""Settings of rounds. With these and the same cluster and tasks, every figure repeats (docs/how-to/rounds.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec

from bftrain.ranges import split_range
from bftrain.values import checks, options
from bftrain.values.options import AUTO, Option
from bftrain.values.sharing import Entity
from bftrain.values.wire import Mapped
from bftrain_replay.simulation.replay_settings import (
    LONGEST_S,
    NO,
    YES,
    CostFactor,
    Metrics,
    Nodes,
    Profiled,
    Seed,
    SpeedError,
    StartCost,
    Window,
)

T = TypeVar("T")

MOMENT: Final = "moment"
BOUNDARY: Final = "boundary"
FINISHES: Final = (MOMENT, BOUNDARY)

BY_PRIORITY: Final = "priority"
LISTED: Final = "listed"
DRAWN: Final = "drawn"
KIND_ORDERS: Final = (BY_PRIORITY, LISTED, DRAWN)

GAVEL: Final = "gavel"
GAVEL_IDEAL: Final = "gavel-ideal"  # applies shares exactly, without rounds
LIKES: Final = (GAVEL, GAVEL_IDEAL)
# Policies that ignore speeds
_BLIND: Final = frozenset({"isolated", "max-min-blind", "finish-time-blind", "makespan-blind", "water-filling-blind"})
_GAVEL_INTERVAL_S: Final = 1920.0

CONSOLIDATED: Final = "consolidated"
SCATTERED: Final = "scattered"
FIRST_FREE: Final = "first-free"
PLACEMENTS: Final = (AUTO, CONSOLIDATED, SCATTERED, FIRST_FREE)

COMPLETED: Final = "completed"

SMALLEST: Final = "min"
LARGEST: Final = "max"
GANGS: Final = (SMALLEST, LARGEST)

A_DAY_S: Final = 86_400.0
_SHORTEST_S: Final = 1e-9  # numbers of rounds, and sums of times, stay finite


class RoundSettings(Mapped, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of rounds. Each field is an option of ``bftrain rounds``.

    ``entities`` are the users who share by weight (default: 1); ``prices`` is the hourly price of a node by kind
    (default: 1). A shares file sets both.
    """

    policy: Annotated[str, Option("fifo, las, tiresias=7200, a sharing policy such as max-min, FILE.py:NAME...")] = (
        "fifo"
    )
    admission: Annotated[str, Option("Rule for the tasks that compete, as in a replay", default="all tasks")] = ""
    round_s: Annotated[float, Option("Length of a round in seconds", at_least=_SHORTEST_S, at_most=LONGEST_S)] = 300.0
    finish: Annotated[
        str,
        Option("When a finished task leaves: at that moment, or at the end of the round", choices=FINISHES, rare=True),
    ] = MOMENT
    like: Annotated[
        str, Option("Shares: conventions of this simulator; ideal: without rounds", choices=LIKES, default="none")
    ] = ""
    kind_order: Annotated[
        str,
        Option("Shares: all kinds together, or one by one in listed or drawn order", choices=KIND_ORDERS, rare=True),
    ] = BY_PRIORITY
    overtaking: Annotated[
        str, Option("Whether later tasks may overtake a task that does not fit", choices=(YES, NO), rare=True)
    ] = YES
    shares_interval_s: Annotated[
        float, Option("Minimum seconds between computations of shares", at_least=0.0, rare=True)
    ] = 0.0
    per_host: Annotated[
        str,
        Option(
            "NODES or KIND=NODES,..: nodes per host of a cluster, for tasks with speeds by hosts",
            default="unknown",
            rare=True,
        ),
    ] = ""
    cpus: Annotated[
        str,
        Option("CORES or KIND=CORES,..: CPU cores of a host per node, such as a GPU", default="not limited", rare=True),
    ] = ""
    memory_gb: Annotated[
        str, Option("GB or KIND=GB,..: memory of a host per node", default="not limited", rare=True)
    ] = ""
    placement: Annotated[
        str, Option("Nodes of a gang; auto: consolidated, or first-free with --like gavel", choices=PLACEMENTS)
    ] = AUTO
    pairs: Annotated[
        str,
        Option("FILE: a throughput table with speeds of pairs, for policies that let two tasks share nodes", rare=True),
    ] = ""
    phases: Annotated[
        str,
        Option(
            "FILE: CSV model,from,nodes,rate: speed of a model from this share of its work on",
            default="constant speeds",
            rare=True,
        ),
    ] = ""
    gang: Annotated[
        str, Option("Size of elastic tasks", choices=GANGS, default="elastic tasks are rejected", rare=True)
    ] = ""
    start_cost_s: StartCost = None
    cost_factor: CostFactor = 1.0
    measure: Annotated[
        str,
        Option("A:B: means over these tasks only, counted from 0 by arrival; stop when they have finished", rare=True),
    ] = ""
    window: Window = ""
    nodes: Nodes = ""
    until_s: Annotated[float | None, Option("Time limit of the simulation, in seconds", above=0.0)] = None
    max_backlog_s: Annotated[
        float, Option("Stop when more work waits than all nodes do in this many seconds", above=0.0, rare=True)
    ] = 30 * A_DAY_S
    speed_error: SpeedError = 0.0
    profiled: Profiled = 0.0
    learning: Annotated[
        str,
        Option(
            "With --speed-error: whether policies learn speeds as tasks run; completed: also speeds on other kinds",
            choices=(YES, NO, COMPLETED),
            rare=True,
        ),
    ] = NO
    seed: Seed = 0
    metrics: Metrics = ""
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)
    racks: Mapping[str, str] = msgspec.field(default_factory=dict)  # node set of each node of a log

    def __post_init__(self) -> None:
        options.check(self)
        _check_together(self)
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")
        checks.mapped(self, "racks", str)
        self.measured(0)

    @property
    def nodes_of_hosts(self) -> Mapping[str, int]:
        """The nodes per host by kind; empty if unknown."""
        from bftrain.values.curve import cluster_of  # noqa: PLC0415 - imports numpy, and --help needs the options only

        return self._by_kind("per_host", cluster_of, "4, or v100=4,p100=2")

    @property
    def resources_of_nodes(self) -> Mapping[str, Mapping[str, float]]:
        """The CPU cores and the memory for each node by kind, as far as they are limited."""
        from bftrain.values.curve import amounts_of  # noqa: PLC0415 - as above

        given = {name: self._by_kind(name, amounts_of, "3, or v100=6,p100=3") for name in ("cpus", "memory_gb")}
        return {name: amounts for name, amounts in given.items() if amounts}

    def _by_kind(self, name: str, parse: Callable[[str], Mapping[str, T]], example: str) -> Mapping[str, T]:
        """Return the numbers by kind in a setting; none if it is empty."""
        text = getattr(self, name)
        try:
            return parse(text) if text else {}
        except ValueError as error:
            checks.reject(self, name, f"is {text!r}: {error}", f"write {example}")

    @property
    def like_gavel(self) -> bool:
        """Whether the conventions of Gavel's simulator hold."""
        return self.like in LIKES

    @property
    def chosen_placement(self) -> str:
        """The placement; Gavel hands out the first free nodes."""
        if self.placement != AUTO:
            return self.placement
        return FIRST_FREE if self.like_gavel else CONSOLIDATED

    @property
    def order_of_kinds(self) -> str:
        """The order of the kinds in a round: Gavel draws it for policies that ignore speeds."""
        if not self.like_gavel or self.kind_order != BY_PRIORITY:
            return self.kind_order
        return DRAWN if self.policy in _BLIND else LISTED

    @property
    def least_interval_s(self) -> float:
        """The least time between two computations of shares."""
        return self.shares_interval_s or (_GAVEL_INTERVAL_S if self.like_gavel else 0.0)

    def measured(self, count: int) -> tuple[int, int]:
        """Return the first and last of ``count`` tasks, in arrival order, that means include."""
        if not self.measure:
            return 0, count - 1
        ends = split_range(self.measure) or ("1", "0")
        first = int(ends[0] or 0)
        last = int(ends[1]) if ends[1] else max(count - 1, first)
        if first > last:
            checks.reject(
                self,
                "measure",
                f"is {self.measure!r}",
                "write the first and last task, counted from 0 by arrival, such as 50:149",
            )
        return first, last

    def check_measured(self, count: int) -> None:
        """Raise if means would include tasks beyond the ``count`` present ones."""
        last = self.measured(count)[1]
        if self.measure and last >= count:
            checks.reject(self, "measure", f"goes to {last}", f"the last task is {count - 1}")


def _check_together(settings: RoundSettings) -> None:
    settings.nodes_of_hosts  # noqa: B018 - raises if it is no such text
    other = "phases" if settings.phases else "pairs"
    if settings.speed_error and getattr(settings, other):
        checks.reject(settings, "speed_error", f"cannot be combined with {other}", "omit one")
    if settings.resources_of_nodes and settings.pairs:
        what = "limits nodes that a task uses alone, and speeds of pairs do not depend on it"
        checks.reject(settings, next(iter(settings.resources_of_nodes)), what, "leave out this, or pairs")
