"""A live run as a process: signals, the API, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from bftrain.errors import Fault, Interrupted
from bftrain.live import timeouts
from bftrain.live.api.server import ApiServer
from bftrain.live.api.service import LiveService, RunControl
from bftrain.live.daemon.daemon import LiveDaemon
from bftrain.live.daemon.startup import LiveResources, open_site
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.site_config import SiteSettings

_log = logging.getLogger(__name__)
_MOST_FILES: Final = 1 << 17
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)

# Runs alongside the daemon, as the demo does to submit its tasks; the run stops when it finishes
Companion = Callable[[LiveDaemon, LiveService], Coroutine[Any, Any, None]]


def run(site: SiteSettings, companion: Companion | None = None) -> None:
    """Run until SIGTERM or SIGINT, or ``companion`` finishes, which drain; a second signal exits immediately."""
    allow_many_connections()
    asyncio.run(LiveProcess(site, companion).run())


def allow_many_connections() -> None:
    """Raise the limit of open files to the highest allowed: each agent has a connection, and 1,024 is usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class LiveProcess:
    """One process's live run."""

    def __init__(self, site: SiteSettings, companion: Companion | None = None) -> None:
        self._site = site
        self._companion = companion
        self._signals = 0
        self._stop: asyncio.Event  # set by the first signal
        self._stop_now: asyncio.Event  # set by the second
        self._daemon: LiveDaemon

    async def run(self) -> None:
        """Run it."""
        self._stop, self._stop_now = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._signalled, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)  # blocked until now
        tell = lambda message: self._daemon.tell(message)  # noqa: E731, PLW0108 - not created yet
        opened = open_site(self._site, tell)
        try:
            self._daemon = LiveDaemon(opened)
            loop.set_exception_handler(self._on_internal_error)
            await self._live(opened)
        finally:
            opened.close()

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1:
            _log.info("%s: stopping in order; repeat to stop immediately", signal.Signals(number).name)
            self._stop.set()
        else:
            self._stop_now.set()

    def _on_internal_error(self, _loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        """Exit after an internal error: the state in memory may be wrong, the journal is correct."""
        error = about.get("exception")
        self._daemon.broke(Fault(f"{about.get('message')}: {type(error).__name__}: {error}"))

    async def _live(self, opened: LiveResources) -> None:
        daemon, service = self._daemon, service_of(self._daemon)
        api = ApiServer(service, opened.site)
        await api.open()
        for text in api.socket_warnings:
            _log.warning("%s", text)
        began, ending = asyncio.create_task(daemon.begin(), name="begin"), asyncio.create_task(self._stop.wait())
        companion: asyncio.Task[None] | None = None
        try:
            await _first({began, ending}, daemon.broken)
            if began.done():
                began.result()
                page = "; the status page: bftrain live page" if opened.site.api.tcp else ""
                _log.info("running; listening on %s%s", ", ".join(api.addresses), page)
                notify_systemd("READY=1")
                if self._companion is not None:
                    companion = asyncio.create_task(self._companion(daemon, service), name="companion")
                await _first({ending} if companion is None else {ending, companion}, daemon.broken)
            began.cancel()
            if companion is not None:
                companion.cancel()
                await asyncio.wait({companion})
            if not daemon.broken.done() and not self._stop_now.is_set():
                await self._end_in_order(daemon, opened)
            if daemon.broken.done():
                raise daemon.broken.result()
            if companion is not None and not companion.cancelled():
                companion.result()
            if self._stop_now.is_set():
                raise Interrupted("exited immediately; the next start takes over what still runs on the nodes")
        finally:
            began.cancel()
            ending.cancel()
            daemon.close()
            await api.close()
            # Release agents, unless the exit is abrupt and another run will take them over
            if opened.hub is not None and not self._stop_now.is_set() and not daemon.broken.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeouts.TIMEOUTS.close_s):
                        await run_in_daemon_thread(opened.hub.close)

    async def _end_in_order(self, daemon: LiveDaemon, opened: LiveResources) -> None:
        notify_systemd("STOPPING=1")
        drain = asyncio.create_task(daemon.drain(), name="drain")
        now = asyncio.create_task(self._stop_now.wait())
        await _first({drain, now}, daemon.broken)
        now.cancel()
        if drain.done():
            drain.result()
            if not daemon.broken.done():  # otherwise the journal could not be written, as on a full disk
                _log.info("stopped; the state is in %s", opened.site.journal)
        drain.cancel()


async def _first(tasks: set[asyncio.Task[Any]], broken: asyncio.Future[BaseException]) -> None:
    await asyncio.wait({*tasks, broken}, return_when=asyncio.FIRST_COMPLETED)


def notify_systemd(words: str) -> None:
    """Report the state to systemd, if it started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in {"/", "@"}:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.sendto(words.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def service_of(daemon: LiveDaemon) -> LiveService:
    """Return a service that answers for a daemon, and observes it."""
    control = RunControl(
        lambda: daemon.state, daemon.since_s, daemon.ready, daemon.notices, daemon.drain_nodes, daemon.pause_until
    )
    parts = (daemon.decision_loop, daemon.task_manager, daemon.node_manager, daemon.launcher_pool, daemon.harvesting)
    service = LiveService(control, daemon.opened, *parts)
    daemon.observers += [service.watch.observe, service.metrics.observe]
    return service
