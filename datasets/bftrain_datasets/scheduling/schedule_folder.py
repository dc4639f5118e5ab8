"""Outputs: a schedule as files in one folder.

The same inputs give the same bytes, but for what a real clock measured (:data:`MEASURED`) in ``summary.json``; its
``figures_sha256`` leaves that out.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from bftrain import config, summaries
from bftrain.files import write_text
from bftrain.result_folder import ResultKind
from bftrain.values import wire
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.scheduling import swf_file, table_files
from bftrain_datasets.scheduling.schedule_tables import NAMES, tables

if TYPE_CHECKING:
    from pathlib import Path

    from bftrain_datasets.scheduling.schedule_result import ScheduleResult

FORMAT: Final = "bftrain schedule 1"
LOG_FILE: Final = "idle.npz"
SCHEDULE_FILE: Final = "schedule.swf"
MEASURED: Final = frozenset({"wall_s", "jobs_per_s"})
KIND: Final = ResultKind(
    title="schedule",
    form="bftrain schedule",
    names=frozenset({"summary.json", "config.toml", LOG_FILE, SCHEDULE_FILE})
    | {f"{name}.{form}" for name in NAMES for form in table_files.FORMS},
)


def write(result: ScheduleResult, folder: Path, *, name: str = "", form: str = table_files.CSV) -> None:
    """Write all files into ``folder``; ``name`` is what the caller called the log. Each appears whole or not at all."""
    table_files.write(tables(result), folder, form, FORMAT)
    swf_file.write(result, folder / SCHEDULE_FILE)
    save_log(result.log, folder / LOG_FILE)
    write_text(folder / "config.toml", _again(name, form) + config.dump(result.settings))
    write_text(folder / "summary.json", summaries.in_json(summary(result, name)))


def summary(result: ScheduleResult, name: str = "") -> dict[str, Any]:
    """Give what ``summary.json`` holds: the figures, then what they were made from and with."""
    workload, log = result.workload, result.log
    data: dict[str, Any] = {
        "format": FORMAT,
        **wire.plain(result.summary),
        "begin_s": workload.jobs.begin_s,
        "cores_per_node": workload.cores_per_node,
        "in_pieces": result.places.in_pieces,
        "refused_jobs": [workload.jobs.name(job) for job in result.schedule.refused],
        "wall_s": result.wall_s,
        "jobs_per_s": result.summary.done / result.wall_s if result.wall_s > 0 else None,
        "inputs": {"log": {**wire.plain(workload.source), "name": name or workload.source.name}},
        "rows": wire.plain(workload.rows),
        "idle_log": {
            "file": LOG_FILE,
            "sha256": log.sha256,
            "nodes": len(log.node_names),
            "events": len(log),
            "start_s": log.start_s,
            "end_s": log.end_s,
            "idle_share": log.idle_share,
            "idle_node_h": log.idle_node_s / 3600,
        },
        "findings": wire.plain(log.provenance.findings),
        "settings": wire.plain(result.settings),
        "versions": summaries.versions(),
    }
    return summaries.with_sum(data, MEASURED)


def _again(name: str, form: str) -> str:
    """Give the command that runs it again, as a comment, if it can be written on one line."""
    words = ["bftrain", "schedule", name]
    if form != table_files.CSV:
        words += ["--tables", form]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    return f"# {command}\n" if name and command.isprintable() else ""
