"""The published study's log and tasks, for those who have them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import bftrain
from bftrain import EventLog, ReplaySettings, TaskSpec, import_logs, save_log, save_tasks
from bftrain_datasets.published.tasks import import_tasks
from tests.helpers.site_data import site_data

__all__ = ["MIX", "TRIALS", "SampleLoss", "save_published_tasks", "save_summit", "settings", "study", "to_the_end"]


class SampleLoss(StrEnum):
    """Causes of lost samples, as results name them."""

    PREEMPTION = "preemption"
    RESCALING = "rescaling"


TRIALS: Final = "hps-shufflenet-{}-1000J"
MIX: Final = "ImageNet-imgps-{}-1001J"


def save_summit(path: Path) -> None:
    """Save the published two-week log of Summit under ``path``, or skip the test that asks for it."""
    save_log(import_logs(site_data("summit/ndstat-10sdn6-evt.tar.gz")).log, path)


def save_published_tasks(path: Path, names: str) -> None:
    """Save a published set of tasks, ``TRIALS`` or ``MIX``, under ``path``."""
    bounds, speeds = (site_data(f"summit/{names.format(part)}.pkl") for part in ("Jbnd", "JNPs"))
    save_tasks(import_tasks(bounds, speeds).tasks, path)


def settings(max_tasks: int, **more: object) -> ReplaySettings:
    return ReplaySettings(semantics="published", nodes="0:1024", skip_events=1000, max_tasks=max_tasks, **more)  # type: ignore[arg-type]  # the fields' own types


def study(log: EventLog, tasks: Sequence[TaskSpec], how: ReplaySettings, *, baseline: str = "") -> Any:  # noqa: ANN401 - of a replay
    return bftrain.replay(log, tasks, how, baseline=baseline)


def to_the_end(log: EventLog, trials: tuple[TaskSpec, ...], max_tasks: int) -> Any:  # noqa: ANN401 - of a replay
    return bftrain.replay(log, trials, settings(max_tasks, events="chosen")).result
