"""Site: the settings of a live run, read from one TOML file, checked as a whole before anything is started."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bftrain import config
from bftrain.config import Settings
from bftrain.errors import BadConfig, BadValue
from bftrain.live.model import node_kinds
from bftrain.live.schedulers import port
from bftrain.toml_lines import line_of
from bftrain.values import checks, wire

_LEAVING_S: Final = 5.0  # at most, for an agent that gives us up to notice that and end what it started
_LONGEST_SOCKET: Final = 100  # bytes that the kernel takes for the path of a Unix socket, less some room


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Agents(_Table, frozen=True, kw_only=True):
    """What runs on the nodes, and how it finds us."""

    used: bool = True  # False: launchers that need no agents; then the scheduler's word alone makes a node ours
    listen: str = "127.0.0.1"  # where we wait for agents
    port: int = 0  # 0: the one we had before, or any
    reach: str = ""  # how agents reach us, if not by the address above
    address: str = "127.0.0.1"  # how nodes reach each other; {node} is the node's name
    python: str = sys.executable  # the interpreter on the nodes
    slots: int = 0  # workers on a node; 0: one a GPU, or one
    preload: tuple[str, ...] = ("torch",)  # what workers find imported
    patience_s: float = 30.0  # how long agents and workers go on without us
    grace_s: float = 0.0  # from the scheduler's SIGTERM to its SIGKILL: tasks may use it to hand over or save
    settle_s: float = 5.0  # that a preemption may take to reach all processes of a node and its agent

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("listen", "address", "python"):
            checks.text(self, name)
        if self.reach:
            checks.text(self, "reach")
        checks.integer(self, "port", at_least=0)
        checks.integer(self, "slots", at_least=0)
        checks.texts(self, "preload")
        checks.number(self, "patience_s", above=0.0)
        for name in ("grace_s", "settle_s"):
            checks.number(self, name, at_least=0.0)


class Api(_Table, frozen=True, kw_only=True):
    """Who may ask us, and where."""

    socket: str = ""  # a Unix socket; "": api.sock in the folder `state`
    mode: str = "600"  # who may connect to it, as for chmod; 666 lets all users in, each to their own tasks
    group: str = ""  # whose members may connect with mode 660
    tcp: str = ""  # HOST:PORT for HTTP with a token; "": none
    beyond_loopback: bool = False  # must be said for a HOST that others can reach
    open_metrics: bool = False  # /metrics over TCP needs no token: it names no user and no task
    token: str = ""  # the file of the token; "": token in the folder `state`
    operators: tuple[str, ...] = ()  # users who may see and touch everything, besides ourselves

    def __post_init__(self) -> None:
        """Check every field."""
        if self.mode not in {"600", "660", "666"}:
            checks.reject(self, "mode", f"must be 600, 660 or 666, not {self.mode!r}")
        if self.tcp:
            host, _, number = self.tcp.rpartition(":")
            if not host or not number.isdecimal() or int(number) > 65535:  # noqa: PLR2004 - the largest port
                checks.reject(self, "tcp", f"must be HOST:PORT, not {self.tcp!r}", "such as 127.0.0.1:8765")
            if host not in {"127.0.0.1", "localhost", "[::1]"} and not self.beyond_loopback:
                checks.reject(self, "tcp", f"{host} can be reached by others", "say beyond_loopback = true as well")
        checks.texts(self, "operators")


class Times(_Table, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    settle_s: float = 0.0  # between something that joined or was submitted and the decision; departures never wait
    # That agents have to come back after a restart, before their nodes count as lost; never less than their patience
    reunion_s: float = 10.0
    drain_s: float = 30.0  # that tasks have to put themselves in order when we end or nodes are drained
    look_s: float = 60.0  # between looks at what the scheduler says, besides the news it sends
    idle_s: float = 60.0  # without any task before nodes are given back
    stall_s: float = 1800.0  # without a step after which a task that does not say gives its nodes back; 0: never

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("settle_s", "reunion_s", "drain_s", "idle_s", "stall_s"):
            checks.number(self, name, at_least=0.0)
        checks.number(self, "look_s", above=0.0)


class SiteSettings(_Table, frozen=True, kw_only=True):
    """All settings of a live run.

    ``folder`` is private and seen by all nodes: the secret, and what tasks commit and log. ``state`` is on a disk of
    this machine: the journal and the socket.
    """

    name: str = "bftrain"  # marks what is ours at the scheduler
    folder: str = ""
    state: str = ""
    launcher: str = "native"  # for tasks that do not say
    launchers: tuple[str, ...] = ()  # that tasks may choose; (): all there are
    scheduler: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"name": "local"})
    kinds: Mapping[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict)  # node sets by kind of node
    deciding: Settings = Settings()
    agents: Agents = Agents()
    api: Api = Api()
    times: Times = Times()

    def __post_init__(self) -> None:
        """Check every field, and fill in the folders."""
        for name in ("name", "launcher"):
            checks.text(self, name)
        if not isinstance(self.scheduler.get("name"), str):
            checks.reject(self, "scheduler", "has no name", 'such as name = "slurm"')
        checks.frozen_mapping(self, "scheduler")
        try:
            node_kinds.by_node(self.kinds)
        except BadValue as error:
            checks.reject(self, "kinds", f"'{error.where}': {error.what}", error.fix)
        checks.frozen_mapping(self, "kinds")
        state = self.state or str(default_state())
        msgspec.structs.force_setattr(self, "state", state)
        msgspec.structs.force_setattr(self, "folder", self.folder or state)
        checks.texts(self, "launchers")
        if len(str(self.socket).encode()) > _LONGEST_SOCKET:
            checks.reject(self, "state", "is too long for a socket in it", "set api.socket to a shorter path")

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
        """The secret that agents know."""
        return Path(self.folder, "secret")

    @property
    def tasks(self) -> Path:
        """Where folders of tasks are made."""
        return Path(self.folder, "tasks")

    @property
    def reunion_s(self) -> float:
        """How long agents have to come back after a restart.

        An agent goes on without us for its patience, and its workers with it. Before that is over nothing may be
        started in the place of what may still run there.
        """
        patience_s = self.agents.patience_s
        return max(self.times.reunion_s, patience_s + min(_LEAVING_S, patience_s / 2))

    @property
    def for_scheduler(self) -> port.Site:
        """The part of it that a scheduler needs."""
        return port.Site(name=self.name, folder=Path(self.folder), grace_s=self.agents.grace_s)

    @property
    def scheduler_table(self) -> dict[str, object]:
        """The scheduler's own settings."""
        return {key: value for key, value in self.scheduler.items() if key != "name"}

    @property
    def kind_of(self) -> dict[str, str]:
        """The kind of every node that is given one."""
        return node_kinds.by_node(self.kinds)

    @property
    def digest(self) -> str:
        """SHA-256 of all settings."""
        return hashlib.sha256(wire.encode(self)).hexdigest()


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "deciding": Settings,
    "agents": Agents,
    "api": Api,
    "times": Times,
}
_PATHS: Final = ("folder", "state")


def default_state() -> Path:
    """Where a user's live run keeps its state if nothing else is said."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "bftrain", "live")


def load(path: Path) -> SiteSettings:
    """Read a site's settings; relative paths in the file count from its folder."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"is not valid TOML: {error}", where=str(path)) from error
    for name, kind in _TABLES.items():
        if name in data:  # each by itself, so that an unknown key is found with its line and the nearest known one
            if not isinstance(data[name], dict):
                raise BadConfig(f"'{name}' must be a table", where=str(path), fix=f"begin it with [{name}]")
            config.from_mapping(data[name], kind, where=str(path), text=text)
    _check_kinds(data.get("kinds", {}), path, text)
    settings = config.from_mapping(data, SiteSettings, where=str(path), text=text)
    base = path.absolute().parent
    return msgspec.structs.replace(settings, **{name: _placed(getattr(settings, name), base) for name in _PATHS})


def _check_kinds(given: object, path: Path, text: str) -> None:
    """Find what is wrong with a kind of node on its own line."""
    if not isinstance(given, dict):
        raise BadConfig("'kinds' must be a table", where=str(path), fix="begin it with [kinds]")
    for kind, sets in given.items():
        where = f"{path}:{line_of(text, ('kinds', kind))}: kinds.{kind}"
        if not all(isinstance(one, str) for one in (sets if isinstance(sets, list) else [sets])):
            raise BadConfig(f"must be a node set, or a list of such, not {sets!r:.60}", where=where)
    try:
        node_kinds.by_node(given)
    except BadValue as error:
        where = f"{path}:{line_of(text, ('kinds', error.where or ''))}: kinds.{error.where}"
        raise BadConfig(error.what, where=where, fix=error.fix) from error


def _placed(text: str, base: Path) -> str:
    return str(base / Path(text).expanduser())
