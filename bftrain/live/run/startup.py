"""Opening: everything a live run needs before its loop goes round, or words on what is in the way."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from msgspec.structs import replace

from bftrain import registry
from bftrain.assembly import build_harvester
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadConfig, BadInput, BrokenPlugin, NotAvailable
from bftrain.journal import Journal
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.schedulers.port import AgentOrder, Scheduler
from bftrain.live.tasks.task_store import TaskStore
from bftrain.parts import admissions
from bftrain.parts.objectives import from_anywhere
from bftrain.rerun import recover
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.manager.agent_hub import AgentHub, Tell
from bftrain_elastic.wire.shared_secret import make_secret, read_secret

_PORT: Final = "port of the hub"
_EPOCH: Final = "epoch"


@dataclass(kw_only=True)
class LiveResources:
    """What is open. ``hub`` is none where agents are not used."""

    site: SiteSettings
    lock: IO[bytes]
    journal: Journal
    memory: TaskStore
    harvester: Harvester
    scheduler: Scheduler
    hub: AgentHub | None
    agent_order: AgentOrder

    def close(self) -> None:
        """Close all of it; agents hear no goodbye."""
        self.journal.close()
        self.lock.close()


def open_site(site: SiteSettings, tell: Tell) -> LiveResources:
    """Open journal, hub and scheduler of a site; ``tell`` is called from the hub's thread."""
    for folder in (Path(site.state), Path(site.folder), site.tasks):
        _make_private(folder)
    deciding = replace(
        site.deciding,
        objective=from_anywhere(site.deciding.objective),
        admission=admissions.from_anywhere(site.deciding.admission),
    )
    site = replace(site, deciding=deciding)
    build_harvester(deciding)  # first, so that a mistake leaves no journal behind
    check_launchers(site)
    lock = _locked(Path(site.state, "lock"))
    try:
        scheduler = _scheduler(site)
        journal = Journal.open(site.journal) if site.journal.exists() else Journal.create(site.journal, deciding)
        try:
            memory = TaskStore(journal)
            harvester = recover(journal, deciding)
            hub = _hub(site, memory, tell) if site.agents.used else None
        except BaseException:
            journal.close()
            raise
    except BaseException:
        lock.close()
        raise
    return LiveResources(
        site=site,
        lock=lock,
        journal=journal,
        memory=memory,
        harvester=harvester,
        scheduler=scheduler,
        hub=hub,
        agent_order=_agent_order(site, hub),
    )


def _make_private(folder: Path) -> None:
    """Make a folder in which no other user can replace our files."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as error:
        raise BadConfig(f"cannot be made: {error.strerror}", where=str(folder)) from error
    if about.st_uid != os.getuid():
        raise BadConfig("belongs to another user", where=str(folder), fix="name a folder of your own")
    if stat.S_IMODE(about.st_mode) & 0o022:
        raise BadConfig("others can write there", where=str(folder), fix=f"chmod go-w {folder}")


def check_launchers(site: SiteSettings) -> None:
    """See that the launchers that the site names are there."""
    for name in {site.launcher, *site.launchers}:
        registry.load("launcher", name)
    if site.launchers and site.launcher not in site.launchers:
        raise BadInput(
            f"'{site.launcher}' is none of the launchers that tasks may choose", where="launcher", fix="add it to them"
        )


def _locked(path: Path) -> IO[bytes]:
    """Make sure that no other run has the same state; the kernel releases the lock with our end."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        fix = "end the other one, or give this one a state of its own"
        raise NotAvailable("another live run uses it", where=str(path.parent), fix=fix) from error
    return file


def _scheduler(site: SiteSettings) -> Scheduler:
    name = site.scheduler["name"]
    make = registry.load("scheduler", name)
    scheduler: Scheduler = make(site.scheduler_table, site.for_scheduler)
    state = scheduler.available()
    if not state.ok:
        raise NotAvailable(state.reason, where=f"scheduler '{name}'", fix=state.fix or None)
    if not isinstance(scheduler, Scheduler):
        raise BrokenPlugin("has not all that the port asks for", where=f"scheduler '{name}'")
    return scheduler


def _hub(site: SiteSettings, memory: TaskStore, tell: Tell) -> AgentHub:
    """Wait for agents where they look for us: a restart must not change the port."""
    try:
        secret = read_secret(site.secret) if site.secret.exists() else make_secret(site.secret)
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    wanted = site.agents.port or int(memory.fact(_PORT) or 0)
    epoch = next_epoch(memory)

    def hub_on(port: int) -> AgentHub:
        settle_s = site.agents.settle_s
        return AgentHub(tell, secret, bind=site.agents.listen, port=port, closed=True, epoch=epoch, settle_s=settle_s)

    try:
        hub = hub_on(wanted)
    except OSError as error:
        if site.agents.port or not wanted:
            what = f"cannot listen on {site.agents.listen}:{wanted}: {error.strerror}"
            raise NotAvailable(what, where="[agents]", fix="choose another listen or port") from error
        hub = hub_on(0)  # agents of before are lost, and end
    memory.know(_PORT, str(hub.address[1]))
    memory.write()
    return hub


def next_epoch(memory: TaskStore) -> int:
    """Return the number of this start, and write it down: agents obey no manager with a smaller one any more.

    It rises with every start on the same state, even if the clock was set back. It is at least the time, so that agents
    which a manager with another state left behind, but with the same secret, obey this one too.
    """
    epoch = max(int(memory.fact(_EPOCH) or 0) + 1, int(time.time()))
    memory.know(_EPOCH, str(epoch))
    memory.write()
    return epoch


def _agent_order(site: SiteSettings, hub: AgentHub | None) -> AgentOrder:
    if hub is None:
        return AgentOrder(argv=())
    agents = site.agents
    host = agents.reach or hub.address[0]
    words = ["--manager", f"{host}:{hub.address[1]}", "--secret", str(site.secret), "--node", "{node}"]
    words += ["--address", agents.address, "--slots", str(agents.slots), "--preload", ",".join(agents.preload)]
    words += ["--patience", f"{agents.patience_s:g}"]
    if agents.grace_s:
        words += ["--grace", f"{agents.grace_s:g}"]
    return AgentOrder(argv=(agents.python, "-m", "bftrain_elastic.agent", *words))
