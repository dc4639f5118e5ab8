"""``bftrain live check``: verifies the settings of a site without starting or changing anything."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bftrain.assembly import build_harvester
from bftrain.errors import BftrainError, NotAvailable
from bftrain.live.daemon.startup import check_host, check_launchers, check_private, scheduler_of
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.schedulers.base import AgentOrder, FindingState, SiteFinding, fine, problem

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
        check_host(agents.reach)
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
            yield fine("reachability", f"nodes connect to {agents.reach or agents.listen}, port {agents.port or 'any'}")
    if not os.access(agents.python, os.X_OK):
        what = f"{agents.python} does not exist on this machine, which nodes may still have"
        yield SiteFinding(topic="python", state=FindingState.WARNING, detail=what, fix="check python of [agents]")
