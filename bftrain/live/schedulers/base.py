"""The base class of batch schedulers, their common settings, and several pools behind the interface of one scheduler.

A node is in the pool while both are true: the scheduler allows it, and an agent of ours has registered from it. With
pilot jobs the scheduler allows the nodes of running pilots, so the agents' messages suffice. With hooks, agents wait on
every node, and the scheduler's reports decide.

Releases have priority: ``post(Taken(...))`` triggers a release before any other work.

A scheduler is registered by a function that builds it, a ``MakeScheduler``, in entry points ``bftrain.scheduler``.
"""

from __future__ import annotations

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from bftrain.config import from_mapping
from bftrain.errors import BadConfig, BftrainError, NotAvailable
from bftrain.live import timeouts
from bftrain.node_units import GPU, NODE, node_of
from bftrain.ports import Availability
from bftrain.values import checks, wire

# Bounds of settings, which are checked when a file is read
_LARGEST: Final = 1e15  # limit of any number; excludes infinity
Count = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
# Without control characters, as both become words of commands and lines of job scripts
_TEXT: Final = wire.pattern_of("printable text without surrounding blanks", r"^(?!\s)[^\x00-\x1f\x7f]+(?<!\s)\Z")
_WORD: Final = wire.pattern_of("a word without blanks", r"^[^\s\x00-\x1f\x7f]*\Z")
Text = Annotated[str, Meta(min_length=1, pattern=_TEXT)]
Word = Annotated[str, Meta(pattern=_WORD)]  # may be empty


class PollSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of schedulers that are polled: the longest interval, the timeout of commands, and the hooks' spool."""

    poll_s: Positive = 30.0
    command_timeout_s: Positive = 20.0
    spool: str = ""  # folder of the scheduler's hook reports, if any
    spool_writers: tuple[str, ...] = ()  # users, in addition to root and this one, with trusted files


PLACES: Final = re.compile(r"\{(node|host)\}")  # placeholders in the words of an AgentOrder


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """The scheduler lets us use these nodes; ``until_s`` (seconds since 1970) is when they will probably be needed."""

    nodes: tuple[str, ...]
    until_s: float | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    """The scheduler takes these nodes back, or they went down."""

    nodes: tuple[str, ...]


class Remark(msgspec.Struct, frozen=True, kw_only=True, tag="remark"):
    """An informational notice for operators, for example about an unresponsive controller."""

    text: str


News = Allowed | Taken | Remark
Post = Callable[[News], None]


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The command that starts an agent on a node.

    ``{node}`` in an argument is replaced by the node or slot name, ``{host}`` by the node name alone.
    """

    argv: tuple[str, ...]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a scheduler: ``name`` marks our jobs, ``folder`` is private and visible from all nodes.

    ``grace_s`` is how long agents may use a node after the scheduler's SIGTERM. ``unit`` is the unit of allocation:
    whole nodes, or GPUs of nodes as slots such as ``n1/gpu3``.
    ``owner`` (letters and digits) marks the jobs of one state directory; other live runs may use the same name.
    """

    name: str
    folder: Path
    grace_s: float = 0.0
    unit: str = NODE
    owner: str = ""


class HooksView(msgspec.Struct, frozen=True, kw_only=True):
    """Reports of the scheduler's hooks since the live run began."""

    messages: Annotated[Mapping[str, int], Meta(description="Their number by event: start, ending, end.")] = {}
    last_s: Annotated[float | None, Meta(description="Time of the last message; seconds since 1970.")] = None


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One of several pools."""

    scheduler: str
    nodes: Annotated[int, Meta(description="Nodes that bftrain has there.")]


class SchedulerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a scheduler knows at the moment, for the status and the journal."""

    cluster: str = ""  # the name of the machine
    nodes: frozenset[str] = frozenset()  # all nodes, including nodes that are not ours
    node_kinds: Mapping[str, str] = {}  # the kind of each node of a pool that has one
    pilots: Mapping[str, int] | None = None  # the number of pilots by state; None for schedulers without pilots
    partitions: tuple[str, ...] = ()  # partitions that cannot preempt pilots
    hooks: HooksView | None = None  # None without a spool
    pools: Mapping[str, PoolView] = {}  # pools by label
    commands_a_minute: int | None = None  # commands in the last minute; None if it runs no commands
    commands_limits: Mapping[str, float] = {}  # commands per minute by the settings: at_rest, submissions


class FindingState(StrEnum):
    """The result of checking one topic of a site."""

    OK = "ok"
    WARNING = "warning"  # works, but slower or later than it could
    PROBLEM = "problem"  # a live run cannot work like this


class SiteFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one topic of a site; ``fix`` is the change to make."""

    topic: str
    state: FindingState
    detail: str
    fix: str = ""


def fine(topic: str, detail: str) -> SiteFinding:
    """Return the finding for a topic without problems."""
    return SiteFinding(topic=topic, state=FindingState.OK, detail=detail)


def problem(topic: str, error: BftrainError) -> SiteFinding:
    """Return the finding for an error."""
    detail = f"{error.where}: {error.what}" if error.where else error.what
    return SiteFinding(topic=topic, state=FindingState.PROBLEM, detail=detail, fix=error.fix or "")


class Scheduler(ABC):
    """One batch scheduler. All methods run in the event loop of the daemon and may not block it.

    A subclass sets ``name`` and implements the abstract methods; all other members have defaults.
    """

    name: str
    # Registration of an agent proves that its node is ours (a pilot job). Otherwise an ``Allowed`` is also required
    agents_suffice: bool = False
    # Agents are started by people, outlive the daemon and report the kinds of their nodes
    agents_stay: bool = False
    unit: str = NODE  # unit of its names: whole nodes, or single GPUs
    # How long agents without a daemon keep workers. None: until they exit; agents that stay: ``patience_s`` of the site
    keep_workers_s: float | None = None

    @property
    def ends_agents(self) -> bool:
        """Whether no process of ours is left on nodes that the scheduler does not let us use."""
        return self.agents_suffice

    def available(self) -> Availability:
        """Return whether its commands are installed, without calling the scheduler."""
        return Availability(ok=True)

    @abstractmethod
    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Post reports until cancelled, and keep agents on idle nodes; survives restarts of the scheduler.

        When cancelled it leaves agents running: a restarted daemon finds them again.
        """

    @abstractmethod
    async def look(self) -> frozenset[str] | None:
        """Return the nodes that the scheduler lets us use now; ``None`` if it does not answer."""

    @abstractmethod
    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Set how many nodes tasks can use, and the nodes to avoid (drained); called again on each change.

        Default before the first call: unlimited. It takes back no nodes: ``give_back`` does.
        """

    @abstractmethod
    async def give_back(self, nodes: Collection[str]) -> None:
        """Release nodes that are not needed, or are drained; their agents end."""

    @abstractmethod
    async def leave(self) -> None:
        """Cancel all our jobs at the scheduler, both running and waiting, for a drain."""

    async def check(self, agent: AgentOrder) -> None:  # noqa: B027 - optional
        """Raise ``NotAvailable`` if it can never work with the settings of the site, as far as it knows."""

    async def examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the settings of the site without any change; return all findings."""
        try:
            await self.check(agent)
        except NotAvailable as error:
            return (problem("scheduler", error),)
        return (fine("scheduler", f"'{self.name}' accepts the settings"),)

    def want_kinds(self, by_kind: Mapping[str, int]) -> None:  # noqa: B027 - optional
        """Set how many nodes of each kind tasks can use; called before ``want``."""

    def hint(self) -> None:  # noqa: B027 - optional
        """Handle the arrival or exit of an agent: a good time to poll."""

    def registered(self, node: str, gpus: int) -> None:  # noqa: B027 - optional
        """Record that the agent of a node registered, with the number of its GPUs; called if agents stay."""

    def gone(self, node: str) -> None:  # noqa: B027 - optional
        """Record that the agent of a node exited or was lost; called if agents stay."""

    def noticed(self, node: str) -> None:  # noqa: B027 - optional
        """Record that the scheduler announced to the agent of a node that it takes the node."""

    def to_leave(self) -> frozenset[str]:
        """Return the nodes that administrators of the scheduler drain: they are not to be used now."""
        return frozenset()

    def gpus_of(self, node: str) -> float:  # noqa: ARG002 - for subclasses
        """Return the GPUs requested by the pilot on a node; 0 if unknown."""
        return 0.0

    def facts(self) -> SchedulerFacts:
        """Return the current facts."""
        return SchedulerFacts()


# Takes the scheduler's settings (a TOML table without ``name``) and the site; raises BadConfig for invalid settings
MakeScheduler = Callable[[Mapping[str, object], Site], Scheduler]


def filled(order: AgentOrder, node: str) -> Sequence[str]:
    """Return the command that starts the agent of ``node``."""
    names = {"node": node, "host": node_of(node)}
    return tuple(PLACES.sub(lambda found: names[found[1]], word) for word in order.argv)


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a pool; ``table`` contains its scheduler's own settings."""

    name: Text  # name of its scheduler
    pool: str = ""  # pool name; optional for a single pool
    kind: str = ""  # default kind of its nodes, if missing in [kinds]
    unit: str = NODE  # unit of allocation: whole nodes, or single GPUs of nodes that may be shared with other jobs
    table: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.pool and not _NAME.fullmatch(self.pool):
            checks.reject(self, "pool", f"must be up to 40 letters, digits, '-' and '_', not {self.pool!r}")
        checks.one_of(self, "unit", (NODE, GPU))

    @property
    def plain(self) -> bool:
        """Whether the pool only wraps its scheduler, without settings of its own."""
        return not (self.pool or self.kind)

    @property
    def label(self) -> str:
        """The display name."""
        return self.pool or self.name


_POOL_KEYS: Final = frozenset(PoolSettings.__struct_fields__) - {"table"}
Settings = TypeVar("Settings", bound=msgspec.Struct)


def scheduler_settings(table: Mapping[str, Any], kind: type[Settings]) -> Settings:
    """Read the scheduler's own settings from a pool's ``table``; errors also suggest the pool's keys."""
    return from_mapping(table, kind, where="[scheduler]", beside=_POOL_KEYS)


def pools_of(given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[PoolSettings, ...]:
    """Read a table [scheduler], or the list [[scheduler]]; every pool except one needs a name."""
    tables = [given] if isinstance(given, Mapping) else list(given)
    if not tables:
        raise BadConfig("names no scheduler", where="[[scheduler]]", fix='such as name = "slurm"')
    pools: list[PoolSettings] = []
    for number, table in enumerate(tables, start=1):
        where = "[scheduler]" if isinstance(given, Mapping) else f"[[scheduler]] number {number}"
        if not isinstance(table.get("name"), str):
            raise BadConfig("has no name", where=where, fix='such as name = "slurm"')
        own = {key: table[key] for key in table if key in _POOL_KEYS}
        pool = wire.convert({**own, "table": {key: table[key] for key in table if key not in _POOL_KEYS}}, PoolSettings)
        if any(pool.pool == other.pool for other in pools):
            what = f"there is another pool called '{pool.pool}'" if pool.pool else "another pool also has no name"
            raise BadConfig(what, where=where, fix='name each: pool = "gpu"')
        if pools and pool.unit != pools[0].unit:
            what = f'has unit = "{pool.unit}", and the first one has "{pools[0].unit}"'
            raise BadConfig(what, where=where, fix="set the same unit for all, or start a live run per unit")
        pools.append(pool)
    return tuple(pools)


@dataclass(eq=False)
class SchedulerPool:
    """One pool, and its nodes that the scheduler lets us use."""

    settings: PoolSettings
    scheduler: Scheduler
    nodes: set[str] = field(default_factory=set)
    heard: bool = False  # whether a query of its scheduler ever succeeded


class SchedulerPools(Scheduler):
    """All pools as one scheduler. Remarks of a pool start with its name."""

    def __init__(self, pools: Collection[SchedulerPool]) -> None:
        self.pools = tuple(pools)
        each = [pool.scheduler for pool in self.pools]
        self.name = "+".join(dict.fromkeys(one.name for one in each))
        self.agents_suffice = all(one.agents_suffice for one in each)
        self.agents_stay = any(one.agents_stay for one in each)
        self.unit = each[0].unit
        keep = [one.keep_workers_s for one in each if one.keep_workers_s is not None]
        self.keep_workers_s = min(keep, default=None)
        self._wanted: tuple[int, Collection[str]] | None = None
        self._by_kind: Mapping[str, int] = {}

    @property
    def ends_agents(self) -> bool:
        """Whether all pools terminate agents."""
        return all(pool.scheduler.ends_agents for pool in self.pools)

    async def check(self, agent: AgentOrder) -> None:
        """Raise ``NotAvailable`` if the settings of a pool can never work."""
        for pool in self.pools:
            try:
                await pool.scheduler.check(agent)
            except NotAvailable as error:
                where = f"pool '{pool.settings.label}'" + (f": {error.where}" if error.where else "")
                raise NotAvailable(error.what, where=where, fix=error.fix) from error

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Run all schedulers; a failed scheduler is restarted without disturbing the rest."""
        async with asyncio.TaskGroup() as group:
            for pool in self.pools:
                group.create_task(self._run(pool, post, agent))

    async def _run(self, pool: SchedulerPool, post: Post, agent: AgentOrder) -> None:
        def tell(news: News) -> None:
            if isinstance(news, Taken) and pool.scheduler.agents_stay and pool not in self._owners(news.nodes):
                return  # the pool of a pilot took over the agent, which has not left
            self._hear(pool, news)
            post(Remark(text=f"pool '{pool.settings.label}': {news.text}") if isinstance(news, Remark) else news)

        await keep_running(
            lambda: pool.scheduler.run(tell, agent), lambda error: tell(Remark(text=f"it broke: {in_words(error)}"))
        )

    def _hear(self, pool: SchedulerPool, news: News) -> None:
        match news:
            case Allowed():
                pool.nodes.update(news.nodes)
                for other in self.pools:
                    if other is pool:
                        continue
                    moved = other.nodes.intersection(news.nodes)
                    other.nodes -= moved
                    if other.scheduler.agents_stay:  # it took the agent of a pilot for its own
                        for node in moved:
                            other.scheduler.gone(node)
            case Taken():
                pool.nodes.difference_update(news.nodes)
            case _:
                return
        self._share_out()

    async def look(self) -> frozenset[str] | None:
        """Return the nodes of all pools, the last known ones of a pool that does not answer.

        ``None`` if one never did.
        """
        found = await asyncio.gather(*(pool.scheduler.look() for pool in self.pools))
        for pool, nodes in zip(self.pools, found, strict=True):
            if nodes is not None:
                pool.nodes, pool.heard = set(nodes), True
        self._share_out()
        return frozenset().union(*(pool.nodes for pool in self.pools)) if all(one.heard for one in self.pools) else None

    def want_kinds(self, by_kind: Mapping[str, int]) -> None:
        """Set how many nodes of each kind tasks can use; other kinds are limited by the total only."""
        self._by_kind = by_kind

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Set the largest number of nodes in total."""
        self._wanted = (nodes, without)
        self._share_out()

    def _share_out(self) -> None:
        """Request the missing nodes from each pool, limited by the demand for its kind."""
        if self._wanted is None:
            return
        nodes, without = self._wanted
        held = sum(len(pool.nodes) for pool in self.pools)
        for pool in self.pools:
            most = min(nodes, self._by_kind.get(pool.settings.kind, nodes))
            pool.scheduler.want(max(0, min(most, nodes - held + len(pool.nodes))), without)

    def hint(self) -> None:
        """Let all schedulers look soon."""
        for pool in self.pools:
            pool.scheduler.hint()

    def registered(self, node: str, gpus: int) -> None:
        """Pass the registration to the pool of the node, or to all if it is unknown."""
        for pool in self._owners((node,)):
            pool.scheduler.registered(node, gpus)

    def gone(self, node: str) -> None:
        """Pass the exit to the pool of the node."""
        for pool in self._owners((node,)):
            pool.scheduler.gone(node)

    def noticed(self, node: str) -> None:
        """Pass the notice to the pool of the node, or to all if it is unknown."""
        for pool in self._owners((node,)):
            pool.scheduler.noticed(node)

    async def give_back(self, nodes: Collection[str]) -> None:
        """Release nodes to their pools."""
        await _all_of(pool.scheduler.give_back(nodes) for pool in self._owners(nodes))

    async def leave(self) -> None:
        """Cancel all our jobs in all pools."""
        await _all_of(pool.scheduler.leave() for pool in self.pools)

    def _owners(self, nodes: Collection[str]) -> tuple[SchedulerPool, ...]:
        """Return the pools of nodes; all pools if a node is unknown."""
        owners = tuple(pool for pool in self.pools if not pool.nodes.isdisjoint(nodes))
        known = all(any(node in pool.nodes for pool in owners) for node in nodes)
        return owners if known else self.pools

    def to_leave(self) -> frozenset[str]:
        """Return the nodes that the schedulers drain."""
        return frozenset().union(*(pool.scheduler.to_leave() for pool in self.pools))

    def gpus_of(self, node: str) -> float:
        """Return the GPUs requested by the pilot on a node; 0 if unknown."""
        return next((pool.scheduler.gpus_of(node) for pool in self.pools if node in pool.nodes), 0.0)

    def facts(self) -> SchedulerFacts:
        """Return the facts of all pools together; reports of hooks from the first pool with a spool."""
        each = [(pool, pool.scheduler.facts()) for pool in self.pools]
        commands = [found.commands_a_minute for _, found in each if found.commands_a_minute is not None]
        pilots, limits = Counter[str](), Counter[str]()
        for _, found in each:
            pilots.update(found.pilots or {})
            limits.update(found.commands_limits)
        return SchedulerFacts(
            cluster="+".join(dict.fromkeys(found.cluster for _, found in each if found.cluster)),
            nodes=frozenset().union(*(found.nodes for _, found in each)),
            node_kinds={node: pool.settings.kind for pool, found in each if pool.settings.kind for node in found.nodes},
            pilots=dict(pilots),
            partitions=tuple(dict.fromkeys(name for _, found in each for name in found.partitions)),
            hooks=next((found.hooks for _, found in each if found.hooks is not None), None),
            pools={
                pool.settings.label: PoolView(scheduler=pool.settings.name, nodes=len(pool.nodes))
                for pool in self.pools
            },
            commands_a_minute=sum(commands) if commands else None,
            commands_limits=dict(limits),
        )


async def keep_running(run: Callable[[], Coroutine[Any, Any, None]], broke: Callable[[Exception], None]) -> None:
    """Run a scheduler forever: restart it with growing delays; ``broke`` receives its errors."""
    again_s = timeouts.TIMEOUTS.scheduler_retry_s
    while True:
        began = time.monotonic()
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - a third-party scheduler may raise anything; retry
            broke(error)
        if time.monotonic() - began >= timeouts.TIMEOUTS.scheduler_retry_most_s:
            again_s = timeouts.TIMEOUTS.scheduler_retry_s
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, timeouts.TIMEOUTS.scheduler_retry_most_s)


async def _all_of(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all jobs, and raise the first error when all are done."""
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def in_words(error: Exception) -> str:
    """Return the message of bftrain errors; prefix the type of any other error."""
    return str(error) if isinstance(error, BftrainError) else f"{type(error).__name__}: {error}"
