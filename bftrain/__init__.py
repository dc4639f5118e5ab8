"""Fill the idle nodes of a supercomputer's batch queue with elastic training tasks.

``import bftrain`` costs next to nothing: every name below is imported from its own module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bftrain.assembly import build_harvester
    from bftrain.config import Settings
    from bftrain.deciding.harvester import Harvester
    from bftrain.errors import BftrainError
    from bftrain.journal import Journal
    from bftrain.solving import solve
    from bftrain.taskfiles.files import load_tasks, save_tasks
    from bftrain.values.actions import Action, Cause, Grow, Release, Shrink, Start, Stop, apply_actions
    from bftrain.values.curve import SpeedCurve
    from bftrain.values.decision import Decision
    from bftrain.values.events import (
        Event,
        NodesJoined,
        NodesLeft,
        TaskCancelled,
        TaskFailed,
        TaskFinished,
        TaskMeasured,
        TaskPaused,
        TaskResumed,
        TaskSubmitted,
    )
    from bftrain.values.plan import Plan
    from bftrain.values.problem import AllocationProblem, CompetingTask
    from bftrain.values.solution import Limits, Quality, Solution, Termination
    from bftrain.values.table import ValueTable
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_datasets.importing.pipeline import Imported, import_logs
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_datasets.log.log_files import load_log, save_log
    from bftrain_datasets.scheduling.scheduling import schedule
    from bftrain_datasets.workloads.workload import import_workload
    from bftrain_datasets.workloads.workload_options import WorkloadOptions
    from bftrain_replay.api import replay
    from bftrain_replay.comparing.comparison import compare
    from bftrain_replay.sweeping.sweep import sweep

# where each public name lives
_HOMES = {
    "bftrain.assembly": ("build_harvester",),
    "bftrain.config": ("Settings",),
    "bftrain.deciding.harvester": ("Harvester",),
    "bftrain.errors": ("BftrainError",),
    "bftrain.journal": ("Journal",),
    "bftrain.solving": ("solve",),
    "bftrain.values.actions": (
        "Action",
        "Cause",
        "Grow",
        "Release",
        "Shrink",
        "Start",
        "Stop",
        "apply_actions",
    ),
    "bftrain.values.curve": ("SpeedCurve",),
    "bftrain.values.decision": ("Decision",),
    "bftrain.values.events": (
        "Event",
        "NodesJoined",
        "NodesLeft",
        "TaskCancelled",
        "TaskFailed",
        "TaskFinished",
        "TaskMeasured",
        "TaskPaused",
        "TaskResumed",
        "TaskSubmitted",
    ),
    "bftrain.values.plan": ("Plan",),
    "bftrain.values.problem": ("AllocationProblem", "CompetingTask"),
    "bftrain.values.solution": ("Limits", "Quality", "Solution", "Termination"),
    "bftrain.values.table": ("ValueTable",),
    "bftrain.values.task": ("TaskSpec",),
    "bftrain_datasets.log.eventlog": ("EventLog",),
    "bftrain_datasets.log.log_files": ("load_log", "save_log"),
    "bftrain_datasets.importing.import_options": ("ImportOptions",),
    "bftrain_datasets.importing.pipeline": ("Imported", "import_logs"),
    "bftrain_datasets.scheduling.scheduling": ("schedule",),
    "bftrain.taskfiles.files": ("load_tasks", "save_tasks"),
    "bftrain_datasets.workloads.workload_options": ("WorkloadOptions",),
    "bftrain_datasets.workloads.workload": ("import_workload",),
    "bftrain_replay.comparing.comparison": ("compare",),
    "bftrain_replay.api": ("replay",),
    "bftrain_replay.sweeping.sweep": ("sweep",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Action",
    "AllocationProblem",
    "BftrainError",
    "Cause",
    "CompetingTask",
    "Decision",
    "Event",
    "EventLog",
    "Grow",
    "Harvester",
    "ImportOptions",
    "Imported",
    "Journal",
    "Limits",
    "NodesJoined",
    "NodesLeft",
    "Plan",
    "Quality",
    "Release",
    "Settings",
    "Shrink",
    "Solution",
    "SpeedCurve",
    "Start",
    "Stop",
    "TaskCancelled",
    "TaskFailed",
    "TaskFinished",
    "TaskMeasured",
    "TaskPaused",
    "TaskResumed",
    "TaskSpec",
    "TaskSubmitted",
    "Termination",
    "ValueTable",
    "WorkloadOptions",
    "__version__",
    "apply_actions",
    "build_harvester",
    "compare",
    "import_logs",
    "import_workload",
    "load_log",
    "load_tasks",
    "replay",
    "save_log",
    "save_tasks",
    "schedule",
    "solve",
    "sweep",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _HOME_OF:
        raise AttributeError(f"module 'bftrain' has no attribute '{name}'")
    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
