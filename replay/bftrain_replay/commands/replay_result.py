"""What a replay found, on one screen: a table of the figures that matter most, and a picture of the nodes over time."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from bftrain import text_formats
from bftrain.cli.plot import PartPlot
from bftrain_replay.commands.sensitivity import sensitivity_table
from bftrain_replay.commands.side_by_side import FigureRow, ReplayCell, RowGroup, SideBySide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from bftrain_replay.accounting.node_time_ledger import UnusedReason
    from bftrain_replay.reference.ideal_cluster import IdealCluster
    from bftrain_replay.results.result import ReplayResult
    from bftrain_replay.study import ReplayStudy

_REASONS: Final = 2  # why nodes were not used: so many rows, the largest
_LEAST_SHARE: Final = 0.0005  # of the idle node-time; less would be shown as 0.0 %
_HOUR_S: Final = 3600.0
_SECOND_MS: Final = 1000.0
_TIMES_WIDE: Final = 14  # letters of 0.04 / 0.69 ms


def in_words(study: ReplayStudy, title: str) -> RenderableType:
    """Lay the figures of all replays out side by side, over a picture of what was idle and used."""
    from rich.console import Group
    from rich.text import Text

    from bftrain import text_formats

    result = study.result
    columns = replays(study)
    figures = SideBySide("", tuple(columns), (RowGroup("", tuple(_rows(tuple(columns.values())))),), compact=True)
    begin_s = study.part.start_s
    picture = PartPlot(
        "nodes",
        ("used", "idle, not used"),
        begin_s + result.times_s,
        result.pool,
        result.used,
        begin_s + result.simulated_s,
    )
    idle_h = text_formats.count(result.idle_node_s / _HOUR_S)
    whole_s = len(study.part.node_names) * result.simulated_s
    share = text_formats.percent(result.idle_node_s / whole_s if whole_s else None)
    idle = "node-hours" if study.fixed is not None else f"idle node-hours, {share} of the node-time"
    heading = Text(f"{title}: {idle_h} {idle}")
    headline = study.headline
    said = [Text(text) for text in (headline.sentence, *headline.caveats, headline.assumed)] if headline else []
    ends = [Text(line) for line in (*_deciders(result), *_ends(study))]
    more = [Text(""), sensitivity_table(study.sensitivity)] if study.sensitivity else []
    return Group(heading, *said, figures, *ends, *more, *([] if said and not more else [Text("")]), picture)


def _deciders(result: ReplayResult) -> Iterator[str]:
    """Say who decided where the solver did not."""
    from bftrain_replay.results.decider_counts import sentence

    decided = result.decisions
    text = sentence(result.settings.solver, len(decided), decided.fallback_causes, decided.decided_by)
    if text:
        yield text


def _ends(study: ReplayStudy) -> Iterator[str]:
    """Say why replays on a cluster ended."""
    from bftrain_replay.simulation.fixed_cluster import WORDS

    if study.fixed is None:
        return
    for solver, why in study.fixed.ended.items():
        result = next(each for each in replays(study).values() if each.settings.solver == solver)
        yield f"{solver} ended after {text_formats.duration(result.simulated_s)}: {WORDS[why]}"
    if study.fixed.ideal is not None:
        yield from _held_against(study, study.fixed.ideal)


def _held_against(study: ReplayStudy, ideal: IdealCluster) -> Iterator[str]:
    """Say how much longer it took than ideally."""
    from bftrain_replay.output.summary_json import over_ideal

    over = over_ideal(study, ideal)
    for name, label in (("completion", "completion time, mean"), ("makespan", "all tasks finished after")):
        fluid_s, least_s = getattr(ideal, f"fluid_{name}_s"), getattr(ideal, f"least_{name}_s")
        fluid, least = (over[f"{name}_over_{what}"] for what in ("fluid", "least"))
        yield (
            f"{label}: {_as_long(fluid)}the {text_formats.duration(fluid_s)} of the fluid of {ideal.objective}, "
            f"{_as_long(least)}the {text_formats.duration(least_s)} that no policy can go below"
        )


def _as_long(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f} times "


def replays(study: ReplayStudy) -> dict[str, ReplayResult]:
    """Name the replays that are compared: by their solver, and the one without costs."""
    from bftrain_replay.results.decider_counts import ceiling_label

    named = {study.result.column_label: study.result}
    if study.baseline is not None:
        named[study.baseline.column_label] = study.baseline
    ceiling = study.ceiling
    if ceiling is not None:
        label = ceiling_label(ceiling.settings.solver, len(ceiling.decisions), ceiling.decisions.decided_by)
        named[label] = ceiling
    return named


def _rows(results: Sequence[ReplayResult]) -> Iterator[FigureRow]:
    """Give the rows, few enough that with the picture they fit on a screen of 24 lines."""
    from bftrain import text_formats
    from bftrain_replay.results.headline import RAN_OUT, ran_out
    from bftrain_replay.results.reason_labels import UNUSED
    from bftrain_replay.simulation.task_progress import SampleLoss

    def row(label: str, tell: Callable[[ReplayResult], str]) -> FigureRow:
        return FigureRow(label, [ReplayCell(tell(each)) for each in results])

    yield row("harvest, samples", lambda each: text_formats.large(each.harvested_samples))
    fixed = any(each.ended for each in results)
    if not fixed:
        marked = f"efficiency U ({RAN_OUT})" if ran_out(results[0].summary()) else "efficiency U"
        yield row(marked, lambda each: text_formats.percent(each.efficiency))
    yield row("node-time used" if fixed else "idle node-time used", lambda each: text_formats.percent(each.coverage))
    finished = any(each.tasks_finished for each in results)
    all_done = any(each.makespan_s is not None for each in results)
    for reason in islice(_reasons(results), _REASONS - finished - all_done):  # the other lines must fit too
        yield row(f"unused: {UNUSED[reason]}", partial(_unused, reason))
    yield row("lost to preemption", lambda each: text_formats.percent(each.lost_share(SampleLoss.PREEMPTION)))
    changes = (SampleLoss.RESCALING, SampleLoss.START_UP)
    yield row("lost to rescaling, start-up", lambda each: text_formats.percent(each.lost_share(*changes)))
    if any(each.lost_samples[SampleLoss.UNNOTICED] for each in results):
        yield row("lost unnoticed", lambda each: text_formats.percent(each.lost_share(SampleLoss.UNNOTICED)))
    yield row("tasks finished", lambda each: f"{each.tasks_finished:,} of {len(each.tasks):,}")
    if finished:
        yield row("completion time / rho, mean", _times)
    if all_done:
        yield row("all tasks finished after", lambda each: text_formats.duration(each.makespan_s))
    if any(each.settings.prices for each in results):
        yield row("cost, node-hours at their price", lambda each: text_formats.count(each.summary().cost or 0.0))
    stretches = {id(each): _stretches(each) for each in results}
    if any(stretches.values()):
        yield row("campaign stretch, mean/most", lambda each: stretches[id(each)] or text_formats.UNKNOWN)
    yield row("decision time, median / p99", _decision_time)


def _times(result: ReplayResult) -> str:
    """Say how long tasks took, by the clock and against an n-th part of everything."""
    from bftrain import text_formats

    took, rho = (getattr(result.task_figures, name) for name in ("completion_s", "rho"))
    if took is None:
        return text_formats.UNKNOWN
    return f"{text_formats.duration(took.mean)} / {text_formats.ratio(rho.mean if rho else None)}"


def _reasons(results: Sequence[ReplayResult]) -> Iterator[UnusedReason]:
    """Name the reasons that left most unused, the most first."""
    from bftrain_replay.accounting.node_time_ledger import UnusedReason

    idle_s = results[0].idle_node_s
    most = {reason: max(each.unused_node_s.get(reason, 0.0) for each in results) for reason in UnusedReason}
    large = [reason for reason in UnusedReason if most[reason] >= _LEAST_SHARE * idle_s > 0.0]
    yield from sorted(large, key=lambda reason: -most[reason])


def _unused(reason: UnusedReason, result: ReplayResult) -> str:
    from bftrain import text_formats

    return text_formats.percent(
        result.unused_node_s.get(reason, 0.0) / result.idle_node_s if result.idle_node_s else None
    )


def _stretches(result: ReplayResult) -> str:
    """Say how much longer what users handed in at one go took than with all nodes to itself."""
    from bftrain_replay.results.campaign_stretch import metric

    figures = metric.measure(result)
    mean, most = (figures[f"campaign_stretch_{which}"] for which in ("mean", "max"))
    if not isinstance(mean, float) or not isinstance(most, float):
        return ""
    return f"{text_formats.ratio(mean)} / {text_formats.ratio(most)}"


def _decision_time(result: ReplayResult) -> str:
    """Give median and 99th percentile in few letters, and in so many that columns are as wide on any machine."""
    spread = result.timings().decide_ms
    if spread.p99 < _SECOND_MS:
        return f"{_short(spread.p50)} / {_short(spread.p99)} ms".rjust(_TIMES_WIDE)
    median = f"{_short(spread.p50)} ms" if spread.p50 < _SECOND_MS else f"{_short(spread.p50 / _SECOND_MS)} s"
    return f"{median} / {_short(spread.p99 / _SECOND_MS)} s".rjust(_TIMES_WIDE)


def _short(amount: float) -> str:
    return f"{amount:.{2 if amount < 1 else int(amount < 10)}f}"  # noqa: PLR2004 - two digits tell enough
