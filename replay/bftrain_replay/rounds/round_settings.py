"""Settings of rounds. With these and the same cluster and tasks, every figure repeats (docs/how-to/rounds.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

import msgspec

from bftrain.deciding.node_stay import AUTO
from bftrain.values import checks
from bftrain.values.curve import amounts_of, cluster_of
from bftrain.values.sharing import Entity
from bftrain.values.wire import Mapped
from bftrain_replay.simulation.replay_settings import NO, YES, check_errors

MOMENT: Final = "moment"
BOUNDARY: Final = "boundary"
FINISHES: Final = (MOMENT, BOUNDARY)

BY_PRIORITY: Final = "priority"
LISTED: Final = "listed"
DRAWN: Final = "drawn"
KIND_ORDERS: Final = (BY_PRIORITY, LISTED, DRAWN)

GAVEL: Final = "gavel"
GAVEL_IDEAL: Final = "gavel-ideal"  # its shares to the letter, without rounds
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
_SHORTEST_ROUND_S: Final = 1e-9  # numbers of rounds, and sums of times, stay finite
LONGEST_S: Final = 1e12  # that a round, or a start, may take


class RoundSettings(Mapped, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of rounds. Each field is an option of ``bftrain replay --round``.

    ``entities`` are the users who share by weight, those not named have weight 1; ``prices`` is what a node of a kind
    costs an hour, 1 if not named. A shares file holds both.
    """

    policy: str = "fifo"  # who runs in a round
    admission: str = ""  # the admission, as in a replay: a name with its settings, or FILE.py:NAME; "" for all tasks
    round_s: float = 300.0
    finish: str = MOMENT  # when a task that has done its work leaves: at that moment, or where the round ends
    like: str = ""  # shares: "gavel" for the conventions of Gavel's simulator, where no other is set
    kind_order: str = BY_PRIORITY  # shares: pairs of task and kind by priority, or kind by kind, as listed or drawn
    overtaking: str = YES  # whether those behind one that does not fit may run
    shares_interval_s: float = 0.0  # the least time between two computations of shares
    per_host: str = ""  # of a cluster: how many nodes one host has, 4 or v100=4,p100=2; "": hosts are not known
    cpus: str = ""  # CPU cores that a host has for each of its nodes, 3 or v100=6,p100=3; "": not limited
    memory_gb: str = ""  # the same of memory
    placement: str = AUTO  # which nodes a gang gets; auto: consolidated, with Gavel's conventions first-free
    pairs: str = ""  # a table with the speeds of pairs of models, for packed policies
    phases: str = ""  # a table with the speeds of models from a share of their work on
    gang: str = ""  # of an elastic task: its smallest or largest size; "" refuses such tasks
    start_cost_s: float | None = None  # instead of what the tasks say
    cost_factor: float = 1.0
    measure: str = ""  # A..B: means are over these tasks only, counted from 0 as they come; it ends when they are done
    window: str = ""  # of a log: A..B, seconds UTC or ISO times
    nodes: str = ""  # of a log: a node set, or a slice in its own order
    until_s: float | None = None  # when it ends at the latest
    max_backlog_s: float = 30 * A_DAY_S  # more waiting work than all nodes do in this time ends it
    speed_error: float = 0.0  # standard deviation of the logarithm of the factor by which policies mistake a speed
    profiled: float = 0.0  # share of the tasks, and of the pairs, with exactly known speeds
    learning: str = NO  # whether policies learn speeds as tasks run; completed: those on other kinds too
    seed: int = 0  # what is drawn comes from it
    metrics: str = ""  # more figures: names of metrics, or FILE.py:NAME, with commas between
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)
    racks: Mapping[str, str] = msgspec.field(default_factory=dict)  # of a log: the node set of each

    def __post_init__(self) -> None:
        checks.text(self, "policy")
        checks.one_of(self, "finish", FINISHES)
        checks.one_of(self, "kind_order", KIND_ORDERS)
        checks.one_of(self, "overtaking", (YES, NO))
        checks.one_of(self, "placement", PLACEMENTS)
        for name, choices in (("like", LIKES), ("gang", GANGS)):
            if getattr(self, name) != "":
                checks.one_of(self, name, choices)
        texts = (
            "admission",
            "measure",
            "pairs",
            "phases",
            "per_host",
            "cpus",
            "memory_gb",
            "window",
            "nodes",
            "metrics",
        )
        for name in texts:
            if getattr(self, name) != "":
                checks.text(self, name)
        for name in ("round_s", "max_backlog_s"):
            checks.number(self, name, above=0.0)
        if not _SHORTEST_ROUND_S <= self.round_s <= LONGEST_S:
            what = f"must be from {_SHORTEST_ROUND_S:g} to {LONGEST_S:g}, not {self.round_s:g}"
            checks.reject(self, "round_s", what)
        checks.number(self, "shares_interval_s", "cost_factor", at_least=0.0)
        checks.optional_number(self, "start_cost_s", at_least=0.0)
        for name in ("cost_factor", "start_cost_s"):
            if (getattr(self, name) or 0.0) > LONGEST_S:
                checks.reject(self, name, f"must be at most {LONGEST_S:g}, not {getattr(self, name):g}")
        checks.optional_number(self, "until_s", above=0.0)
        check_errors(self, (YES, NO, COMPLETED))
        _check_together(self)
        checks.integer(self, "seed", at_least=0)
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")
        checks.mapped(self, "racks", str)
        self.measured(0)

    @property
    def nodes_of_hosts(self) -> Mapping[str, int]:
        """Return the number of nodes of each kind one host of a cluster has; empty if that is not known."""
        return cluster_of(self.per_host) if self.per_host else {}

    @property
    def resources_of_nodes(self) -> Mapping[str, Mapping[str, float]]:
        """Return the CPU cores and the memory for each node by kind, as far as they are limited."""
        found = {}
        for name in ("cpus", "memory_gb"):
            if getattr(self, name):
                try:
                    found[name] = amounts_of(getattr(self, name))
                except ValueError as error:
                    checks.reject(self, name, f"is {getattr(self, name)!r}: {error}", "write 3, or v100=6,p100=3")
        return found

    @property
    def like_gavel(self) -> bool:
        """Whether the conventions of Gavel's simulator hold."""
        return self.like in LIKES

    @property
    def chosen_placement(self) -> str:
        """The placement; Gavel gives out the first free nodes."""
        if self.placement != AUTO:
            return self.placement
        return FIRST_FREE if self.like_gavel else CONSOLIDATED

    @property
    def order_of_kinds(self) -> str:
        """The order of wishes: Gavel shuffles the kinds for policies that ignore speeds."""
        if not self.like_gavel or self.kind_order != BY_PRIORITY:
            return self.kind_order
        return DRAWN if self.policy in _BLIND else LISTED

    @property
    def least_interval_s(self) -> float:
        """The least time between two computations of shares."""
        return self.shares_interval_s or (_GAVEL_INTERVAL_S if self.like_gavel else 0.0)

    def measured(self, count: int) -> tuple[int, int]:
        """Return the first and the last of ``count`` tasks, in order of arrival, over which means are taken."""
        if not self.measure:
            return 0, count - 1
        first, dots, last = self.measure.partition("..")
        try:
            places = (int(first or 0), int(last) if last else max(count - 1, int(first or 0)))
        except ValueError:
            places = (1, 0)
        if not dots or not 0 <= places[0] <= places[1]:
            checks.reject(self, "measure", f"is {self.measure!r}", "write two places counted from 0, such as 50..149")
        return places

    def check_measured(self, count: int) -> None:
        """Raise if means are to be taken over tasks beyond the ``count`` present ones."""
        last = self.measured(count)[1]
        if self.measure and last >= count:
            checks.reject(self, "measure", f"goes to {last}", f"there are {count:,} tasks, the last is {count - 1}")


class RoundOptions(TypedDict, total=False):
    """The fields of ``RoundSettings`` as keyword arguments of ``bftrain.rounds``; a test keeps them alike."""

    policy: str
    admission: str
    round_s: float
    finish: str
    like: str
    kind_order: str
    overtaking: str
    shares_interval_s: float
    per_host: str
    cpus: str
    memory_gb: str
    placement: str
    pairs: str
    phases: str
    gang: str
    start_cost_s: float | None
    cost_factor: float
    measure: str
    window: str
    nodes: str
    until_s: float | None
    max_backlog_s: float
    speed_error: float
    profiled: float
    learning: str
    seed: int
    metrics: str
    entities: Mapping[str, Entity]
    prices: Mapping[str, float]
    racks: Mapping[str, str]


def _check_together(settings: RoundSettings) -> None:
    try:
        settings.nodes_of_hosts  # noqa: B018 - raises if it is no such text
    except ValueError as error:
        checks.reject(settings, "per_host", f"is {settings.per_host!r}: {error}", "write 4, or v100=4,p100=2")
    if settings.phases and settings.speed_error:
        what = "is for speeds that stay, and phases change them"
        checks.reject(settings, "speed_error", what, "leave out one of them")
    if settings.resources_of_nodes and settings.pairs:
        what = "limits what a task has alone, and speeds of pairs do not depend on it"
        checks.reject(settings, next(iter(settings.resources_of_nodes)), what, "leave out this, or pairs")
