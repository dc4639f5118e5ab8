"""An assessment on one screen: the harvest a week, the losses by cause, its worth, and its assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bftrain import text_formats
from bftrain.cli.output import table
from bftrain.node_units import words_of
from bftrain_replay.assessing.figure_text import batch_jobs, causes, certainty, headline, mix_name, worth_rows
from bftrain_replay.assessing.what_if import LEAD, NOTICE, TASKS
from bftrain_replay.results.harvest_by_block import interval
from bftrain_replay.variations import COSTS, PROGRESS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_replay.assessing.assessment import LogAssessment

_CAUSES: Final = 3
_GROUPS: Final = 1
_IF: Final = {
    "Tasks that compete": (TASKS,),
    "Starts and rescales cost": (COSTS,),
    "Progress kept": (PROGRESS, NOTICE),
    "Leaving on notice of": (LEAD,),
}
_MIXES: Final = 3


def in_words(found: LogAssessment) -> RenderableType:
    """Return the assessment in at most 24 lines."""
    from rich.console import Group
    from rich.text import Text

    log, words = found.log, words_of(found.log.unit)
    heading = f"{Path(log.name).name}: {text_formats.counted(log.nodes, 'node')}, {text_formats.duration(log.span_s)}"
    rows = [(words(name), *others) for name, *others in _rows(found)]
    figures = table("", (words("node-hours a week"), "", "of idle"), rows, left=(0,), compact=True)
    worth = "; ".join(
        f"{name} {interval(figure)}{f' {unit}' if unit else ''}" for name, figure, unit in worth_rows(found)
    )
    more = [Text(words(f"A week: {worth}."))] if worth else []
    if found.handback is not None:
        more.append(Text(words(batch_jobs(found.handback))))
    return Group(
        Text(words(heading)),
        Text(words(f"{headline(found)}.")),
        Text(words(f"{certainty(found)}.")),
        figures,
        *more,
        *_if(found),
        *_mixes(found),
    )


def _rows(found: LogAssessment) -> Iterator[tuple[str, str, str]]:
    yield "idle", interval(found.idle), ""
    for name, node_h, share in list(causes(found))[:_CAUSES]:
        yield (
            f"  less: {name[:1].lower()}{name[1:]}",
            interval(node_h),
            text_formats.percent(share.median if share else None),
        )
    share = found.harvest_share
    yield "harvest", interval(found.harvest), text_formats.percent(share.median if share else None)
    for each in sorted(found.groups, key=lambda each: -each.harvest.median)[:_GROUPS]:
        yield f"  on {each.name}, {each.nodes:,} nodes", interval(each.harvest), ""


def _if(found: LogAssessment) -> Iterator[RenderableType]:
    """Yield a line for each other assumption with its result."""
    from rich.text import Text

    for words, kinds in _IF.items():
        said = [
            f"{row.label}: {text_formats.count(row.harvest.median)}{' (assumed)' if row.assumed else ''}"
            for row in found.what_ifs
            if row.what in kinds
        ]
        if said:
            yield Text(f"{words} {', '.join(said)}")


def _mixes(found: LogAssessment) -> Iterator[RenderableType]:
    """Yield a line on the tasks that do the most work."""
    from rich.text import Text

    said = [f"{mix_name(row, found.mixes)}: {text_formats.count(row.work.median)}" for row in found.mixes[:_MIXES]]
    if said:
        yield Text(f"Most work a week, in hours of one node: {', '.join(said)}")
