"""The BFTrainer study (Liu et al., arXiv:2106.12091): horizon, competing tasks, costs, heuristics, time limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.pipeline import import_logs
from bftrain_datasets.log.log_files import is_own_log, save_log
from bftrain_datasets.published.tasks import import_tasks
from bftrain_replay.reproducing.experiment import Experiment, Figure, Line, Request

_LOG: Final = "ndstat-10sdn6-evt.tar.gz"
_X_OPTIONS: Final = {"t-fwd": "horizon_s", "rescale-cost": "cost_factor"}  # x of the other figures is max_tasks


def _make(request: Request, figure: Figure) -> Figure:
    """Add points over an option, for each task set and solver."""

    def options(line: Line, x: float, _seed: int) -> dict[str, Any]:
        log = request.once("log", lambda: _log(request))
        name = line.name.replace(", greedy", "").replace(", equal shares", "").replace(", ", "-").lower()
        tasks = request.tasks(f"{name}.toml", lambda: _tasks(request, line.stream))
        option = _X_OPTIONS.get(figure.name)
        return {"log": log, "tasks": tasks, **({option: x} if option else {"max_tasks": int(x)})}

    return figure.over_x(request, options)


def _log(request: Request) -> str:
    source, log = _source(request, _LOG), request.input_path("summit.npz", is_own_log, "log")
    save_log(import_logs(source).log, log)
    return str(log)


def _tasks(request: Request, stream: str) -> Sequence[TaskSpec]:
    return import_tasks(*(_source(request, stream.format(part)) for part in ("Jbnd", "JNPs"))).tasks


def _source(request: Request, name: str) -> Path:
    return request.published_files(name, fix=STUDY.traces)[0]


STUDY: Final = Experiment.read("bftrain", _make)
