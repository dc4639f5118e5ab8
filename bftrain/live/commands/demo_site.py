"""Live runs started by commands: a site's run, and the demo, three small trainings on changing slots."""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bftrain.cli.output import Output, table
from bftrain.errors import NotAvailable
from bftrain.live import process
from bftrain.live.api.service import LiveService
from bftrain.live.client import page_address
from bftrain.live.commands.tasks import done
from bftrain.live.daemon.daemon import LiveDaemon
from bftrain.live.log import LOGGER, LogFormat, log_to_stderr
from bftrain.live.model.schemas import Submission, ourselves
from bftrain.live.model.site_config import Api, SiteSettings, Times, default_state
from bftrain.live.schedulers.local import LocalScheduler
from bftrain.values.curve import SpeedCurve
from bftrain.values.job import Run
from bftrain_elastic.errors import install_hint
from bftrain_elastic.tryout import demo_training

_log = logging.getLogger(__name__)
_TIMETABLE: Final = "2@0,4@12,1@24,3@32,4@40,2@52"
_LOOP_S: Final = 64.0
_FIRST: Final = 2  # idle slots at the start
_WARMING_S: Final = 120.0  # limit
_POLL_S: Final = 0.1
# A guess from experience; measurements replace it
_CURVE: Final = SpeedCurve(nodes=(1, 2, 3, 4), rate=(1500.0, 2700.0, 3700.0, 4500.0))
# name: fewest and most nodes, steps
_TASKS: Final = {"pictures": (1, 4, 900), "letters": (1, 3, 900), "waves": (1, 2, 600)}


def require_torch() -> None:
    """Raise if PyTorch is missing, which real training requires."""
    if find_spec("torch") is None:
        raise NotAvailable(
            "the demo trains with PyTorch, which is not installed",
            where="bftrain live --demo",
            fix=f"look at replays first: bftrain demo; or {install_hint('torch')}",
        )


def demo_site(folder: Path) -> SiteSettings:
    """Return the settings of the demo; its socket is the default one unless another live run of this user has it."""
    usual = default_state() / "api.sock"
    return SiteSettings(
        name="demo",
        folder=str(folder),
        state=str(folder),
        scheduler={"name": "local", "nodes": 4, "idle": _TIMETABLE, "loop_s": _LOOP_S},
        api=Api(socket="" if usual.exists() else str(usual), tcp="127.0.0.1:0"),
        times=Times(drain_s=10.0),
    )


async def warm_up(daemon: LiveDaemon, service: LiveService) -> None:
    """Submit the tasks, and start the timetable when the first agents have imported PyTorch."""
    slots = daemon.opened.scheduler
    if isinstance(slots, LocalScheduler):
        slots.began_s = math.inf
    warm = set[str]()

    def hear(what: str, message: Any) -> None:  # noqa: ANN401 - see Observer
        if what == "message" and message["type"] == "warm":
            warm.add(message["node"])

    def begun() -> bool:
        return len(warm) >= _FIRST and daemon.harvester.pool_size >= _FIRST

    daemon.observers.append(hear)
    for name, (smallest, largest, steps) in _TASKS.items():
        submission = Submission(
            run=Run(argv=(str(demo_training.__file__), name, "--steps", str(steps))),
            name=name,
            min_nodes=smallest,
            max_nodes=largest,
            work_samples=96.0 * steps,
            curve=_CURVE,
            campaign="demo",
        )
        await service.submit(ourselves(), submission)
    _log.info("warming up: agents import PyTorch ...")
    await _until(begun, _WARMING_S)
    daemon.observers.remove(hear)
    _log.info("the timetable starts" if begun() else "agents are slow; the timetable starts anyway")
    if isinstance(slots, LocalScheduler):
        slots.began_s = time.time()


async def _until(true: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - a poll suffices in a demo
        await asyncio.sleep(_POLL_S)


def run_demo(limit_s: float, out: Output) -> None:
    """Run the demo until its tasks have finished, or ``limit_s`` have passed; print the harvest."""
    require_torch()
    services: list[LiveService] = []

    async def companion(daemon: LiveDaemon, service: LiveService) -> None:
        services.append(service)
        out.say("four slots of this machine become idle and busy; in another terminal: bftrain status --watch")
        out.say(f"or in a browser: {page_address(service.status())}")  # the token is useless after the demo
        await warm_up(daemon, service)
        await _until(lambda: not daemon.task_store.unfinished, limit_s)
        if daemon.task_store.unfinished:
            _log.info("time limit of %g s: unfinished tasks would continue from here", limit_s)

    with tempfile.TemporaryDirectory(prefix="bftrain-demo-") as folder, logged("demo", out, logging.DEBUG):
        process.run(demo_site(Path(folder)), companion)
        # After tasks have put themselves in order
        tasks = [task for service in services for task in service.tasks(ourselves(), all=True)]
    rows = [
        (
            task.name,
            task.state,
            done(task),
            f"{task.samples:,.0f}",
            f"{task.node_s:,.0f}",
            task.rescales,
            task.preemptions,
            "" if task.loss is None else f"{task.loss:.3g}",
        )
        for task in tasks
    ]
    used, idle = sum(task.node_s for task in tasks), sum(service.metrics.idle_s for service in services)
    share = f", {used / idle:.0%} of the {idle:,.0f} idle ones" if idle else ""
    columns = ("task", "state", "done", "samples", "node-s", "resized", "preempted", "loss")
    title = f"harvested: {sum(task.samples for task in tasks):,.0f} samples in {used:,.0f} node-seconds{share}"
    out.result({"tasks": tasks, "nodes": idle}, lambda: table(title, columns, rows, left=(0, 1, 7)))


def run_site(site: SiteSettings, log_format: LogFormat, out: Output) -> None:
    """Run the live run of a site until SIGTERM or Ctrl-C."""
    with logged(log_format, out, logging.DEBUG if out.level > 0 else logging.INFO):
        process.run(site)


@contextmanager
def logged(log_format: LogFormat, out: Output, level: int) -> Iterator[None]:
    """Log to stderr; with -q only warnings."""
    handler = log_to_stderr(log_format, level if out.level >= 0 else logging.WARNING)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
