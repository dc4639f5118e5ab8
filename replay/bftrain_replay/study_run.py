"""The run of a study: what ``bftrain.replay`` returns, and the content of ``summary.json``.

The same inputs give the same figures and files, except for times that a real clock measured (:data:`MEASURED`): they
appear in ``summary.json`` and in the page only, and ``figures_sha256`` leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from bftrain import summaries, text_formats
from bftrain.node_units import NODE, in_words_of
from bftrain.values import wire
from bftrain_replay.drawing.html_page import HtmlPage
from bftrain_replay.run import decider_counts, tables, variations
from bftrain_replay.run.harvest_by_block import WeeklyHarvest
from bftrain_replay.run.provenance import FORMAT, LOG_FILE, InputSource, tasks_sha256, versions_with
from bftrain_replay.run.result import BOUND_FIGURES, MeasuredTimings, ReplayResult
from bftrain_replay.run.run import MadeContent, Run, RunKind, RunTable
from bftrain_replay.simulation import progress_kept
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.run_records import AllocationRecorder
from bftrain_replay.study.study import ReplayStudy

# Measured by a real clock, so different in every run
MEASURED: Final = frozenset(MeasuredTimings.__struct_fields__)
# Left out of figures_sha256: these, figures of the inputs alone, figures that --quick omits, and sentences
_NOT_SUMMED: Final = MEASURED | {
    "sensitivity", "advice", "tried_without_gain", "headline", "weekly", "doubtful", *BOUND_FIGURES,
}  # fmt: skip


def run_of(study: ReplayStudy, source: InputSource | None = None) -> Run:
    """Return the run of a study."""
    source, result = source or InputSource(), study.result

    def table(name: str) -> RunTable:
        return RunTable(tables.TABLES[name], result.table_rows(name))

    content = MadeContent(
        made=study,
        summarise=partial(summary, study, source),
        given=result.settings,
        tables={name: partial(table, name) for name in tables.TABLES if name != tables.ALLOCATIONS},
        held=(result.allocations or AllocationRecorder(study.part.node_names)).rows(),
        part=study.part,
        command=source.command("replay"),
    )
    return Run(kind=REPLAY, content=content)


def _page(run: Run, title: str, early: Any) -> HtmlPage:  # noqa: ANN401 - of _early_parts
    from bftrain_replay.reporting import report  # noqa: PLC0415 - what draws takes a while to import

    return report.page(run, title, early)


def _early_parts(run: Run) -> object:
    from bftrain_replay.reporting import report  # noqa: PLC0415 - as above

    return report.own_charts(run)


def _shown(summary: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    label = decider_counts.column_label(summary["solver"], summary["decisions"], summary.get("decided_by", {}))
    headline = summary.get("headline")
    if headline:
        sentences = (headline["sentence"].rstrip("."), headline["decided"], *headline["caveats"], headline["assumed"])
        first: dict[str, object] = {"headline": ". ".join(filter(None, sentences))}
    else:
        first = {
            "idle node-hours": text_formats.count(summary["idle_node_h"]),
            "used": text_formats.percent(summary["coverage"]),
            "harvested samples": text_formats.large(summary["harvested"]),
        }
    others = {"baseline": summary["baseline"], "without costs": summary["ceiling"]}
    warnings = summary["warnings"]
    return f"replay by {label}{'' if summary['complete'] else ', a part'}", {
        **first,
        "objective": summary["objective"],
        "simulated": text_formats.duration(summary["simulated_s"]),
        "decisions": f"{summary['decisions']:,}",
        "tasks finished": f"{summary['tasks_finished']:,} of {summary['tasks']:,}",
        **{f"{name} harvested": text_formats.large(each["harvested"]) for name, each in others.items() if each},
        **({"warnings": f"{len(warnings):,}"} if warnings else {}),
    }


REPLAY: Final = RunKind(
    title="replay",
    form=FORMAT,
    columns=tables.TABLES,
    settings=ReplaySettings,
    shown=_shown,
    log_file=LOG_FILE,
    files=frozenset({"campaigns.csv", "campaigns.parquet"}),  # tables that earlier versions wrote
    page=_page,
    early_parts=_early_parts,
)


def summary(study: ReplayStudy, source: InputSource) -> dict[str, Any]:
    """Return the content of ``summary.json``."""
    on_log, log = study.fixed is None, study.log
    if study.fixed is not None:  # its run time is omitted, which keeps policies comparable
        log = replace(study.fixed.cluster, until_s=None).log()
    settings: dict[str, Any] = wire.plain(study.result.settings)
    data: dict[str, Any] = {
        "format": FORMAT,
        "headline": wire.plain(study.headline) if on_log else None,
        "weekly": wire.plain(WeeklyHarvest.of(study.result)) if on_log and study.result.simulated_s else None,
        **plain_figures(study.result),
        "complete": study.complete,
        **({"unit": study.part.unit} if study.part.unit != NODE else {}),
        "baseline": plain_figures(study.baseline) if study.baseline else None,
        "ceiling": plain_figures(study.ceiling) if study.ceiling else None,
        "workload": _workload(study, source),
        "doubtful": study.doubts.to_dict() if on_log else None,
        "progress": progress_kept.to_dict(
            ReplaySettings.progress_in(study.result.settings), nodes_leave=study.fixed is None
        ),
        **variations.in_summary(study.sensitivity, study.tried),
        "warnings": list(study.result.warnings),
        "first_notes": [{"time_s": time_s, "note": note} for time_s, note in study.result.decisions.notes],
        "inputs": {
            "log": {"name": source.log or " ".join(source.options), "sha256": log.sha256},
            "tasks": {"name": source.task_name, "sha256": tasks_sha256(study.tasks)},
        },
        "settings": settings,
        "versions": versions_with(study.result.settings.solver),
    }
    if study.fixed is not None:
        data["cluster"] = {
            "nodes": dict(study.fixed.cluster.nodes),
            "until_s": study.fixed.cluster.until_s,
            "ended": {solver: str(why) for solver, why in study.fixed.ended.items()},
        }
    return summaries.with_sum(data, _NOT_SUMMED)


def _workload(study: ReplayStudy, source: InputSource) -> dict[str, Any] | None:
    found = source.workload
    if found is None:
        return None
    sentence = in_words_of(study.part.unit, found.sentence)
    more = {"sentence": sentence, "command": found.command, "ran_dry": workload_ran_dry(study)}
    return {**wire.plain(found), **more}


def workload_ran_dry(study: ReplayStudy) -> bool:
    """Return whether there was a time without any task left, which an endless workload must not have."""
    return study.result.unused_node_s.get(UnusedReason.NO_TASK, 0.0) > 0.0


def plain_figures(result: ReplayResult) -> dict[str, Any]:
    """Return one replay's figures as in ``summary.json``."""
    return {**wire.plain(result.summary()), **wire.plain(result.timings())}
