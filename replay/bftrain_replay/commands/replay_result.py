"""A replay on one screen: a table of the most important figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from bftrain import text_formats
from bftrain.node_units import words_of
from bftrain_replay.commands.sensitivity import sensitivity_table
from bftrain_replay.commands.side_by_side import FigureRow, SideBySide
from bftrain_replay.run.decider_counts import CEILING, column_label, sentence
from bftrain_replay.run.headline import mark_of, ran_out
from bftrain_replay.run.result import ReplayResult
from bftrain_replay.run.summary_figures import FIGURE_OF, FIGURES
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.simulation.fixed_cluster import WORDS
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.study.study import ReplayStudy
from bftrain_replay.study_run import plain_figures

_MOST_REASONS: Final = 2  # rows with reasons for unused nodes
_LEAST_SHARE: Final = 0.0005  # fraction of the idle node-time; smaller values would show as 0.0 %
_SECOND_MS: Final = 1000.0
_TIMES_WIDE: Final = 14  # width of "0.04 / 0.69 ms"


def in_words(study: ReplayStudy, title: str) -> RenderableType:
    """Return the figures of all replays side by side."""
    result, words = study.result, words_of(study.part.unit)
    columns = replays(study)
    rows = tuple(replace(row, label=words(row.label)) for row in _rows(tuple(columns.values())))
    figures = SideBySide("", tuple(columns), [("", rows)], compact=True)
    idle_h = text_formats.count(result.idle_node_s / SECONDS_AN_HOUR)
    whole_s = len(study.part.node_names) * result.simulated_s
    share = text_formats.percent(result.idle_node_s / whole_s if whole_s else None)
    idle = "node-hours" if study.fixed is not None else f"idle node-hours, {share} of the node-time"
    heading = Text(f"{title}: {idle_h} {words(idle)}")
    headline = study.headline
    lines = [Text(text) for text in (headline.sentence, *headline.caveats, headline.assumed)] if headline else []
    ends = [Text(line) for line in _ends(study)]
    more = [Text(""), sensitivity_table(study.sensitivity)] if study.sensitivity else []
    return Group(heading, *lines, figures, *ends, *more)


def _ends(study: ReplayStudy) -> Iterator[str]:
    """Yield the solver's fallbacks and the stop reasons of replays on a cluster."""
    decided = study.result.decisions
    text = sentence(study.result.settings.solver, len(decided), decided.fallback_causes, decided.decided_by)
    if text:
        yield text
    if study.fixed is None:
        return
    for solver, why in study.fixed.ended.items():
        result = next(each for each in replays(study).values() if each.settings.solver == solver)
        yield f"{solver} ended after {text_formats.duration(result.simulated_s)}: {WORDS[why]}"


def replays(study: ReplayStudy) -> dict[str, ReplayResult]:
    """Return the compared replays by name: their solver, and the one without costs."""
    named = {study.result.column_label: study.result}
    if study.baseline is not None:
        named[study.baseline.column_label] = study.baseline
    if (ceiling := study.ceiling) is not None:
        made = ceiling.decisions
        named[column_label(ceiling.settings.solver, len(made), made.decided_by, CEILING)] = ceiling
    return named


def _rows(results: Sequence[ReplayResult]) -> Iterator[FigureRow]:
    """Yield the rows, few enough to fit a screen of 24 lines together with the plot."""
    summaries = [plain_figures(each) for each in results]
    rows = {}
    for figure in FIGURES:
        if "terminal" in figure.places and figure.shown([figure.value_in(each) for each in summaries]):
            label = figure.cluster_label if any(each.ended for each in results) else figure.label
            rows[figure.name] = FigureRow(label, list(map(figure.text_in, summaries)))
    if "efficiency" in rows:  # marked once, in the row with room
        figure = FIGURE_OF["efficiency"]
        short = ran_out(results[0].summary())
        marks = {mark_of(each.efficiency, tasks_ran_out=short) for each in results} - {""}
        label = f"{figure.label} ({marks.pop()})" if marks else figure.label
        rows["efficiency"] = FigureRow(label, [figure.format(each.efficiency) for each in results])
    if "completion_s.mean" in rows:
        rows["completion_s.mean"] = _joined("completion_s.mean", "rho.mean", map(_times, results))
    rows["decide_ms.p50"] = _joined("decide_ms.p50", "decide_ms.p99", map(_decision_time, results))
    room = _MOST_REASONS - ("completion_s.mean" in rows) - ("makespan_s" in rows)  # these take their place
    for name, row in rows.items():
        yield row
        if name == "coverage":
            yield from _unused(summaries, room)


def _unused(summaries: Sequence[Mapping[str, Any]], room: int) -> Iterator[FigureRow]:
    """Yield the largest reasons for unused nodes, limited by the room."""
    figures = [FIGURE_OF[f"unused.{reason}"] for reason in UnusedReason]
    most = {figure: max(figure.value_in(each) or 0.0 for each in summaries) for figure in figures}
    large = sorted((figure for figure in figures if most[figure] >= _LEAST_SHARE), key=lambda figure: -most[figure])
    for figure in large[:room]:
        yield FigureRow(figure.label, list(map(figure.text_in, summaries)))


def _joined(name: str, other: str, texts: Iterable[str]) -> FigureRow:
    """Join two figures on one line, with the common part of their labels once."""
    (one, part), (two, other_part) = (FIGURE_OF[each].label.split(", ") for each in (name, other))
    label = f"{one} / {two}, {part}" if part == other_part else f"{one}, {part} / {other_part}"
    return FigureRow(label, list(texts))


def _times(result: ReplayResult) -> str:
    """Return completion times as text, absolute and relative to an equal share of everything."""
    took, rho = (getattr(result.task_figures, name) for name in ("completion_s", "rho"))
    if took is None:
        return text_formats.UNKNOWN
    return f"{text_formats.duration(took.mean)} / {text_formats.ratio(rho.mean if rho else None)}"


def _decision_time(result: ReplayResult) -> str:
    """Return median and 99th percentile in a short form of constant width."""

    def short(amount: float) -> str:
        return f"{amount:.{2 if amount < 1 else int(amount < 10)}f}"  # noqa: PLR2004 - two digits tell enough

    spread = result.timings().decide_ms
    if spread.p99 < _SECOND_MS:
        return f"{short(spread.p50)} / {short(spread.p99)} ms".rjust(_TIMES_WIDE)
    median = f"{short(spread.p50)} ms" if spread.p50 < _SECOND_MS else f"{short(spread.p50 / _SECOND_MS)} s"
    return f"{median} / {short(spread.p99 / _SECOND_MS)} s".rjust(_TIMES_WIDE)
