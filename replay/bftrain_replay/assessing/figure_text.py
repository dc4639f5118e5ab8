"""Texts of an assessment that the page and the terminal share: headline, intervals, causes, worth, open questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bftrain import text_formats
from bftrain_replay.assessing.assessment import LogAssessment, WeeklyWorth
from bftrain_replay.assessing.handback import UPPER_BOUND, HandbackEffect
from bftrain_replay.assessing.what_if import MixRow
from bftrain_replay.reporting.losses import CAUSE_NAMES
from bftrain_replay.run.harvest_by_block import HOURS_A_WEEK, EstimatedFigure, interval, too_narrow

WEEKS_A_YEAR: Final = 365.25 / 7.0
SURE_BELOW: Final = 0.9995  # fraction of the harvest; a larger certain part is not mentioned
_KG_A_TONNE: Final = 1000.0
_MOST_NAMED: Final = 3  # models of a mix; larger mixes of all models have a short label


def headline(found: LogAssessment) -> str:
    """Return the possible harvest in one sentence."""
    share = text_formats.percent(found.of_machine.median if found.of_machine else None)
    own = text_formats.count(found.harvest.median / HOURS_A_WEEK)
    return (
        f"About {interval(found.harvest)} node-hours a week can be harvested from the idle nodes: {share} "
        f"of all node-time, equal to {own} full-time nodes"
    )


def certainty(found: LogAssessment) -> str:
    """Return the meaning of the intervals, and the harvest on certain idle node-time if it is smaller."""
    log = found.log
    blocks = text_formats.counted(log.blocks, log.block)
    if log.blocks == 1:
        text = f"The log is {text_formats.duration(log.span_s)} long, not enough for an interval"
    else:
        text = f"Intervals contain 90 % of resamples of {blocks}{too_narrow(log.blocks)}"
        if log.blocks_replayed < log.blocks_in_all:
            text += f"; {log.blocks_replayed:,} of {log.blocks_in_all:,} {log.replayed_block}s were replayed"
        text += " (weeks would need a log of four)" if log.block == "day" and log.blocks_replayed == log.blocks else ""
    if found.sure.median < SURE_BELOW * found.harvest.median:
        text += f". Of the harvest {interval(found.sure)} are on node-time that was surely idle"
    return text


def causes(found: LogAssessment) -> Iterator[tuple[str, EstimatedFigure, EstimatedFigure | None]]:
    """Yield each loss, the largest first: its name, node-hours a week, and share of the idle node-time."""
    for each in sorted(found.causes, key=lambda each: -each.node_h.median):
        yield CAUSE_NAMES[each.cause], each.node_h, each.share


def batch_jobs(found: HandbackEffect) -> str:
    """Return the effect of a hand-back delay on batch jobs, as text."""
    delay = text_formats.duration(found.delay_s)
    cost = f"{interval(found.node_h_a_week)} node-hours a week"
    if found.jobs is None:
        return (
            f"If a node takes {delay} to be free, jobs wait for it at {interval(found.moments_a_week)} "
            f"moments a week, up to {cost}; pass --records to see which jobs."
        )
    worst = found.worst_user
    text = (
        f"If a node takes {delay} to be free, up to {interval(found.delayed, text_formats.percent)} of "
        f"{text_formats.counted(found.jobs, 'job')} start later, by up to "
        f"{interval(found.mean_s, text_formats.duration)} on average over all jobs and "
        f"{text_formats.duration(found.most_s)} for one job. {UPPER_BOUND}"
    )
    if worst is not None:
        text += (
            f" Most affected: user {worst.name}, {text_formats.counted(worst.jobs, 'job')}, "
            f"up to {text_formats.duration(worst.mean_s)} more on average."
        )
    return text


def worth_rows(found: LogAssessment) -> Iterator[tuple[str, EstimatedFigure, str]]:
    """Yield the known worth of a week: name, figure and unit; less than a tonne of CO2 in kg."""
    worth, money = found.worth, found.prices.currency
    for name, figure, unit in (
        ("value", worth.value, money),
        ("extra energy", worth.energy_kwh, "kWh"),
        ("energy cost", worth.energy_cost, money),
        ("net value", worth.net, money),
        ("CO2", worth.co2_t, "t"),
    ):
        if figure is not None:
            small = unit == "t" and figure.median < 1.0
            yield name, figure.times(_KG_A_TONNE) if small else figure, "kg" if small else unit


def mix_name(row: MixRow, among: Sequence[MixRow]) -> str:
    """Return a row's model names, or a short label if it has all models of the rows ``among``."""
    most = max(len(each.models) for each in among)
    return f"all {most}" if len(row.models) == most > _MOST_NAMED else " + ".join(row.models)


def open_questions(found: LogAssessment) -> Iterator[str]:
    """Yield the questions that the assessment does not answer, and the input that each needs."""
    if found.worth == WeeklyWorth():
        yield "Value: give --node-hour-price; for energy --node-watts idle=..,busy=.., --price-kwh and --co2."
    if not found.groups:
        yield (
            "Harvest by node group: the log lists no kinds or partitions, and node names reveal no racks; --kinds"
            " FILE names kinds."
        )
    if found.handback is None:
        yield "Effect on batch jobs: give the time until a node is free, such as --handback-delay 30s."
    elif found.handback.jobs is None:
        yield (
            "Which jobs and users would wait: a log only has node states; assess records with "
            "start, end and nodes of each job, or pass the imported records with --records."
        )
    if not found.what_ifs:
        yield "What if restarts take minutes, and which tasks do the most: leave out --quick."
