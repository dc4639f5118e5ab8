"""Users: their shares of the node-time over time, and the durations of their campaigns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import CumulativeLine, colour_scale, over_ratios
from bftrain_replay.reporting.over_time import NARROW
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF
from bftrain_replay.run.tables import CampaignRow
from bftrain_replay.run.task_figures import TaskColumns

OTHERS: Final = "others"
BOUND: Final = "the bound, of all"
_NO_USER: Final = "no user"
_OURS: Final = frozenset({OTHERS, BOUND, _NO_USER})  # labels reserved for non-user groups
_CALLED: Final = "user '"
_SPREADS: Final = ("completion_s", "slowdown", "rho")
_FEW: Final = 2  # users that a sentence can compare
_LINES: Final = len(HUES) - 1  # users with separate lines; the rest share one
_WORST: Final = 50  # campaigns that are named one by one
_STRETCHES: Final = 2000  # number of time intervals to average over


def named(user: str) -> str:
    """Return a user's displayed name, distinct from other names and labels in a chart."""
    if user in _OURS or user.startswith(_CALLED):
        return f"{_CALLED}{user}'"
    return user or _NO_USER


def by_user(tasks: TaskColumns, most: int) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return users as shown and masks of their tasks, most node-time first; those beyond ``most`` are merged."""
    users = sorted({*tasks.user})
    belongs = {user: np.array([each == user for each in tasks.user], dtype=bool) for user in users}
    users.sort(key=lambda user: -float(tasks.node_h[belongs[user]].sum()))
    if len(users) <= most:
        return [(named(user), belongs[user]) for user in users]
    kept = users[: most - 1]
    others: NDArray[np.bool_] = ~np.any([belongs[user] for user in kept], axis=0)
    return [*((named(user), belongs[user]) for user in kept), (OTHERS, others)]


def users_over_time(run: Run) -> ChartFigure | None:
    """Return stacked nodes by user over time; ``None`` if tasks have no users."""
    edges, until = _held(run)
    series = [_series(user, edges, {"nodes": np.diff(node_s) / np.diff(edges)}) for user, node_s in until.items()]
    whole = float(sum(node_s[-1] for node_s in until.values())) or 1.0
    said = [f"{user} {text_formats.percent(float(node_s[-1]) / whole)}" for user, node_s in until.items()]
    return stacked(series, said, run) if series else None


def shares_so_far(run: Run) -> ChartFigure | None:
    """Return each user's cumulative share of allocated node-time; ``None`` for fewer than two users."""
    edges, until = _held(run)
    if len(until) < _FEW:
        return None
    whole = np.sum(list(until.values()), axis=0)[1:]
    shown = list(until)
    series = [
        _series(user, edges, {"share": np.divide(node_s[1:], whole, out=np.zeros(whole.size), where=whole > 0.0)})
        for user, node_s in until.items()
    ]
    says = f"In the end {shown[0]} had most of the {run.node}-time that tasks held, {shown[-1]} least."
    return ChartFigure(
        name="shares",
        title=f"Each user's share of the {run.node}-time so far",
        says=says,
        alt=f"The share of each user in the {run.node}-time that tasks held up to each moment. {says}",
        caption="At each moment of all that tasks had held until then. Users who always want more than there is come "
        "to the shares that their weights give them, if the run shares by users.",
        height=200,
        moments=run.moments,
        series=series,
        spec={
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": run.moments.axis(),
                "y": quantity("share", title=f"of the {run.node}-time", axis={"format": ".0%", "tickCount": 5}),
                "color": _colours(shown, symbolType="stroke", symbolStrokeWidth=3),
            },
        },
        narrow=NARROW,
    )


def _held(run: Run) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return times and each user's cumulative node-seconds; empty if tasks have no users."""
    tasks, held = run.task_columns, run.holdings
    edges = np.linspace(0.0, run.end_s, _STRETCHES + 1)
    if not any(tasks.user) or not len(held) or not run.end_s:
        return edges, {}
    found = {}
    for user, which in by_user(tasks, len(HUES)):
        names = {name for name, theirs in zip(tasks.name, which.tolist(), strict=True) if theirs}
        of_user = np.array([name in names for name in held.tasks], dtype=bool)
        found[user] = np.zeros(edges.size)
        for block in held.blocks():
            theirs = of_user[block.task]
            found[user] += _since(block.from_s[theirs], edges) - _since(block.to_s[theirs], edges)
    return edges, found


def _series(user: str, edges: NDArray[np.float64], columns: Mapping[str, NDArray[np.float64]]) -> StepSeries:
    return StepSeries(times_s=edges[:-1], end_s=float(edges[-1]), columns=columns, of=user)


def _colours(users: Sequence[str], **legend: object) -> dict[str, Any]:
    return category(
        "of",
        scale={"domain": list(users), "range": list(HUES[: len(users)])},
        legend={"title": None, "labelLimit": 120, **legend},
    )


def stacked(series: Sequence[StepSeries], said: Sequence[str], run: Run) -> ChartFigure:
    """Return stacked nodes of users, one series per user; ``said`` describes each user's total share."""
    moments, node = run.moments, run.node
    shown = [part.of for part in series]
    says = f"Of the {node}-time that tasks held: {', '.join(said)}."
    return ChartFigure(
        name="users",
        title=f"Who held the {node}s",
        says=says,
        alt=f"{run.words('Nodes')} held by each user's tasks over time, upon each other. {says}",
        caption=f"Colours lie upon each other: the top is all {node}s that tasks held. Users are ordered by their "
        f"{node}-time" + (f", and those beyond {len(HUES) - 1} are one." if OTHERS in shown else "."),
        height=240,
        moments=moments,
        series=series,
        spec={
            "transform": [{"calculate": f"indexof({json.dumps(shown)}, datum.of)", "as": "place"}],
            "mark": {"type": "area", "interpolate": "step-after", "clip": True},
            "encoding": {
                "x": moments.axis(),
                "y": quantity("nodes", stack="zero", title=f"{node}s", axis={"tickCount": 5}),
                "color": _colours(shown),
                "order": quantity("place"),
            },
        },
        narrow=NARROW,
    )


def user_table(users: Mapping[str, Mapping[str, Any]], node: str) -> HtmlTable | None:
    """Return the figures of users; ``None`` where tasks have no users."""
    if not users:
        return None
    spreads = (FIGURE_OF[f"{name}.mean"].label for name in _SPREADS)
    return HtmlTable(
        label="Users",
        headings=("user", "tasks", "finished", f"{node}-hours", "share", *spreads),
        rows=[_row(name, figures) for name, figures in users.items()],
        sortable=True,
    )


def _row(name: str, figures: Mapping[str, Any]) -> tuple[HtmlCell, ...]:
    took_s, slowdown, rho = (figures[each] and figures[each]["mean"] for each in _SPREADS)
    return (
        HtmlCell(named(name), name),
        *(HtmlCell(text_formats.count(figures[each]), figures[each]) for each in ("tasks", "tasks_finished", "node_h")),
        HtmlCell(text_formats.percent(figures["share"]), figures["share"]),
        HtmlCell(text_formats.duration(took_s), took_s),
        _ratio(slowdown),
        _ratio(rho),
    )


def _since(moments: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the seconds since these moments, at each edge."""
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, edges, side="left")
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    return before * edges - total[before]


def _campaigns(run: Run) -> tuple[list[CampaignRow], list[CampaignRow]]:
    """Return all campaigns, and those that finished."""
    names = CampaignRow.__struct_fields__
    rows = [CampaignRow(**dict(zip(names, row, strict=True))) for row in run.rows("campaigns", *names)]
    return rows, [row for row in rows if row.stretch is not None]


def campaigns(run: Run) -> dict[str, Any]:
    """Return the sentence and the tables on campaigns; empty where tasks have no users, or no campaign finished."""
    rows, finished = _campaigns(run)
    if not finished:
        return {}
    stretch = text_formats.ratio(float(_column(finished, "stretch").mean()))
    within, many = sum(bool(row.within) for row in finished), text_formats.count(len(rows))
    if len(finished) == 1:
        bound = "within" if within else "beyond"
        text = f"One campaign of {many} came to its end, with a stretch of {stretch}, {bound} its bound."
    else:
        text = (
            f"{text_formats.count(len(finished))} of {many} campaigns came to their end, with a stretch of {stretch} "
            f"on average; {text_formats.count(within)} of them within their bound."
        )
    return {"sentence": text, "by_user": _by_user(rows, run.node), "worst": _worst(finished)}


def stretches(run: Run) -> ChartFigure | None:
    """Return a line for each of the largest users, and the bounds of all stretches; ``None`` without campaigns."""
    rows, finished = _campaigns(run)
    if not finished:
        return None
    groups = _groups(rows)
    hues = dict(zip([name for name, _ in groups], HUES, strict=False))
    lines = [CumulativeLine(name, _column(theirs, "stretch"), len(theirs)) for name, theirs in groups]
    lines = [line for line in lines if line.known.size]
    bounds, end = _column(finished, "stretch_bound"), max(float(line.known[-1]) for line in lines)
    bound = CumulativeLine(BOUND, np.where(bounds <= end, bounds, np.nan), len(finished))
    shown = [*lines, *([bound] if bound.known.size else [])]
    drawn = [hues[line.name] if len(lines) > 1 else "@used" for line in lines]
    known = np.sort(_column(finished, "stretch"))
    says = (
        f"Half of the finished campaigns have a stretch of at most {text_formats.ratio(float(np.median(known)))}, the "
        f"largest is {text_formats.ratio(float(known[-1]))}."
    )
    return ChartFigure(
        name="stretch",
        title="Stretch by user" if len(lines) > 1 else "Stretch",
        says=says,
        alt=f"The share of campaigns below each stretch. {says}",
        caption="Where lines lie apart, the user on the left waited less for the others. The dashed line is the bound "
        "of each campaign, those of all users together; the tables tell which campaigns are within their own.",
        height=240,
        spec=over_ratios(
            shown,
            f"stretch, time taken over that with all {run.node}s",
            colour_scale([line.name for line in shown], [*drawn, "@ink"], dashed=(BOUND,)),
            of="campaigns",
        ),
    )


def _groups(rows: Sequence[CampaignRow]) -> list[tuple[str, list[CampaignRow]]]:
    """Group campaigns by user, as in the other charts: most node-time first, and one group beyond the last line."""
    found: dict[str, list[CampaignRow]] = {}
    for row in rows:
        found.setdefault(row.user, []).append(row)
    users = sorted(found, key=lambda user: (-sum(row.node_h for row in found[user]), user))
    kept = users if len(users) <= _LINES else users[: _LINES - 1]
    others = [row for user in users[len(kept) :] for row in found[user]]
    return [*((named(user), found[user]) for user in kept), *([(OTHERS, others)] if others else [])]


def _by_user(rows: Sequence[CampaignRow], node: str) -> HtmlTable:
    users = sorted({row.user for row in rows})
    return HtmlTable(
        label="Campaigns by user",
        headings=(
            "user",
            "campaigns",
            "finished",
            f"{node}-hours",
            "stretch, mean",
            "most",
            "of its bound, most",
            "within",
        ),
        rows=[_user(user, [row for row in rows if row.user == user]) for user in users],
        sortable=True,
    )


def _user(user: str, rows: Sequence[CampaignRow]) -> tuple[HtmlCell, ...]:
    found = _column(rows, "stretch")
    stretches = found[~np.isnan(found)]
    parts = [row.stretch / row.stretch_bound for row in rows if row.stretch is not None and row.stretch_bound]
    node_h = sum(row.node_h for row in rows)
    within = sum(bool(row.within) for row in rows)
    value = max(parts, default=None)
    return (
        HtmlCell(named(user), user),
        HtmlCell(text_formats.count(len(rows)), len(rows)),
        HtmlCell(text_formats.count(stretches.size), stretches.size),
        HtmlCell(text_formats.count(node_h), node_h),
        _ratio(float(stretches.mean()) if stretches.size else None),
        _ratio(float(stretches.max()) if stretches.size else None),
        HtmlCell(text_formats.percent(value), value),
        HtmlCell(f"{within:,} of {stretches.size:,}", within / stretches.size) if stretches.size else _ratio(None),
    )


def _worst(finished: Sequence[CampaignRow]) -> HtmlTable | None:
    ordered = sorted(finished, key=lambda row: -(row.stretch or 0.0))[:_WORST]
    if len(finished) == 1:
        return None
    some = len(ordered) < len(finished)
    heading = f"The {len(ordered)} campaigns with the largest stretch" if some else "All campaigns, one by one"
    return HtmlTable(
        label="Campaigns with the largest stretch",
        headings=("campaign", "user", "tasks", "created", "took", "alone", "stretch", "bound", "within it"),
        rows=[_campaign(row) for row in ordered],
        sortable=True,
        folded=heading,
    )


def _campaign(row: CampaignRow) -> tuple[HtmlCell, ...]:
    took_s = None if row.end_s is None else row.end_s - row.created_s
    return (
        HtmlCell(row.campaign or f"no. {row.number}", row.number),
        HtmlCell(named(row.user), row.user),
        HtmlCell(text_formats.count(row.tasks), row.tasks),
        *(HtmlCell(text_formats.duration(seconds), seconds) for seconds in (row.created_s, took_s, row.least_s)),
        _ratio(row.stretch),
        _ratio(row.stretch_bound),
        HtmlCell("yes" if row.within else "no", float(bool(row.within))),
    )


def _ratio(value: float | None) -> HtmlCell:
    return HtmlCell(text_formats.ratio(value), value)


def _column(rows: Sequence[CampaignRow], name: str) -> NDArray[np.float64]:
    """Return a campaign figure, NaN where unknown."""
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)
