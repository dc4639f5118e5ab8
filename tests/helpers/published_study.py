"""The published study's log and tasks, for those who have them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain import EventLog, ReplaySettings, TaskSpec, build_harvester, import_logs, save_log, save_tasks
from bftrain_datasets.published.tasks import import_tasks
from bftrain_replay.results.result import ReplayResult, result_of
from bftrain_replay.simulation.engine import run
from bftrain_replay.simulation.rules import as_replayed, semantics_of
from bftrain_replay.simulation.task_progress import SampleLoss
from bftrain_replay.simulation.timeline import select
from bftrain_replay.study import study
from tests.helpers.site_data import site_data

__all__ = ["MIX", "TRIALS", "SampleLoss", "save_published_tasks", "save_summit", "settings", "study", "to_the_end"]
TRIALS: Final = "hps-shufflenet-{}-1000J"
MIX: Final = "ImageNet-imgps-{}-1001J"


def save_summit(path: Path) -> None:
    """Save the published two-week log of Summit under ``path``, or skip the test that asks for it."""
    save_log(import_logs(site_data("summit/ndstat-10sdn6-evt.tar.gz")).log, path)


def save_published_tasks(path: Path, names: str) -> None:
    """Save a published set of tasks, ``TRIALS`` or ``MIX``, under ``path``."""
    bounds, speeds = (site_data(f"summit/{names.format(part)}.pkl") for part in ("Jbnd", "JNPs"))
    save_tasks(import_tasks(bounds, speeds, exact=True).tasks, path)


def settings(max_tasks: int, **more: object) -> ReplaySettings:
    return ReplaySettings(semantics="published", nodes="0:1024", skip_events=1000, max_tasks=max_tasks, **more)  # type: ignore[arg-type]  # the fields' own types


def to_the_end(log: EventLog, trials: tuple[TaskSpec, ...], max_tasks: int) -> ReplayResult:
    how = settings(max_tasks, events="chosen")
    part = select(log, how)
    semantics = semantics_of(how, part.event_times_s)
    return result_of(run(part.log, as_replayed(trials, how), build_harvester(how), semantics=semantics), how)
