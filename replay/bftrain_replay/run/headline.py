"""Headline: the result of a replay on idle nodes, as figures and as one sentence with its caveats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from bftrain import parts, text_formats
from bftrain.node_units import words_of
from bftrain_datasets.log.idle_doubts import IdleDoubts
from bftrain_replay.run import decider_counts
from bftrain_replay.run.result import ReplaySummary
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.simulation.node_time_ledger import UnusedReason


def note(simulated_s: float, span_s: float, *, complete: bool) -> str:
    """Return a sentence about how far an interrupted replay got; "" for a complete one.

    >>> note(3600.0, 14 * 86_400.0, complete=False)
    'Interrupted after 60 min of 14 days. '
    >>> note(3.2 * 86_400.0, 14 * 86_400.0, complete=False)
    'Interrupted after 3.2 of 14 days. '
    >>> note(3600.0, 3600.0, complete=False)
    'Interrupted before the dedicated pool was replayed, so U is not known. '
    """
    if complete:
        return ""
    if simulated_s >= span_s:
        return "Interrupted before the dedicated pool was replayed, so U is not known. "
    done, whole = text_formats.duration(simulated_s), text_formats.duration(span_s)
    number, _, unit = done.partition(" ")
    return f"Interrupted after {number if whole.endswith(f' {unit}') else done} of {whole}. "


RAN_OUT: Final = "tasks ran out"
_LEAST_NO_TASK: Final = 0.01  # fraction of the idle node-time; U stays comparable if it lacked tasks for less
_SEEN_IN_U: Final = 0.05  # fraction of the mean number of idle nodes; the sentence names a pool that differs by more
_CAPPED: Final = {"first-come", "load", "quota"}  # admissions that admit at most max_tasks
_SEEN_CAP: Final = 0.01  # fraction of the harvest with one task per node; a smaller cost of the cap is not mentioned
ENOUGH_WORK: Final = "for enough work replay without --tasks"
ABOVE: Final = "no bound"
_ABOVE_FROM: Final = 1.0005  # smaller values appear as 100.0 %
NO_BOUND: Final = (
    "U above 100 %: the reference pool is no upper bound, since it has a whole number of nodes and follows the same "
    "objective"
)
NOT_RANKED: Final = "Each objective has its own reference, so U is not ranked across objectives"


class HarvestHeadline(msgspec.Struct, frozen=True, kw_only=True):
    """The harvest in node-hours of useful work and in samples, and the related shares of the idle node-time.

    ``tasks_ran_out`` is true if all tasks finished, or for a while no task was left: ``efficiency`` then only reports
    that the tasks were done, and ``used_share`` is their demand. ``decided`` describes the fallbacks of the solver; ""
    if it always decided. ``assumed`` describes how tasks keep their progress. ``caveats`` describe a log that is not
    made from records, the doubtful part of its idle node-time, the reason for a U above 100 %, and a costly cap on the
    competing tasks.
    """

    sentence: str
    idle_node_h: float
    harvest_node_h: float
    harvest_samples: float
    harvest_share: float | None
    used_share: float | None
    no_task_share: float | None
    efficiency: float | None
    tasks_ran_out: bool
    assumed: str
    doubtful_share: float | None
    caveats: tuple[str, ...]
    decided: str


def headline_of(figures: ReplaySummary, doubts: IdleDoubts, assumed: str, *, capped: bool) -> HarvestHeadline:
    """Return the headline of a replay's figures, with the doubts about the log and the assumption on progress.

    ``capped`` states that there were more tasks than may compete.
    """
    idle_h = figures.idle_node_h
    harvest_h = harvest_node_h(figures)
    words = words_of(doubts.unit)
    no_task = figures.unused_node_h.get(UnusedReason.NO_TASK, 0.0) / idle_h if idle_h else None
    found = HarvestHeadline(
        sentence="",
        idle_node_h=idle_h,
        harvest_node_h=harvest_h,
        harvest_samples=figures.harvested,
        harvest_share=harvest_h / idle_h if idle_h else None,
        used_share=figures.coverage,
        no_task_share=no_task,
        efficiency=figures.efficiency,
        tasks_ran_out=ran_out(figures),
        assumed=assumed,
        doubtful_share=doubts.share,
        caveats=(
            *doubts.caveats,
            *([words(NO_BOUND)] if u_above_100(figures) else []),
            *(map(words, cap_caveats(figures)) if capped else ()),
        ),
        decided=decider_counts.sentence(figures.solver, figures.decisions, figures.fallback_causes, figures.decided_by),
    )
    sentence = _sentence(found, _rounded_pool(figures))
    return msgspec.structs.replace(found, sentence=words(sentence), assumed=words(assumed))


def competing(tasks: int, admission: str, max_tasks: int) -> int:
    """Return the maximum number of competing tasks: all of them, unless the admission is a bundled one with a cap.

    >>> competing(40, "first-come", 35), competing(40, "load=1.5", 35), competing(40, "all", 35)
    (35, 35, 40)
    """
    return min(tasks, max_tasks) if parts.name_of(admission) in _CAPPED else tasks


def cap_caveats(summary: object) -> Iterator[str]:
    """Yield a sentence if the cap on competing tasks costs more than all overheads."""
    bound, each, harvested = (field_of(summary, name) for name in ("bound_samples", "one_each_samples", "harvested"))
    if not bound or not each or ran_out(summary):
        return
    cap, overheads = 1.0 - bound / each, (bound - harvested) / each
    if cap > max(overheads, _SEEN_CAP):
        yield (
            f"The cap on competing tasks costs {text_formats.percent(cap)} of what one task per node would harvest, "
            f"and all overheads together {text_formats.percent(overheads)}: see --max-tasks auto"
        )


def idle_on_average(summary: object) -> float:
    """Return the mean number of idle nodes; the constant pool of U has the nearest whole number."""
    span_s = float(field_of(summary, "simulated_s"))
    return float(field_of(summary, "idle_node_h")) * SECONDS_AN_HOUR / span_s if span_s else 0.0


def _rounded_pool(figures: ReplaySummary) -> str:
    """Return a text with the nodes of the constant pool and of the log, if they differ by 5 % or more; else ""."""
    mean, pool = idle_on_average(figures), figures.dedicated_nodes
    if pool is None or abs(mean - pool) < _SEEN_IN_U * mean:
        return ""
    return f" of what {text_formats.counted(pool, 'node')} would do; {text_formats.count(mean)} were idle on average"


def field_of(summary: object, path: str) -> Any:  # noqa: ANN401 - a number, text or table, as the field is
    """Return a field of a summary (a record, or read from JSON) by its path, such as ``decide_ms.p50``."""
    found: Any = summary
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


def harvest_node_h(summary: object) -> float:
    """Return the node-hours of useful work: allocated minus lost."""
    used_h: float = field_of(summary, "used_node_h")
    return used_h - math.fsum(field_of(lost, "node_h") for lost in field_of(summary, "lost").values())


def ran_out(summary: object) -> bool:
    """Return whether the tasks limited the harvest: all finished, or for 1 % of the idle node-time none was left."""
    idle_h = float(field_of(summary, "idle_node_h"))
    if not idle_h or field_of(summary, "cluster") is not None:
        return False
    without = field_of(summary, f"unused_node_h.{UnusedReason.NO_TASK}") or 0.0
    all_finished = field_of(summary, "tasks_finished") == field_of(summary, "tasks")
    return bool(all_finished or without >= _LEAST_NO_TASK * idle_h)


def mark_of(efficiency: float | None, *, tasks_ran_out: bool) -> str:
    """Return the mark behind U (or U without costs) if it is not a plain share of its reference; otherwise ""."""
    if efficiency is None:
        return ""
    return RAN_OUT if tasks_ran_out else ABOVE if efficiency >= _ABOVE_FROM else ""


def u_above_100(summary: object) -> bool:
    """Return whether U, or U without costs, exceeds 100 % although the tasks did not run out."""
    known = [field_of(summary, name) for name in ("efficiency", "ceiling_efficiency")]
    return not ran_out(summary) and any(mark_of(each, tasks_ran_out=False) for each in known)


def efficiency_text(summary: Mapping[str, Any]) -> str:
    """Return U as text, with its mark."""
    mark = mark_of(summary["efficiency"], tasks_ran_out=ran_out(summary))
    text = text_formats.percent(summary["efficiency"])
    return f"{text} ({mark})" if mark else text


def _sentence(found: HarvestHeadline, pool: str) -> str:
    if not found.idle_node_h:
        return "No node was idle"
    harvest, idle = (
        text_formats.count(found.harvest_node_h),
        f"{text_formats.count(found.idle_node_h)} idle node-hours",
    )
    samples = f"{text_formats.large(found.harvest_samples)} samples"
    used = text_formats.percent(found.used_share)
    if found.tasks_ran_out:
        return (
            f"The tasks ran out: they needed {used} of {idle}; harvest {harvest} node-hours, {samples}. "
            f"U is not comparable then; {ENOUGH_WORK}"
        )
    text = f"Harvest: {harvest} of {idle} ({text_formats.percent(found.harvest_share)}), {samples}"
    return f"{text}; U {text_formats.percent(found.efficiency)}{pool}" if found.efficiency is not None else text
