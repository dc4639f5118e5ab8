"""The page of an assessment: two screens for the head of a centre, every figure with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from bftrain import summaries, text_formats
from bftrain.files import write_text
from bftrain.node_units import in_words_of, word_of, words_of
from bftrain.result_folder import ResultKind
from bftrain.version import CITATION
from bftrain_replay.assessing.assessment import LogAssessment, PartOfTime
from bftrain_replay.assessing.figure_text import (
    SURE_BELOW,
    WEEKS_A_YEAR,
    causes,
    certainty,
    headline,
    mix_name,
    on_calendar,
    open_questions,
    worth_rows,
)
from bftrain_replay.assessing.handback import HandbackEffect
from bftrain_replay.assessing.what_if import LEAD, TASKS, WhatIfRow
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlPage, HtmlTable, html
from bftrain_replay.run.harvest_by_block import HOURS_A_WEEK, interval
from bftrain_replay.run.variations import COSTS, PROGRESS

_HEIGHT: Final = 124


def by_hour(found: LogAssessment) -> ChartFigure:
    """Return the mean number of nodes at work by hour of the day."""
    zone = found.log.time_zone if on_calendar(found) else "from the begin of the log"
    return _bars("hours", f"By hour of the day ({zone})", found.hours, word_of(found.log.unit))


def by_weekday(found: LogAssessment) -> ChartFigure:
    """Return the mean number of nodes at work by day of the week."""
    return _bars("weekdays", "By day of the week", found.days, word_of(found.log.unit))


def _bars(name: str, title: str, parts: Sequence[PartOfTime], node: str) -> ChartFigure:
    known = [part for part in parts if part.nodes is not None]
    rows: list[dict[str, Any]] = [
        {
            "part": part.part[:3],
            "nodes": part.nodes.median,
            "low": part.nodes.median if part.nodes.low is None else part.nodes.low,
            "high": part.nodes.median if part.nodes.high is None else part.nodes.high,
            "tooltip": f"{part.part}: {interval(part.nodes)} {node}s at work",
        }
        for part in known
        if part.nodes is not None
    ]
    most, least = (choose(rows, key=lambda row: float(row["nodes"]), default=None) for choose in (max, min))
    says = ""
    if most and least:
        says = (
            f"Most at {most['part']} ({text_formats.count(most['nodes'])} {node}s), "
            f"least at {least['part']} ({text_formats.count(least['nodes'])})."
        )
    if any(part.nodes and part.nodes.low is not None for part in known):
        title += ", with 90 % intervals"
    order = [part.part[:3] for part in parts]
    axis = {"labelAngle": 0, "grid": False, "ticks": False, "labelOverlap": "greedy"}
    return ChartFigure(
        name=name,
        title=title,
        says=says,
        alt=f"{title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT,
        spec={
            "data": {"values": rows},
            "encoding": {"x": category("part", sort=None, scale={"domain": order}, title=None, axis=axis)},
            "layer": [
                {
                    "mark": {
                        "type": "bar",
                        "cornerRadiusEnd": 2,
                        "tooltip": {"expr": "datum.tooltip"},
                        "color": "@used",
                    },
                    "encoding": {"y": quantity("nodes", title=f"{node}s at work", axis={"tickCount": 4})},
                },
                {
                    "mark": {"type": "rule", "color": "@ink", "strokeWidth": 1.5},
                    "encoding": {"y": quantity("low"), "y2": {"field": "high"}},
                },
            ],
        },
    )


def saturation(found: LogAssessment) -> ChartFigure | None:
    """Return the harvest against the number of competing tasks; ``None`` if that was not replayed."""
    rows = _points(found, TASKS, "{} tasks")
    if not rows:
        return None
    counts = sorted(float(row["at"]) for row in rows)
    own = next(row for row in found.what_ifs if row.what == TASKS and row.assumed)
    gain = rows[-1]["harvest"] / own.harvest.median - 1.0 if own.harvest.median else 0.0
    return _curve(
        rows,
        word_of(found.log.unit),
        name="saturation",
        title="With more or fewer tasks, with 90 % intervals",
        says=(
            f"{own.label} tasks compete here; {rows[-1]['at']:,.0f} would harvest "
            f"{text_formats.percent(gain) if gain > 0.0 else 'nothing'} more. Each point is a replay."
        ),
        x=quantity(
            "at",
            title="tasks that compete",
            scale={"type": "log", "nice": False, "domain": [counts[0], counts[-1]], "padding": 14},
            axis={"values": counts, "format": "~g", "labelOverlap": "greedy", "grid": False},
        ),
    )


def _points(found: LogAssessment, what: str, words: str) -> list[dict[str, Any]]:
    return [
        {
            "at": row.value,
            **_ends(row),
            "tooltip": f"{words.format(row.label)}: {interval(row.harvest)} {word_of(found.log.unit)}-hours a week",
        }
        for row in found.what_ifs
        if row.what == what
    ]


def _ends(row: WhatIfRow) -> dict[str, float]:
    middle = row.harvest.median
    low, high = (middle if end is None else end for end in (row.harvest.low, row.harvest.high))
    return {"harvest": middle, "low": low, "high": high}


def _curve(
    rows: list[dict[str, Any]], node: str, *, name: str, title: str, says: str, x: dict[str, Any]
) -> ChartFigure:
    """Return a line through separate replays, with its 90 % interval."""
    harvest = quantity("harvest", title=f"{node}-hours a week", axis={"tickCount": 4}, scale={"zero": True})
    return ChartFigure(
        name=name,
        title=title,
        says=says,
        alt=f"{node[:1].upper()}{node[1:]}-hours a week. {title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT + 26,
        spec={
            "data": {"values": rows},
            "encoding": {"x": x},
            "layer": [
                {
                    "mark": {"type": "area", "opacity": 0.18, "color": "@used"},
                    "encoding": {"y": {**harvest, "field": "low"}, "y2": {"field": "high"}},
                },
                {"mark": {"type": "line", "strokeWidth": 2, "color": "@used"}, "encoding": {"y": harvest}},
                {
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "size": 50,
                        "color": "@used",
                        "tooltip": {"expr": "datum.tooltip"},
                    },
                    "encoding": {"y": harvest},
                },
            ],
        },
    )


_WORDS: Final = {COSTS: "costs {}", LEAD: "leaving {} early", PROGRESS: "saved {}"}
_MIXES: Final = 3  # rows
_HEAD: Final = 1.5  # rows that the head of a table and the gap below the table take
_GROUPS: Final = 8  # maximum rows; the last row sums up all further groups
_BY: Final = {"rack": "By rack", "kind": "By kind of node", "partition": "By partition", "name": "By names of nodes"}


def page(found: LogAssessment) -> HtmlPage:
    """Build the page."""
    log, words, node = found.log, words_of(found.log.unit), word_of(found.log.unit)
    lost = HtmlTable(
        label="What is lost to what",
        headings=("what is lost to what", f"{node}-hours a week", "of the idle time"),
        rows=list(_lost(found)),
        css="compare",
    )
    jobs = list(_batch_jobs(found.handback, node)) if found.handback is not None else []
    what_ifs, mixes = [_what_ifs(found)] if found.what_ifs else [], [_mixes(found)] if found.mixes else []
    curve = saturation(found)
    unanswered = (f"Not answered here: {text[:1].lower()}{text[1:]}" for text in open_questions(found))
    return HtmlPage(
        template="assess.html",
        title=words("What the idle nodes can do"),
        main="hours",
        figures=[by_hour(found), by_weekday(found), *([] if curve is None else [curve])],
        warnings=[words(f"{text}.") for text in found.doubtful["caveats"]],
        parts={
            "found": found,
            "log": log,
            "name": Path(log.name).name,
            "node": node,
            "hours": f"{node}-hours",
            "on_calendar": on_calendar(found),
            "headline": words(headline(found)),
            "certainty": words(certainty(found)),
            "waits": found.handback,
            "worth": found.worth,
            "currency": found.prices.currency,
            "hours_a_week": HOURS_A_WEEK,
            "weeks_a_year": WEEKS_A_YEAR,
            "sure_below": SURE_BELOW,
            "co2": list(worth_rows(found))[-1][1:] if found.worth.co2_t else (),
            "lost": lost,
            "tables": _balanced((lost, *what_ifs, *_groups(found), *mixes, *jobs)),
            "assumptions": list(map(words, (*found.assumptions, *unanswered))),
            "cite": CITATION,
        },
        static_command="bftrain assess FILES --static",
    )


def _balanced(tables: Sequence[HtmlTable]) -> Sequence[HtmlTable]:
    """Return the tables in an order that balances two columns; the first table stays first."""
    sizes = [len(list(table.rows)) + _HEAD for table in tables]
    others = range(1, len(tables))
    chosen = ((0, *more) for count in range(len(tables)) for more in combinations(others, count))
    left = min(chosen, key=lambda places: abs(2 * sum(sizes[place] for place in places) - sum(sizes)))
    return [tables[place] for place in (*left, *(place for place in others if place not in left))]


def _groups(found: LogAssessment) -> list[HtmlTable]:
    if not found.groups:
        return []
    ordered = sorted(found.groups, key=lambda each: -each.harvest.median)
    shown = len(ordered) if len(ordered) <= _GROUPS else _GROUPS - 1
    rows = [(each.name, f"{each.nodes:,}", interval(each.idle), interval(each.harvest)) for each in ordered[:shown]]
    others = ordered[shown:]
    if others:
        harvest = text_formats.count(sum(each.harvest.median for each in others))
        idle = text_formats.count(sum(each.idle.median for each in others))
        rows.append((f"{len(others):,} others", f"{sum(each.nodes for each in others):,}", idle, harvest))
    words = words_of(found.log.unit)
    headings = (words(_BY[found.groups_by]), words("nodes"), "idle a week", "harvest a week")
    return [HtmlTable(label=words(_BY[found.groups_by]), headings=headings, rows=rows, css="compare")]


def _batch_jobs(found: HandbackEffect, node: str) -> Iterator[HtmlTable]:
    delay = text_formats.duration(found.delay_s)
    rows = [(f"{node}-hours a week that the queue waits, at most", interval(found.node_h_a_week))]
    if found.jobs is None:
        rows.append((f"moments a week at which it takes idle {node}s", interval(found.moments_a_week)))
    else:
        jobs = text_formats.counted(found.jobs, "job")
        rows.append((f"jobs that take idle {node}s", f"{interval(found.taking, text_formats.percent)} of {jobs}"))
        rows.append(("jobs that start later, at most", interval(found.delayed, text_formats.percent)))
        later = [each for each in found.distribution if each.jobs and each.over_s]
        if later:
            times = " / ".join(text_formats.duration(each.over_s) for each in later)
            rows.append((f"by more than {times}", " / ".join(f"{each.jobs:,}" for each in later) + " jobs"))
        rows.append(("extra wait on average over all jobs, at most", interval(found.mean_s, text_formats.duration)))
        spread = [text_formats.duration(wait_s) for wait_s in (found.extra_s or {}).values()]
        if spread:
            percents = " / ".join(map(str, found.extra_s or ()))
            rows.append((f"of {percents} in 100 that start later, at most", " / ".join(spread)))
    if found.own_wait_median_s is not None:
        rows.append(("what half of all jobs wait anyway, at least", text_formats.duration(found.own_wait_median_s)))
    if found.worst_user is not None:
        worst = found.worst_user
        text = f"{text_formats.counted(worst.jobs, 'job')}, at most {text_formats.duration(worst.mean_s)} on average"
        rows.append((f"most affected: user {worst.name}", text))
    headings = (f"if a {node} takes {delay} to be free", "")
    yield HtmlTable(label="Extra waits", headings=headings, rows=rows, css="compare")


def _lost(found: LogAssessment) -> Iterator[Sequence[str]]:
    yield "idle", interval(found.idle), ""
    for name, node_h, share in causes(found):
        yield (
            f"less: {in_words_of(found.log.unit, name.lower())}",
            interval(node_h),
            interval(share, text_formats.percent),
        )
    yield "harvest: work that counts", interval(found.harvest), interval(found.harvest_share, text_formats.percent)


def _start_of(row: WhatIfRow, cost_s: float | None) -> str:
    """Return the cost of a start under multiplied costs, as text."""
    if row.what != COSTS or not cost_s or row.value is None:
        return ""
    return f": {text_formats.duration(cost_s * row.value)} a start"


def _what_ifs(found: LogAssessment) -> HtmlTable:
    shown = [row for row in found.what_ifs if row.what != TASKS and not row.assumed]
    return HtmlTable(
        label="What if",
        headings=("what if", f"{word_of(found.log.unit)}-hours a week", "change"),
        rows=[
            (
                _WORDS.get(row.what, "{}").format(row.label) + _start_of(row, found.start_cost_s),
                interval(row.harvest),
                interval(row.change, text_formats.percent, signed=True),
            )
            for row in shown
        ],
        css="compare",
    )


def _mixes(found: LogAssessment) -> HtmlTable:
    rows, node = found.mixes, word_of(found.log.unit)
    left_out = len(rows) - _MIXES
    return HtmlTable(
        label="Mixes of models",
        headings=("which tasks do the most", f"a week, hours of one {node}", f"speed of a {node}"),
        rows=[(mix_name(row, rows), interval(row.work), text_formats.percent(row.scaling)) for row in rows[:_MIXES]]
        + ([(f"{left_out:,} others, at least", interval(rows[-1].work), "")] if left_out > 0 else []),
        css="compare",
    )


FIGURES: Final = "assess.json"
PAGE: Final = "assess.html"
KIND: Final = ResultKind(title="assessment", form="bftrain assess", summary=FIGURES, names=frozenset({FIGURES, PAGE}))


def write(found: LogAssessment, folder: Path, *, static: bool = False) -> None:
    """Write the figures and the page; a ``static`` page needs no JavaScript."""
    if vega.available():
        write_text(folder / PAGE, html(page(found), static=static))
    write_text(folder / FIGURES, summaries.to_json(found.to_dict()))
