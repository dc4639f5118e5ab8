"""Campaigns: how much longer what users handed in at one go took than it must, by user, and within which bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable, HtmlText, PageSection
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import CumulativeLine, colour_scale, over_ratios
from bftrain_replay.reporting.user_shares import BOUND, OTHERS, named
from bftrain_replay.results.campaign_stretch import CampaignRow

_LINES: Final = len(HUES) - 1  # of users; what is beyond is one
_WORST: Final = 50  # campaigns that are named one by one


def campaigns(rows: Sequence[CampaignRow]) -> PageSection | None:
    """Give the section; none where tasks have no users, or no campaign came to its end."""
    finished = [row for row in rows if row.stretch is not None]
    if not finished:
        return None
    intro = (
        "A campaign is what a user hands in at one go. Its stretch is the time from its first submission to its last "
        "end, over what it would have taken with all idle nodes to itself: 1 is as if it had been alone. The "
        "bound is the most that it would be if users shared the node-time by their weights."
    )
    worst = _worst(finished)
    parts = (
        _said(rows, finished),
        _stretches(rows, finished),
        _by_user(rows),
        *((worst,) if worst is not None else ()),
    )
    return PageSection(heading="Campaigns", intro=intro, parts=parts)


def _said(rows: Sequence[CampaignRow], finished: Sequence[CampaignRow]) -> HtmlText:
    stretch = f"<strong>{text_formats.ratio(float(_column(finished, 'stretch').mean()))}</strong>"
    within = sum(bool(row.within) for row in finished)
    if len(finished) == 1:
        text = f"One campaign of {text_formats.count(len(rows))} came to its end, with a stretch of {stretch}, "
        text += f"{'within' if within else 'beyond'} its bound."
    else:
        text = (
            f"{text_formats.count(len(finished))} of {text_formats.count(len(rows))} campaigns came to "
            "their end, with a stretch of "
        )
        text += f"{stretch} on average; {text_formats.count(within)} of them within their bound."
    return HtmlText(f'<p class="says">{text}</p>')


def _stretches(rows: Sequence[CampaignRow], finished: Sequence[CampaignRow]) -> ChartFigure:
    """Give a line a user, of those with most node-time, and the bounds of all as far as stretches go."""
    hues = dict(zip([name for name, _ in _groups(rows)], HUES, strict=False))
    lines = [CumulativeLine(name, _column(theirs, "stretch"), len(theirs)) for name, theirs in _groups(rows)]
    lines = [line for line in lines if line.known.size]
    bounds, end = _column(finished, "stretch_bound"), max(float(line.known[-1]) for line in lines)
    bound = CumulativeLine(BOUND, np.where(bounds <= end, bounds, np.nan), len(finished))
    shown = [*lines, *([bound] if bound.known.size else [])]
    drawn = [hues[line.name] if len(lines) > 1 else "@used" for line in lines]
    known = np.sort(_column(finished, "stretch"))
    says = (
        "Half of the finished campaigns have a stretch of at most "
        f"{text_formats.ratio(float(np.median(known)))}, the largest "
    )
    says += f"is {text_formats.ratio(float(known[-1]))}."
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
            "stretch, time taken over that with all nodes",
            colour_scale([line.name for line in shown], [*drawn, "@ink"], dashed=(BOUND,)),
            of="campaigns",
        ),
    )


def _groups(rows: Sequence[CampaignRow]) -> list[tuple[str, list[CampaignRow]]]:
    """Part campaigns by user, as the other pictures do: most node-time first, and one of those beyond the last line."""
    found: dict[str, list[CampaignRow]] = {}
    for row in rows:
        found.setdefault(row.user, []).append(row)
    users = sorted(found, key=lambda user: (-sum(row.node_h for row in found[user]), user))
    kept = users if len(users) <= _LINES else users[: _LINES - 1]
    others = [row for user in users[len(kept) :] for row in found[user]]
    return [*((named(user), found[user]) for user in kept), *([(OTHERS, others)] if others else [])]


def _by_user(rows: Sequence[CampaignRow]) -> HtmlTable:
    users = sorted({row.user for row in rows})
    return HtmlTable(
        label="Campaigns by user",
        headings=(
            "user",
            "campaigns",
            "finished",
            "node-hours",
            "stretch, mean",
            "most",
            "of its bound, most",
            "within",
        ),
        rows=[_user(user, [row for row in rows if row.user == user]) for user in users],
        sortable=True,
    )


def _user(user: str, rows: Sequence[CampaignRow]) -> tuple[HtmlCell, ...]:
    stretches = _known(rows, "stretch")
    parts = [row.stretch / row.stretch_bound for row in rows if row.stretch is not None and row.stretch_bound]
    node_h = sum(row.node_h for row in rows)
    within = sum(bool(row.within) for row in rows)
    return (
        HtmlCell(named(user), user),
        HtmlCell(text_formats.count(len(rows)), len(rows)),
        HtmlCell(text_formats.count(stretches.size), stretches.size),
        HtmlCell(text_formats.count(node_h), node_h),
        _ratio(float(stretches.mean()) if stretches.size else None),
        _ratio(float(stretches.max()) if stretches.size else None),
        _share(max(parts, default=None)),
        HtmlCell(f"{within:,} of {stretches.size:,}", within / stretches.size) if stretches.size else _ratio(None),
    )


def _worst(finished: Sequence[CampaignRow]) -> HtmlTable | None:
    """Name the campaigns that waited most for others."""
    ordered = sorted(finished, key=lambda row: -(row.stretch or 0.0))[:_WORST]
    if len(finished) == 1:
        return None
    some = len(ordered) < len(finished)
    heading = f"The {len(ordered)} campaigns with the largest stretch" if some else "All campaigns, one by one"
    return HtmlTable(
        label="Campaigns with the largest stretch",
        headings=("campaign", "user", "tasks", "created", "took", "alone", "stretch", "bound", "within it"),
        rows=[_row(row) for row in ordered],
        sortable=True,
        folded=heading,
    )


def _row(row: CampaignRow) -> tuple[HtmlCell, ...]:
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


def _share(value: float | None) -> HtmlCell:
    return HtmlCell(text_formats.percent(value), value)


def _column(rows: Sequence[CampaignRow], name: str) -> NDArray[np.float64]:
    """Give a figure of campaigns, NaN where there is none."""
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _known(rows: Sequence[CampaignRow], name: str) -> NDArray[np.float64]:
    found = _column(rows, name)
    return found[~np.isnan(found)]
