"""Startup: opens journal, hub and scheduler of a live run; raises the reason on failure.

``examine`` verifies the settings for ``bftrain live check`` without starting or changing anything.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from msgspec.structs import replace

from bftrain import registry
from bftrain.assembly import build_harvester
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadConfig, BadInput, BftrainError, BrokenPlugin, NotAvailable, described
from bftrain.journal import Journal, complete_file
from bftrain.live.daemon.task_store import TaskStore, last_site
from bftrain.live.model.site_config import Agents, SiteSettings
from bftrain.live.schedulers.base import (
    AgentOrder,
    FindingState,
    PoolSettings,
    Scheduler,
    SchedulerPool,
    SchedulerPools,
    SiteFinding,
    fine,
    problem,
)
from bftrain.rerun import recover
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.manager.agent_hub import AgentHub, OnEvent
from bftrain_elastic.wire.authenticated_stream import make_secret, read_secret

_PORT: Final = "port of the hub"
_EPOCH: Final = "epoch"
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


@dataclass
class LiveResources:
    """The opened resources. ``hub`` is ``None`` if agents are not used."""

    site: SiteSettings
    locks: tuple[IO[bytes], ...]
    journal: Journal
    task_store: TaskStore
    harvester: Harvester
    scheduler: Scheduler
    hub: AgentHub | None
    agent_order: AgentOrder

    def close(self) -> None:
        """Close all, without informing agents."""
        self.journal.close()
        for lock in self.locks:
            lock.close()


def open_site(site: SiteSettings, tell: OnEvent) -> LiveResources:
    """Open journal, hub and scheduler of a site; ``tell`` is called from the hub's thread."""
    for folder in (Path(site.state), Path(site.folder), site.tasks):
        _make_private(folder)
    build_harvester(site.deciding)  # first, so that invalid settings leave no journal behind
    check_launchers(site)
    with ExitStack() as opened:
        lock = opened.enter_context(_locked(Path(site.state, "lock")))
        folder_lock = opened.enter_context(_locked(Path(site.folder, "live.lock"), shared=True))
        scheduler = _scheduler(site, _owner(lock))
        journal = Journal.open(site.journal) if site.journal.exists() else Journal.create(site.journal, site.deciding)
        opened.callback(journal.close)
        journal.prepare_writes()
        complete_file(site.journal)
        _check_same_site(site, journal)
        task_store = TaskStore(journal)
        task_store.write()  # changes to an earlier version's tables
        harvester = recover(journal, site.deciding)
        stay_s = site.agents.patience_s if scheduler.agents_stay else None
        keep_s = stay_s if scheduler.keep_workers_s is None else scheduler.keep_workers_s
        hub = _hub(site, task_store, tell, keep_s) if site.agents.used else None
        opened.pop_all()  # success: everything stays open
    order = _agent_order(site, hub)
    return LiveResources(site, (lock, folder_lock), journal, task_store, harvester, scheduler, hub, order)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fix = "name a folder that you can write, by state and folder of the settings"
        raise BadConfig(f"cannot be made: {error.strerror}", where=str(folder), fix=fix) from error
    check_private(folder)


def check_private(folder: Path) -> None:
    """Raise unless a folder belongs to this user, who can write there, and other users cannot."""
    about = folder.stat()
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadConfig("cannot be written", where=str(folder), fix=f"chmod u+rwx {folder}, or name another one")
    if about.st_uid != os.getuid():
        raise BadConfig("belongs to another user", where=str(folder), fix="name a folder of your own")
    if stat.S_IMODE(about.st_mode) & 0o022:
        raise BadConfig("other users can write there", where=str(folder), fix=f"chmod go-w {folder}")


def check_launchers(site: SiteSettings) -> None:
    """Raise if a launcher that the site names is missing, or if tasks may not choose the default one."""
    for name in {site.launcher, *site.launchers}:
        registry.load("launcher", name)
    if site.launchers and site.launcher not in site.launchers:
        raise BadInput(
            f"'{site.launcher}' is not a launcher that tasks may choose", where="launcher", fix="add it to them"
        )


def _locked(path: Path, *, shared: bool = False) -> IO[bytes]:
    """Lock the state or the shared folder against other runs; the lock is released when this process exits.

    Live runs with a common folder would write into the same task folders. On shared file systems without locks,
    nothing is locked.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if shared and not isinstance(error, BlockingIOError):
            return file
        file.close()
        own = "folder" if shared else "state"
        what, fix = "another live run uses it", f"end the other one, or give this one a {own} of its own"
        if not isinstance(error, BlockingIOError):
            what, fix = f"cannot be locked: {error.strerror}", "put state on a disk of this machine"
        raise NotAvailable(what, where=str(path.parent), fix=fix) from error
    return file


def _owner(lock: IO[bytes]) -> str:
    """Return the mark of a state's pilots, which its lock file keeps; make it at the first start."""
    if not (kept := lock.read().decode(errors="replace")).isalnum():
        kept = secrets.token_hex(4)
        lock.seek(0)
        lock.truncate()
        lock.write(kept.encode())
        lock.flush()
    return kept


def _scheduler(site: SiteSettings, owner: str) -> Scheduler:
    pools = [SchedulerPool(pool, scheduler_of(site, pool, owner)) for pool in site.pools]
    (first, *others) = pools
    return first.scheduler if first.settings.plain and not others else SchedulerPools(pools)


def scheduler_of(site: SiteSettings, pool: PoolSettings, owner: str) -> Scheduler:
    """Build the scheduler of a pool, whose pilots have the mark of ``owner``; raise if it cannot work here."""
    where = f"scheduler '{pool.name}'" + (f", pool '{pool.pool}'" if pool.pool else "")
    make = registry.load("scheduler", pool.name)
    try:
        scheduler: object = make(pool.table, replace(site.for_scheduler(pool), owner=owner))
    except (BftrainError, OSError):
        raise
    except Exception as error:
        raise BrokenPlugin(f"cannot be created: {described(error)}", where=where) from error
    if not isinstance(scheduler, Scheduler):
        fix = "derive it from Scheduler, or return PilotJobs(...): docs/how-to/parts.md"
        raise BrokenPlugin("is not a bftrain.live.schedulers.base.Scheduler", where=where, fix=fix)
    if pool.unit != scheduler.unit:
        raise BadConfig(
            f'{where} hands out whole nodes only, not unit = "{pool.unit}"',
            where="[scheduler] unit",
            fix='omit it; only name = "slurm" hands out single GPUs',
        )
    if scheduler.agents_stay and len(site.pools) == 1:
        _check_agents_options(site.agents)
    state = scheduler.available()
    if not state.ok:
        raise NotAvailable(state.reason, where=where, fix=state.fix or None)
    return scheduler


# Settings that become options of the agent's command, which people start themselves
_AGENT_OPTIONS: Final = ("address", "python", "slots", "preload", "grace_s", "log_mb", "copies_memory", "nice")


def _check_agents_options(agents: Agents) -> None:
    """Raise if settings have no effect, because agents are started by people."""
    usual = Agents()
    for key in _AGENT_OPTIONS:
        if getattr(agents, key) != getattr(usual, key):
            what = f"'{key}' has no effect on agents that people start"
            fix = f"omit it; {agents.python} -m bftrain_elastic.agent --help lists the options of an agent"
            raise BadConfig(what, where="[agents]", fix=fix)


def _check_same_site(site: SiteSettings, journal: Journal) -> None:
    """Raise if the journal is of another site or scheduler: its tasks were not meant for these nodes."""
    before = last_site(journal)
    scheduler: Any = before.get("scheduler") or ()
    names = {one["name"] for one in ([scheduler] if isinstance(scheduler, dict) else scheduler)}
    known = None if names.intersection(pool.name for pool in site.pools) else "+".join(sorted(names)) or None
    for what, was, now in (("scheduler", known, site.scheduler_name), ("site", before.get("name"), site.name)):
        if was is not None and was != now:
            fix = f"start it with settings for that {what}, or give '{now}' a state of its own: state = ..."
            raise BadConfig(
                f"belongs to {what} '{was}', and these settings are for '{now}'", where=str(journal.path), fix=fix
            )


def _hub(site: SiteSettings, task_store: TaskStore, tell: OnEvent, keep_s: float | None) -> AgentHub:
    """Open the hub on the port of the last run, as running agents reconnect there."""
    _check_host_for_agents(site)
    try:
        secret = read_secret(site.secret) if site.secret.exists() else make_secret(site.secret)
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    wanted = site.agents.port or int(task_store.fact(_PORT) or 0)
    # Agents reject managers with smaller epochs. The epoch rises with every start on the same state, even if the
    # clock was set back. It is at least the current time, so agents that were left behind by a manager with
    # another state, but with an equal secret, accept this one
    epoch = max(int(task_store.fact(_EPOCH) or 0) + 1, int(time.time()))
    task_store.record_fact(_EPOCH, str(epoch))
    task_store.write()
    settings: dict[str, Any] = {"epoch": epoch, "settle_s": site.agents.settle_s, "keep_s": keep_s}
    make = partial(AgentHub, tell, secret, bind=site.agents.listen, closed=True, **settings)
    try:
        hub = make(port=wanted)
    except OSError as error:
        if site.agents.port or not wanted:
            what = f"cannot listen on {site.agents.listen}:{wanted}: {error.strerror}"
            raise NotAvailable(what, where="[agents]", fix="choose another listen or port") from error
        hub = make(port=0)  # agents of before are lost, and end
    task_store.record_fact(_PORT, str(hub.address[1]))
    task_store.write()
    return hub


def _host_for_agents(site: SiteSettings) -> str:
    """Return the host to which agents connect (default: the listen address, or for all addresses this machine)."""
    agents, local = site.agents, all(pool.name == "local" for pool in site.pools)
    any_address = agents.listen in _ANY_ADDRESS and not local
    return agents.reach or (socket.gethostname() if any_address else agents.listen)


def _check_host_for_agents(site: SiteSettings) -> None:
    if (host := _host_for_agents(site)) != site.agents.listen:  # opening the hub checks that
        check_host(host)


def check_host(name: str) -> None:
    """Raise if the host that agents are to connect to does not exist."""
    try:
        socket.getaddrinfo(name, 0)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            fix = "set it to the name by which nodes know this machine, or to its address"
            raise NotAvailable(f"no host is called '{name}'", where="[agents] reach", fix=fix) from error


def _agent_order(site: SiteSettings, hub: AgentHub | None) -> AgentOrder:
    if hub is None:
        return AgentOrder(argv=())
    agents = site.agents
    manager = f"{_host_for_agents(site)}:{hub.address[1]}"
    words = ["--manager", manager, "--secret", str(site.secret), "--node", "{node}"]
    words += ["--address", agents.address.replace("{node}", "{host}"), "--slots", str(agents.slots)]
    words += ["--preload", ",".join(agents.preload), "--patience", f"{agents.patience_s:g}"]
    defaults = Agents()  # omitted: otherwise waiting pilots of an earlier version would be replaced needlessly
    if agents.grace_s:
        words += ["--grace", f"{agents.grace_s:g}"]
    if agents.log_mb != defaults.log_mb:
        words += ["--log-limit", f"{agents.log_mb:g}"]
    if agents.copies_memory != defaults.copies_memory:
        words += ["--copies", agents.copies_memory]
    if agents.nice:
        words += ["--nice", f"{agents.nice}"]
    return AgentOrder(argv=(agents.python, "-m", "bftrain_elastic.agent", *words))


_LOOPBACK: Final = ("127.", "localhost", "::1")
_OWNER: Final = "check"  # would mark pilots; the check submits none


async def examine(site: SiteSettings) -> list[SiteFinding]:
    """Check decisions, folders, reachability and each scheduler of a site; return all findings."""
    found = [_decisions(site), *map(_folder, dict.fromkeys((Path(site.state), Path(site.folder))))]
    if site.agents.used:
        found += _reachability(site)
    order = AgentOrder(argv=(site.agents.python, "-m", "bftrain_elastic.agent") if site.agents.used else ())
    for pool in site.pools:
        label = f"{pool.label}: " if len(site.pools) > 1 else ""
        try:
            rows: Sequence[SiteFinding] = await scheduler_of(site, pool, _OWNER).examine(order)
        except BftrainError as error:
            rows = [problem("scheduler", error)]
        found += [replace(one, topic=f"{label}{one.topic}") for one in rows]
    return found


def _decisions(site: SiteSettings) -> SiteFinding:
    try:
        build_harvester(site.deciding)
        check_launchers(site)
    except BftrainError as error:
        return problem("decisions", error)
    return fine("decisions", f"objective {site.deciding.objective}, solver {site.deciding.solver}")


def _folder(path: Path) -> SiteFinding:
    if path.exists():
        try:
            check_private(path)
        except (BftrainError, OSError) as error:
            return problem("folder", error if isinstance(error, BftrainError) else NotAvailable(str(error)))
        return fine("folder", f"{path} is private and writable")
    parent = next(each for each in path.parents if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        what, fix = f"cannot be made: {parent} is not writable", "set folder and state to a folder that you can write"
        return problem("folder", NotAvailable(what, where=str(path), fix=fix))
    return fine("folder", f"{path} will be made")


def _reachability(site: SiteSettings) -> Iterator[SiteFinding]:
    agents, local = site.agents, all(pool.name == "local" for pool in site.pools)
    try:
        _check_host_for_agents(site)
        with closing(socket.socket(socket.AF_INET6 if ":" in agents.listen else socket.AF_INET)) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((agents.listen, agents.port))
    except BftrainError as error:
        yield problem("reachability", error)
    except OSError as error:
        what = f"cannot listen on {agents.listen}:{agents.port}: {error.strerror}"
        fix = "stop the live run that uses the port, or choose another listen or port"
        yield problem("reachability", NotAvailable(what, where="[agents]", fix=fix))
    else:
        if not local and agents.listen.startswith(_LOOPBACK):
            what = f"nodes cannot reach {agents.listen}"
            fix = 'set listen = "0.0.0.0", and reach to the name by which nodes know this machine'
            yield problem("reachability", NotAvailable(what, where="[agents] listen", fix=fix))
        else:
            port = agents.port or "any"
            yield fine("reachability", f"nodes connect to {_host_for_agents(site)}, port {port}")
    if not os.access(agents.python, os.X_OK):
        what = f"{agents.python} is no program on this machine; nodes may still have it"
        yield SiteFinding(topic="python", state=FindingState.WARNING, detail=what, fix="check python of [agents]")
