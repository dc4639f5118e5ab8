"""The run of a simulated main scheduler: what ``bftrain.schedule`` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from bftrain import text_formats
from bftrain_datasets import result_tables
from bftrain_datasets.result_tables import ColumnType, TableColumn
from bftrain_datasets.scheduling import scheduling
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_datasets.scheduling.scheduling import ScheduleResult
from bftrain_replay.run.run import MadeContent, Run, RunKind, RunTable

_TEXTS: Final = ("job", "user", "queue", "state", "node_set")  # names may look like numbers


def run_of_schedule(result: ScheduleResult, name: str = "") -> Run:
    """Return the run of a schedule; ``name`` is the caller's name of the log."""

    def table(make: Callable[[ScheduleResult], result_tables.Table]) -> RunTable:
        return RunTable.of(make(result))

    content = MadeContent(
        made=result,
        summarise=partial(scheduling.summary, result, name),
        given=result.settings,
        tables={each: partial(table, make) for each, make in scheduling.TABLES.items()},
        part=result.log,
        command=("bftrain", "schedule", name) if name else (),
        more=partial(scheduling.write_swf, result),
    )
    return Run(kind=SCHEDULE, content=content)


def _shown(summary: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    return f"simulated schedule by {summary['policy']}", {
        "ended": summary["ended"].replace("_", " "),
        "nodes": f"{summary['nodes']:,}",
        "jobs done": f"{summary['done']:,} of {summary['jobs']:,}",
        "simulated": text_formats.duration(summary["simulated_s"]),
        "utilisation": text_formats.percent(summary["utilisation"]),
        "wait, mean": text_formats.duration(summary["wait_s"]["mean"]),
        "idle": text_formats.percent(summary["idle_log"]["idle_share"]),
    }


SCHEDULE: Final = RunKind(
    title="schedule",
    form=scheduling.FORMAT,
    columns={name: [TableColumn(each, ColumnType.TEXT) for each in _TEXTS] for name in scheduling.TABLES},
    settings=ScheduleSettings,
    shown=_shown,
    log_file=scheduling.LOG_FILE,
    files=frozenset({scheduling.SCHEDULE_FILE}),
)
