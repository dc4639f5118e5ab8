"""Site settings of a live run: one TOML file, validated as a whole before anything is started."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from bftrain import config, text_formats, toml_io
from bftrain.config import LiveSettings
from bftrain.errors import BadConfig, BadValue, BftrainError, UnknownName
from bftrain.live import timeouts
from bftrain.live.schedulers.base import Count, NotNegative, PoolSettings, Positive, Site, Text, Word, pools_of
from bftrain.node_units import NODE, is_slot, node_of
from bftrain.nodesets import expand
from bftrain.values import checks
from bftrain.values.curve import ANY_KIND, OTHER_KIND, SpeedCurve
from bftrain.values.job import Run

_FAIR: Final = "hierarchical"  # the objective: equal past service for users, and for the tasks of a user
_LONGEST_SOCKET: Final = 100  # bytes that the kernel takes for the path of a Unix socket, less some room


Sets = Mapping[str, str | tuple[str, ...]]  # kind: a node set, or several

_KINDS_FIX: Final = 'write v100 = "n[001-036]", or a list of such node sets'


def by_node(sets: Sets) -> dict[str, str]:
    """Return the kind of each named node; errors name the kind."""
    found: dict[str, str] = {}
    for kind, given in sets.items():
        if not kind or kind != kind.strip() or not kind.isprintable():
            raise BadValue("is not the name of a kind", where=kind, fix=_KINDS_FIX)
        if kind == OTHER_KIND:
            what = "is the kind of all nodes that [kinds] does not name"
            raise BadValue(what, where=kind, fix="omit it, or choose another name")
        try:
            nodes = [node for text in ((given,) if isinstance(given, str) else given) if text for node in expand(text)]
        except ValueError as error:
            raise BadValue(str(error), where=kind, fix=_KINDS_FIX) from error
        if not nodes:
            raise BadValue("is given to no node", where=kind, fix=_KINDS_FIX)
        for node in nodes:
            other = found.setdefault(node, kind)
            if other != kind:
                what = f"node '{node}' is of kind '{other}' already"
                raise BadValue(what, where=kind, fix="give every node one kind")
    return found


@dataclass(frozen=True, slots=True)
class NodeKinds:
    """The kinds of nodes; false if nodes have no kinds.

    If some nodes are named, all other nodes are of the kind ``other``, as in an exported journal: the speed of tasks
    with curves by kind is unknown there.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    unit: str = NODE  # GPUs are of their node's kind; how many there are is not known

    def __bool__(self) -> bool:
        """Return whether nodes have kinds."""
        return bool(self.named)

    def of(self, node: str) -> str:
        """Return the kind of a node."""
        return self.named.get(node) or self.named.get(node_of(node), OTHER_KIND if self.named else ANY_KIND)

    def grouped(self, nodes: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each kind with its nodes."""
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self.of(node), []).append(node)
        yield from ((kind, tuple(found[kind])) for kind in sorted(found))

    def unfit(self, min_nodes: int, curves: Mapping[str, SpeedCurve]) -> str:
        """Return why nodes here can never hold a task with these ``curves`` by kind; empty if they can."""
        if not curves:
            return ""
        if not self.named:
            return "this site names no kinds of nodes"
        counts = Counter(self.named.values())
        most = max(counts[kind] for kind in curves)
        if OTHER_KIND in curves or min_nodes <= most or (most and self.unit != NODE):
            return ""
        there = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        needed = text_formats.counted(min_nodes, "node")
        return f"it needs {needed} of one kind and runs on {', '.join(curves)} only; there are {there}"


@dataclass(frozen=True, slots=True)
class NodeRates:
    """The GPUs and watts of a node, by kind, and the projects of users; a slot has one GPU."""

    gpus: Mapping[str, float] = field(default_factory=dict)  # kind -> GPUs; "": all remaining kinds
    watts: Mapping[str, float] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)  # user -> project
    kind_of: Callable[[str], str] = lambda _: ""
    gpus_of: Callable[[str], float] = lambda _: 0.0  # default: unknown

    def of(self, node: str) -> tuple[float, float]:
        """Return the GPUs and the watts of a node."""
        kind = self.kind_of(node)
        gpus = self.gpus.get(kind, self.gpus.get("", 0.0)) if any(self.gpus.values()) else self.gpus_of(node)
        watts = self.watts.get(kind, self.watts.get("", 0.0))
        return (1.0, watts / gpus if gpus else watts) if is_slot(node) else (gpus, watts)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Agents(_Table, frozen=True, kw_only=True):
    """Settings of the agents: what runs on nodes, and how it connects to the daemon."""

    used: bool = True  # False: launchers without agents; the scheduler's report alone then makes a node available
    listen: Text = "127.0.0.1"  # address on which the daemon waits for agents
    port: Count = 0  # 0: the one we had before, or any
    reach: Word = ""  # how agents reach the live run (default: listen; for 0.0.0.0 the host name, unless all is local)
    address: Text = "127.0.0.1"  # how nodes reach each other; {node} is the node's name
    python: Text = sys.executable  # the interpreter on the nodes
    slots: Count = 0  # workers per node; 0: one per GPU, or one
    # Modules that workers find imported; the second is needed by the first optimizer, and takes as long as the first
    preload: tuple[str, ...] = ("torch", "torch._dynamo")
    patience_s: Positive = 30.0  # how long agents and workers survive without the daemon
    grace_s: NotNegative = 0.0  # time from the scheduler's SIGTERM to its SIGKILL: tasks may hand over or save
    settle_s: NotNegative = 5.0  # workers that exit so long before SIGTERM reaches their agent count as preempted
    log_mb: Annotated[float, Meta(ge=1, le=1e15)] = 64.0  # kept of a worker's output: the beginning and the end
    # Memory of a node for copies of task states from other nodes: a share of free memory, or MB; 0: none
    copies_memory: Annotated[str, Meta(pattern=r"^\d{1,9}(\.\d{1,9})?%?$")] = "10%"
    nice: Annotated[int, Meta(ge=0, le=19)] = 0  # niceness of imports and workers, as for nice(1)


class Environment(_Table, frozen=True, kw_only=True):
    """An environment that tasks can refer to: the setup before a program runs."""

    setup: tuple[str, ...] = ()  # lines of bash that run before, such as module load cuda
    prefix: tuple[str, ...] = ()  # command prefix, such as apptainer exec --nv IMAGE
    python: str = ""  # Python for scripts; "": python3 on PATH


class KeepSettings(_Table, frozen=True, kw_only=True):
    """Limits on the journal, and on the remains of finished tasks; 0: no limit."""

    journal_steps: Count = 1_000_000  # limit in live.db; older steps are moved to the folder archive
    archive_days: NotNegative = 365.0  # retention of these copies
    commit_days: NotNegative = 90.0  # retention of a finished task's folder; logs stay
    task_days: NotNegative = 365.0  # retention of a finished task's logs and record
    folders_gb: NotNegative = 100.0  # limit for the folders of finished tasks; the oldest are deleted first

    def __post_init__(self) -> None:
        if 0 < self.journal_steps < timeouts.LIMITS.fewest_journal_steps:
            checks.reject(self, "journal_steps", f"must be 0, or at least {timeouts.LIMITS.fewest_journal_steps}")


class Api(_Table, frozen=True, kw_only=True):
    """API settings: addresses and access."""

    socket: str = ""  # a Unix socket; "": api.sock in the folder `state`
    mode: str = "600"  # permissions of the socket, as for chmod; 666 admits all users, each to their own tasks
    group: str = ""  # members may connect with mode 660
    tcp: str = ""  # HOST:PORT for HTTP with a token; "": none
    beyond_loopback: bool = False  # required for a HOST that other machines can reach
    open_metrics: bool = False  # /metrics over TCP without a token: it reveals no user and task names
    token: str = ""  # the file of the token; "": token in the folder `state`
    metrics_by_user: bool = False  # /metrics names users with their hours
    operators: tuple[str, ...] = ()  # users, in addition to the daemon's user, with access to all tasks
    max_weight: NotNegative = 1.0  # upper limit for users who are not operators
    names_by_user: bool = False  # tasks are called NAME@USER, which hides the names of other users' tasks

    def __post_init__(self) -> None:
        if self.mode not in {"600", "660", "666"}:
            checks.reject(self, "mode", f"must be 600, 660 or 666, not {self.mode!r}")
        if self.tcp:
            host, _, number = self.tcp.rpartition(":")
            if not host or not number.isdecimal() or int(number) > 65535:  # noqa: PLR2004 - the largest port
                checks.reject(self, "tcp", f"must be HOST:PORT, not {self.tcp!r}", "such as 127.0.0.1:8765")
            if host not in {"127.0.0.1", "localhost", "[::1]"} and not self.beyond_loopback:
                checks.reject(self, "tcp", f"other machines can reach {host}", "also set beyond_loopback = true")
        if self.metrics_by_user and self.open_metrics:
            checks.reject(
                self, "metrics_by_user", "would show user names to all readers of /metrics", "leave out open_metrics"
            )


class Times(_Table, frozen=True, kw_only=True):
    """Timeouts, in seconds."""

    settle_s: NotNegative = 0.0  # delay of decisions, so that one covers several events; nodes are never kept longer
    # Time for agents to reconnect after a restart, before their nodes count as lost; at least their patience
    reunion_s: NotNegative = 10.0
    drain_s: NotNegative = 30.0  # time for tasks to save their state on shutdown or when nodes are drained
    look_s: Positive = 60.0  # polling interval of the scheduler, in addition to its own messages
    idle_s: NotNegative = 60.0  # time without any task that wants nodes, before they are returned
    # Quiet period before objectives that depend on past service share nodes again; 0: never
    share_s: NotNegative = 300.0
    stall_s: NotNegative = 1800.0  # default time limit for a step, before a task loses its nodes; 0: none


class Usage(_Table, frozen=True, kw_only=True):
    """The GPUs and watts of a node, for all nodes or by kind, and the users of each project."""

    gpus: NotNegative | Mapping[str, NotNegative] = 0.0
    watts: NotNegative | Mapping[str, NotNegative] = 0.0
    projects: Mapping[str, tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        users = Counter(user for users in self.projects.values() for user in users)
        for user, times in users.items():
            if times > 1:
                checks.reject(self, "projects", f"'{user}' is in {times} projects", "leave the user in one")


def _by_kind(given: float | Mapping[str, float]) -> Mapping[str, float]:
    return given if isinstance(given, Mapping) else {"": given}


class SiteSettings(_Table, frozen=True, kw_only=True):
    """All settings of a live run.

    ``folder`` is private and visible from all nodes: secret, checkpoints and logs of tasks. ``state`` is on a local
    disk: journal and socket.
    """

    name: Text = "bftrain"  # marks our jobs at the scheduler
    folder: str = ""
    state: str = ""
    launcher: Text = "native"  # default launcher of tasks
    launchers: tuple[str, ...] = ()  # launchers that tasks may choose; (): all
    environment: str = ""  # default environment of tasks
    environments: Mapping[str, Environment] = {}  # environments by name
    scheduler: Mapping[str, Any] | tuple[Mapping[str, Any], ...] = msgspec.field(
        default_factory=lambda: {"name": "local"}
    )
    kinds: Mapping[str, str | tuple[str, ...]] = {}  # node sets by kind of node
    deciding: LiveSettings = LiveSettings()
    agents: Agents = Agents()
    api: Api = Api()
    times: Times = Times()
    usage: Usage = Usage()
    keep: KeepSettings = KeepSettings()

    def __post_init__(self) -> None:
        """Validate all fields, and set default folders."""
        try:
            pools_of(self.scheduler)
        except BftrainError as error:
            checks.reject(self, "scheduler", f"{error.where}: {error.what}" if error.where else error.what, error.fix)
        if isinstance(self.scheduler, Mapping):
            checks.frozen_mapping(self, "scheduler")
        try:
            by_node(self.kinds)
        except BadValue as error:
            checks.reject(self, "kinds", f"'{error.where}': {error.what}", error.fix)
        checks.frozen_mapping(self, "kinds")
        state = self.state or str(default_state())
        msgspec.structs.force_setattr(self, "state", state)
        msgspec.structs.force_setattr(self, "folder", self.folder or state)
        checks.frozen_mapping(self, "environments")
        if self.environment and self.environment not in self.environments:
            checks.reject(self, "environment", f"there is no [environments.{self.environment}]")
        if len(str(self.socket).encode()) > _LONGEST_SOCKET:
            what, fix = "leaves no room for a socket path", "set api.socket to a shorter path"
            if self.api.socket:
                what, fix = f"has a socket path of more than {_LONGEST_SOCKET} bytes", "such as /tmp/NAME.sock"
            checks.reject(self, "api" if self.api.socket else "state", what, fix)

    @property
    def socket(self) -> Path:
        """The Unix socket of the API."""
        return Path(self.api.socket or Path(self.state, "api.sock"))

    @property
    def token(self) -> Path:
        """The file of the token for HTTP over TCP."""
        return Path(self.api.token or Path(self.state, "token"))

    @property
    def journal(self) -> Path:
        """The journal."""
        return Path(self.state, "live.db")

    @property
    def secret(self) -> Path:
        """The secret shared with agents."""
        return Path(self.folder, "secret")

    @property
    def tasks(self) -> Path:
        """The folder of task folders."""
        return Path(self.folder, "tasks")

    @property
    def reunion_s(self) -> float:
        """The time that agents have to reconnect after a restart of the daemon.

        Agents and their workers survive for this long without the daemon, so their nodes must not be used for new
        processes before that.
        """
        patience_s = self.agents.patience_s
        return max(self.times.reunion_s, patience_s + min(timeouts.TIMEOUTS.agent_exit_s, patience_s / 2))

    def for_scheduler(self, pool: PoolSettings) -> Site:
        """Return the settings for the scheduler of a pool: pilots of each pool have a name of their own."""
        name = f"{self.name}-{pool.pool}" if pool.pool else self.name
        return Site(name=name, folder=Path(self.folder), grace_s=self.agents.grace_s, unit=pool.unit)

    @property
    def pools(self) -> tuple[PoolSettings, ...]:
        """The pools, one for each table of a scheduler."""
        return pools_of(self.scheduler)

    @property
    def scheduler_name(self) -> str:
        """The names of the schedulers, joined by '+'."""
        return "+".join(dict.fromkeys(pool.name for pool in self.pools))

    @property
    def unit(self) -> str:
        """The unit of all pools: whole nodes, or single GPUs."""
        return self.pools[0].unit

    @property
    def kind_of(self) -> dict[str, str]:
        """The kind of each node that has one in the settings."""
        return by_node(self.kinds)

    def node_rates(self, kind_of: Callable[[str], str], gpus_of: Callable[[str], float]) -> NodeRates:
        """Return the GPUs and watts of nodes, and users' projects; ``gpus_of`` applies if the site sets no GPUs."""
        projects = {user: project for project, users in self.usage.projects.items() for user in users}
        return NodeRates(_by_kind(self.usage.gpus), _by_kind(self.usage.watts), projects, kind_of, gpus_of)


def environment_of(run: Run, known: dict[str, Environment], default: str) -> Environment:
    """Return a task's environment: the site environment it names (or the default), extended by its own settings.

    Its own lines run after the site's lines; its own prefix and Python replace the site's.
    """
    name = run.environment or default
    if name and name not in known:
        raise UnknownName.among("environment", name, known, where="environment")
    site = known[name] if name else Environment()
    return Environment(
        setup=(*site.setup, *run.setup), prefix=run.prefix or site.prefix, python=run.python or site.python
    )


_TABLES: Final = {
    one.name: one.type
    for one in msgspec.structs.fields(SiteSettings)
    if isinstance(one.type, type) and issubclass(one.type, msgspec.Struct)
}


def default_state() -> Path:
    """Return the default folder of a user's live run."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "bftrain", "live")


def load(path: Path, *, to_run: bool = False) -> SiteSettings:
    """Read site settings; relative paths are relative to the file's folder. A file ``to_run`` names its scheduler.

    Where several users may connect, the default objective is a fair one.
    """
    text = config.read(path)
    data = toml_io.parse(text, str(path))
    _make_absolute(data, path.absolute())
    for name, kind in _TABLES.items():
        if isinstance(data.get(name), dict):  # one at a time, so errors about unknown keys have a line and a suggestion
            config.from_mapping(data[name], kind, where=str(path), text=text, table=name)
    settings = config.from_mapping(data, SiteSettings, where=str(path), text=text)
    if to_run and "scheduler" not in data:  # an unfinished file must not train on the machine where it is tried
        fix = 'add [scheduler] with a name such as "slurm", or "local" to train on this machine'
        raise BadConfig("names no scheduler", where=str(path), fix=fix)
    if settings.api.mode != "600" and not {"objective", "solver", "policy"}.intersection(data.get("deciding", {})):
        fair = msgspec.structs.replace(settings.deciding, objective=_FAIR)
        settings = msgspec.structs.replace(settings, deciding=fair)
    return settings


def _make_absolute(data: dict[str, Any], file: Path) -> None:
    """Make all paths in a site's file absolute; relative ones start at its folder."""
    from bftrain import parts, registry  # noqa: PLC0415 - clients of a live run do not need them

    def path(text: str) -> str:
        return str(file.parent / Path(text).expanduser()) if text else text

    def program(text: str) -> str:  # a name, or a path
        return path(text) if "/" in text else text

    def part(text: str) -> str:  # a name, or FILE.py:NAME
        return parts.absolute_admission(text, file.parent)

    found = data.get("scheduler")
    schedulers = [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]
    environments = found.values() if isinstance(found := data.get("environments"), dict) else ()
    for table, keys, absolute in (
        (data, ("folder", "state"), path),
        (data.get("api"), ("socket", "token"), path),
        (data.get("deciding"), ("objective", "admission", "policy"), part),
        (data.get("agents"), ("python",), program),
        *((one, ("python",), program) for one in environments),
        *((one, ("spool",), path) for one in schedulers if str(one.get("name")) in registry.BUILT_IN["scheduler"]),
    ):
        for key in keys:
            if isinstance(table, dict) and isinstance(text := table.get(key), str):
                try:
                    table[key] = absolute(text)
                except (ValueError, RuntimeError) as error:  # a NUL; "~" of an unknown user
                    raise BadConfig(f"{key}: {error}", where=str(file)) from error
