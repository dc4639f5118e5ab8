"""Demo: four slots of this machine, three small trainings, and a timetable that takes slots and gives them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bftrain.errors import NotAvailable
from bftrain.live.api.service import LiveService
from bftrain.live.model.callers import ourselves
from bftrain.live.model.schemas import Submission
from bftrain.live.model.site_config import Api, SiteSettings, Times, default_state
from bftrain.live.model.task_record import Run
from bftrain.live.run.daemon import LiveDaemon
from bftrain.live.schedulers.local import LocalScheduler
from bftrain.values.curve import SpeedCurve
from bftrain_elastic.tryout import demo_training

_TIMETABLE: Final = "2@0,4@12,1@24,3@32,4@40,2@52"
_LOOP_S: Final = 64.0
_FIRST: Final = 2  # slots that are idle at the begin
_WARMING_S: Final = 120.0  # at most
# A guess from experience; measurements take its place
_CURVE: Final = SpeedCurve(nodes=(1, 2, 3, 4), rate=(1500.0, 2700.0, 3700.0, 4500.0))
# name: fewest and most nodes, steps
_TASKS: Final = {"pictures": (1, 4, 900), "letters": (1, 3, 900), "waves": (1, 2, 600)}


def insist_on_torch() -> None:
    """See that real training is possible."""
    if find_spec("torch") is None:
        raise NotAvailable(
            "the demo trains with PyTorch, which is not installed",
            where="bftrain live --demo",
            fix="pip install 'bftrain[torch]', or look at replays first: bftrain demo",
        )


def demo_site(folder: Path) -> SiteSettings:
    """Give the settings of the demo; its socket is where commands look first, unless a live run of ours uses it."""
    usual = default_state() / "api.sock"
    return SiteSettings(
        name="demo",
        folder=str(folder),
        state=str(folder),
        scheduler={"name": "local", "nodes": 4, "idle": _TIMETABLE, "loop_s": _LOOP_S},
        api=Api(socket="" if usual.exists() else str(usual), tcp="127.0.0.1:0"),
        times=Times(drain_s=10.0),
    )


async def hand_in(office: LiveService) -> None:
    """Hand in the demo's tasks."""
    for name, (smallest, largest, steps) in _TASKS.items():
        run = Run(argv=(str(demo_training.__file__), name, "--steps", str(steps)))
        submission = Submission(
            run=run,
            name=name,
            min_nodes=smallest,
            max_nodes=largest,
            work_samples=96.0 * steps,
            curve=_CURVE,
            campaign="demo",
        )
        await office.submit(ourselves(), submission)


async def warm_up(daemon: LiveDaemon, office: LiveService, say: Callable[[str], None]) -> None:
    """Hand the tasks in, and let the timetable begin when the first agents have imported PyTorch."""
    slots = daemon.opened.scheduler
    if isinstance(slots, LocalScheduler):
        slots.hold()
    warm, changed = set[str](), asyncio.Event()

    def hear(what: str, message: Any) -> None:  # noqa: ANN401 - see Daemon.observers
        if what == "message" and message["type"] == "warm":
            warm.add(message["node"])
            changed.set()

    daemon.observers.append(hear)
    await hand_in(office)
    say("warming up: agents import PyTorch ...")
    with suppress(TimeoutError):
        async with asyncio.timeout(_WARMING_S):
            while len(warm) < _FIRST:
                changed.clear()
                await changed.wait()
    daemon.observers.remove(hear)
    say("the timetable begins" if len(warm) >= _FIRST else "agents are slow today; the timetable begins all the same")
    if isinstance(slots, LocalScheduler):
        slots.go_on()


async def until_done(daemon: LiveDaemon, seconds: float) -> bool:
    """Wait until all tasks are over, or the time is up; tell whether they are over."""
    changed = asyncio.Event()
    daemon.observers.append(lambda what, _: changed.set() if what == "events" else None)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while daemon.memory.unfinished:
                changed.clear()
                await changed.wait()
    return not daemon.memory.unfinished
