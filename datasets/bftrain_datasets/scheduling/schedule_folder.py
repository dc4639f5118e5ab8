"""Outputs: a schedule as files in one folder.

The same inputs lead to the same bytes, except for measured times (:data:`MEASURED`) in ``summary.json``, which its
``figures_sha256`` excludes.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bftrain import config, summaries
from bftrain.files import whole_file, write_text
from bftrain.result_folder import ResultKind
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain.version import __version__
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling import table_files
from bftrain_datasets.scheduling.schedule_tables import NAMES, tables
from bftrain_datasets.scheduling.scheduling import ScheduleResult


def _swf_lines(result: ScheduleResult) -> Iterator[str]:
    workload, schedule, summary = result.workload, result.schedule, result.summary
    jobs = workload.jobs
    started = [job for job, start_s in enumerate(schedule.start_s) if start_s < math.inf]
    yield "; Version: 2.2"
    yield f"; UnixStartTime: {_number(workload.header_begin_s)}"
    yield f"; MaxNodes: {workload.nodes}"
    yield f"; MaxProcs: {math.ceil(workload.nodes * workload.cores_per_node)}"
    yield f"; MaxJobs: {len(started)}"
    yield f"; MaxRecords: {len(started)}"
    yield f"; Note: derived: bftrain {__version__} simulated the main scheduler ({summary.policy})"
    yield f"; Note: from {workload.source.name}, SHA-256 {workload.source.sha256}"
    if len(started) < len(jobs):
        yield f"; Note: without {counted(len(jobs) - len(started), 'job')} that did not start"
    first_s = float(jobs.fields[0][swf.SUBMIT])
    for job in started:
        fields = list(jobs.fields[job])
        fields[swf.SUBMIT] = _number(first_s + jobs.submit_s[job])
        fields[swf.WAIT] = _number(schedule.start_s[job] - jobs.submit_s[job])
        fields[swf.PROCS] = str(jobs.procs[job])
        for place, number in ((swf.JOB, job + 1), (swf.USER, jobs.user[job] + 1), (swf.QUEUE, swf.UNKNOWN)):
            fields[place] = fields[place] if _is_number(fields[place]) else str(number)  # the format has only numbers
        yield " ".join(fields)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


_EXACT: Final = 2.0**53


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < _EXACT else repr(value)


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
    """Write all files into ``folder``; ``name`` is the caller's name of the log. Each file is whole or absent."""
    table_files.write(tables(result), folder, form, FORMAT)
    with whole_file(folder / SCHEDULE_FILE) as file:
        file.writelines(f"{line}\n".encode() for line in _swf_lines(result))
    save_log(result.log, folder / LOG_FILE)
    # Add the command that repeats the run as a comment, if it fits on one line
    words = ["bftrain", "schedule", name]
    if form != table_files.CSV:
        words += ["--tables", form]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    write_text(
        folder / "config.toml",
        (f"# {command}\n" if name and command.isprintable() else "") + config.dump(result.settings),
    )
    write_text(folder / "summary.json", summaries.to_json(summary(result, name)))


def summary(result: ScheduleResult, name: str = "") -> dict[str, Any]:
    """Return the content of ``summary.json``: the figures, then inputs and settings."""
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
