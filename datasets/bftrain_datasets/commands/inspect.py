"""``bftrain inspect``: describe a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain import text_formats
from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain_datasets.commands.logfiles import log_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Group, RenderableType

    from bftrain_datasets.log.idle_doubts import IdleDoubts
    from bftrain_datasets.log.measures import LogSummary
    from bftrain_datasets.log.provenance import LogProvenance

_MOST_SOURCES: Final = 5


@click.command(cls=DocumentedCommand, example="bftrain inspect log.npz\nbftrain inspect log.npz --json")
@log_argument
@prints_results
def command(log: Path, out: Output) -> None:
    """Describe LOG: idle node-time, lengths of idle fragments, and how nodes leave the pool."""
    from bftrain.values import wire
    from bftrain_datasets.log.idle_doubts import doubts_of
    from bftrain_datasets.log.log_files import load_log
    from bftrain_datasets.log.measures import summarise

    found = load_log(log)
    summary, doubts = summarise(found), doubts_of(found)
    out.result({**wire.plain(summary), "doubtful": doubts.to_dict()}, lambda: _tables(log, summary, doubts))


def _tables(file: Path, summary: LogSummary, doubts: IdleDoubts) -> Group:
    from rich.console import Group

    from bftrain.node_units import words_of
    from bftrain_datasets.log.measures import CHANCE_WITHIN_S

    pool, lengths = summary.pool.percentiles, summary.fragments.percentiles_s
    at_once = summary.leaving.at_once
    percentiles = (
        (
            f"P{percentile}",
            f"{pool[percentile]:,}",
            f"{lengths[percentile]:,.0f}" if lengths else "-",
            f"{at_once[percentile]:,}" if at_once else "-",
        )
        for percentile in pool
    )
    shares = (
        (
            f"up to {text_formats.duration(share.up_to_s)}",
            text_formats.percent(share.fragments),
            text_formats.percent(share.idle_time),
        )
        for share in summary.fragments.shares
    )
    chances = (
        (text_formats.duration(age), text_formats.percent(chance))
        for age, chance in summary.leaving.chance_within_300_s.items()
    )
    kinds = (
        (
            kind,
            f"{each.nodes:,}",
            text_formats.percent(each.idle_share),
            text_formats.count(each.idle_node_hours),
            f"{each.largest:,}",
        )
        for kind, each in summary.kinds.items()
    )
    words = words_of(summary.provenance.unit)

    def headed(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> RenderableType:
        return table("", tuple(map(words, columns)), rows)

    of_kinds = headed(("kind", "nodes", "idle", "idle node-hours", "peak idle"), kinds)
    figures = ((words(name), words(text)) for name, text in _main_figures(summary, doubts))
    return Group(
        table(str(file), ("", ""), figures, left=(0, 1)),
        *((of_kinds,) if summary.kinds else ()),
        headed(("percentile", "pool, by time (nodes)", "idle fragments (s)", "leave together (nodes)"), percentiles),
        table("", ("idle fragments", "of all fragments", "of the idle time"), shares),
        table("", ("idle for", f"chance to leave within {text_formats.duration(CHANCE_WITHIN_S)}"), chances),
        table("", ("", ""), _story(summary.provenance), left=(0, 1)),
    )


def _main_figures(summary: LogSummary, doubts: IdleDoubts) -> Iterator[tuple[str, str]]:
    from bftrain_datasets.log.measures import LARGE_DEPARTURE_NODES

    yield "nodes", f"{summary.nodes:,}"
    yield "events", f"{summary.events:,}, every {summary.mean_gap_s:,.0f} s (median {summary.median_gap_s:,.0f} s)"
    begin, end = text_formats.moment(summary.start_s), text_formats.moment(summary.end_s)
    yield "span", f"{text_formats.duration(summary.span_s)}, from {begin} to {end}"
    idle_h, down_h = text_formats.count(summary.idle_node_hours), text_formats.count(summary.down_node_hours)
    yield "idle", f"{100 * summary.idle_share:.2f} % of the node-time, {idle_h} node-hours"
    yield "doubtful", doubts.in_words
    if summary.down_share:
        yield "down", f"{text_formats.percent(summary.down_share)} of the node-time, {down_h} node-hours"
    yield "pool", f"{summary.pool.mean:,.1f} nodes on average, peak {summary.pool.largest:,}"
    pieces = summary.fragments
    yield "idle fragments", f"{pieces.count:,}, mean {pieces.mean_s:,.0f} s; {pieces.open:,} last beyond the end"
    together, in_crowds = summary.leaving.together, summary.leaving.in_large_departures
    yield "leaving", f"{text_formats.percent(together)} of the nodes that join together leave together"
    yield "", f"{text_formats.percent(in_crowds)} leave in departures of {LARGE_DEPARTURE_NODES} nodes or more"
    yield "content sha256", summary.sha256


def _story(provenance: LogProvenance) -> Iterator[tuple[str, str]]:
    from bftrain_datasets.commands.records import done_about

    yield "made by", f"{provenance.made_by}, bftrain {provenance.version}"
    for name, value in provenance.options.items():
        yield "with", f"{name} = {json.dumps(value, ensure_ascii=False)}"
    for source in provenance.sources[:_MOST_SOURCES]:
        yield "from", f"{source.name}, {source.size_bytes:,} bytes, sha256 {source.sha256}"
    if len(provenance.sources) > _MOST_SOURCES:
        yield "", f"and {len(provenance.sources) - _MOST_SOURCES:,} more files"
    for step in provenance.steps:
        yield "then", step
    for finding in provenance.findings:
        done = done_about(finding)
        times = text_formats.counted(finding.count, "time")
        yield "found", f"{finding.name}, {times}{f': {done}' if done else ''}"
