"""Assessment: weekly figures of a log's idle nodes, with intervals and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import summaries, text_formats
from bftrain.taskfiles.records import Profile
from bftrain.values import checks, wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.workloads.task_generators import SaturatingWorkload
from bftrain_replay.assessing.handback import UPPER_BOUND, BatchJobs, HandbackEffect, effect_of
from bftrain_replay.assessing.node_groups import DAYS, HOURS, GroupHarvest, LocalSteps, NodeGroups, harvest_of_groups
from bftrain_replay.assessing.replayed_sample import ReplayedHarvest, ReplayedSample, concatenated
from bftrain_replay.assessing.what_if import MOST_TASKS_FACTOR, Alternatives, MixRow, WhatIfRow, replay_alternatives
from bftrain_replay.run.harvest_by_block import SEED, EstimatedFigure, HarvestCurve
from bftrain_replay.simulation import progress_kept
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.harvest_bound import harvest_bound
from bftrain_replay.study.study import check_kinds
from bftrain_replay.sweeping.alternatives import ReplayFiles, RunPasses

FORMAT: Final = "bftrain assess 1"
_WATTS_A_KW: Final = 1000.0
_GRAMS_A_TONNE: Final = 1e6


class NodePrices(msgspec.Struct, frozen=True, kw_only=True):
    """Power of an idle and a busy node, prices of energy and node-hours in ``currency``, and carbon dioxide of energy.

    ``off_watts`` is the power of an idle node at sites that power idle nodes down. ``None``: unknown; figures that need
    the value are omitted.
    """

    idle_watts: float | None = None
    busy_watts: float | None = None
    off_watts: float | None = None
    kwh_price: float | None = None
    co2_g_per_kwh: float | None = None
    node_hour_price: float | None = None
    currency: str = "EUR"

    def __post_init__(self) -> None:
        """Check that no number is below 0, and that a busy node draws no less than an idle one."""
        if not (self.currency.isprintable() and self.currency.strip()):
            checks.reject(self, "currency", "is empty or not printable", "write a code such as USD")
        for name in self.__struct_fields__[:-1]:
            checks.optional_number(self, name, at_least=0.0)
        if (self.idle_watts is None) != (self.busy_watts is None):
            checks.reject(self, "busy_watts", "must be given with idle_watts", "give both, as idle=100,busy=400")
        if self.idle_watts is not None and self.busy_watts is not None and self.busy_watts < self.idle_watts:
            checks.reject(self, "busy_watts", "is less than idle_watts", "give both, as idle=100,busy=400")
        if self.off_watts is not None and (self.idle_watts is None or self.off_watts > self.idle_watts):
            checks.reject(self, "off_watts", "needs a larger idle_watts", "give all three: idle=100,busy=400,off=5")

    @property
    def extra_kw(self) -> float | None:
        """The power difference between a busy and an unused node."""
        if self.idle_watts is None or self.busy_watts is None:
            return None
        unused_watts = self.idle_watts if self.off_watts is None else self.off_watts
        return (self.busy_watts - unused_watts) / _WATTS_A_KW


class WeeklyWorth(msgspec.Struct, frozen=True, kw_only=True):
    """The worth of a week; ``None`` where a price or a power is unknown.

    ``value`` is the harvest at the price of node-hours, ``energy_kwh`` the extra energy of the tasks, ``energy_cost``
    its cost, and ``net`` the value minus this cost.
    """

    energy_kwh: EstimatedFigure | None = None
    co2_t: EstimatedFigure | None = None
    energy_cost: EstimatedFigure | None = None
    value: EstimatedFigure | None = None
    net: EstimatedFigure | None = None


class CauseFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Node-hours a week lost to one cause, and their share of the idle node-time."""

    cause: str
    node_h: EstimatedFigure
    share: EstimatedFigure | None


class PartOfTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean number of working nodes in one hour of the day or weekday; ``None`` if not observed."""

    part: str
    nodes: EstimatedFigure | None


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The observed log and its replayed part: numbers of blocks, which are weeks or days."""

    name: str
    sha256: str
    unit: str  # what is idle: whole nodes, GPUs or cores
    nodes: int
    start_s: float
    span_s: float
    block: str  # the length of blocks that are resampled: "week" or "day"
    blocks: int
    replayed_block: str  # the length of blocks that are chosen for replay
    blocks_replayed: int
    blocks_in_all: int
    hours_replayed: float
    time_zone: str


class LogAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a page; a figure is node-hours a week unless noted."""

    log: LogFacts
    idle: EstimatedFigure
    used: EstimatedFigure
    harvest: EstimatedFigure
    sure: EstimatedFigure  # harvest on certain (not doubtful) idle node-time
    harvest_share: EstimatedFigure | None  # fraction of the idle node-time
    of_machine: EstimatedFigure | None  # the harvest as a share of all node-time
    causes: tuple[CauseFigure, ...]
    hours: tuple[PartOfTime, ...]
    days: tuple[PartOfTime, ...]
    groups_by: str
    groups: tuple[GroupHarvest, ...]
    what_ifs: tuple[WhatIfRow, ...]
    start_cost_s: float | None  # median of the tasks' own values, before settings change them
    mixes: tuple[MixRow, ...]
    prices: NodePrices
    worth: WeeklyWorth
    handback: HandbackEffect | None
    doubtful: dict[str, Any]
    assumptions: tuple[str, ...]
    settings: ReplaySettings
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``assess.json``."""
        data = {"format": FORMAT, **dict(wire.plain(self)), "versions": summaries.versions()}
        return summaries.with_sum(data, frozenset({"command"}))


@dataclass(frozen=True, kw_only=True)
class AssessmentInputs:
    """A log, tasks and settings, with their names, prices, the time zone and the command to repeat the assessment.

    Worker processes read ``log_file``, which is written if it does not exist. Without ``tasks``, more trials are
    replayed than any window can finish.
    """

    log: EventLog
    log_file: Path
    settings: ReplaySettings
    name: str
    command: str
    tasks: Sequence[TaskSpec] | None = None
    task_file: Path | None = None
    task_name: str = ""
    timezone: str = ""  # default: the import's
    prices: NodePrices = field(default_factory=NodePrices)
    handback_delay_s: float | None = None
    jobs: BatchJobs | None = None
    most_events: int  # maximum number of replayed log events; 0: all


def assess_log(
    inputs: AssessmentInputs,
    scratch: Path,
    replay: Callable[[ReplayedSample, Sequence[TaskSpec]], ReplayedHarvest],
    models: Mapping[str, Profile],
    run: RunPasses | None,
) -> LogAssessment:
    """Replay a sample of the log and assess it; with ``run`` also replay other assumptions and mixes of ``models``.

    ``scratch`` is a folder for files that worker processes read.
    """
    log, settings, workload = inputs.log, inputs.settings, None
    sample, tasks = ReplayedSample.of(log, inputs.most_events), inputs.tasks
    if tasks is None:
        workload = SaturatingWorkload.of(sample.most_idle_node_s, MOST_TASKS_FACTOR * settings.max_tasks)
        tasks = workload.tasks
    else:
        check_kinds(log, tasks)
    replayed = replay(sample, tasks)
    alternatives: Alternatives = (), ()
    if run is not None:
        files = ReplayFiles.of(log, inputs.log_file, tasks, inputs.task_file, scratch)
        alternatives = replay_alternatives(replayed, settings, models, files, run, every=inputs.most_events == 0)
    timezone = inputs.timezone or log.provenance.options.get("timezone")
    zone = time_formats.zone(timezone) if timezone else UTC
    groups = NodeGroups.of(log, settings.racks)
    own_start_s = float(np.median([task.start_cost_s for task in tasks])) if tasks else None
    start_s = replayed_start_s(own_start_s, settings)
    idle, used, harvest = (
        replayed.by_block(measure)
        for measure in (HarvestCurve.idle_node_h, HarvestCurve.used_node_h, HarvestCurve.harvest_node_h)
    )
    hours, days = _by_part_of_time(sample, replayed, zone)
    return LogAssessment(
        log=_facts(sample, inputs.name, zone),
        idle=sample.a_week(idle),
        used=sample.a_week(used),
        harvest=sample.a_week(harvest),
        sure=sample.a_week(replayed.sure),
        harvest_share=sample.share(harvest, idle),
        of_machine=sample.share(harvest, len(log.node_names) * sample.replayed.hours),
        causes=_causes(sample, replayed, idle),
        hours=hours,
        days=days,
        groups_by=groups.source if groups else "",
        groups=harvest_of_groups(groups, sample, replayed.held, harvest, used) if groups else (),
        what_ifs=alternatives[0],
        start_cost_s=own_start_s,
        mixes=alternatives[1],
        prices=inputs.prices,
        worth=_worth(inputs.prices, lambda useful, busy: sample.a_week(useful * harvest + busy * used)),
        handback=None
        if inputs.handback_delay_s is None
        else effect_of(log, sample.blocks, inputs.handback_delay_s, inputs.jobs, start_s),
        doubtful=doubts_of(log).to_dict(),
        assumptions=tuple(_assumptions(inputs, sample, workload, start_s)),
        settings=settings,
        command=inputs.command,
    )


def replayed_start_s(own_start_s: float | None, settings: ReplaySettings) -> float:
    """Return the duration of a start in a replay; ``own_start_s`` is the duration that tasks state."""
    start_s = own_start_s if settings.start_cost_s is None else settings.start_cost_s
    return (start_s or 0.0) * settings.cost_factor


def _causes(sample: ReplayedSample, replayed: ReplayedHarvest, idle: NDArray[np.float64]) -> tuple[CauseFigure, ...]:
    """Return the losses by cause; ``idle`` are the idle node-hours by block."""
    windows = zip(sample.windows, replayed.curves, strict=True)
    causes = concatenated([curve.causes_node_h(np.array(window.edges_s)) for window, curve in windows])
    return tuple(
        CauseFigure(cause=name, node_h=sample.a_week(amounts), share=sample.share(amounts, idle))
        for name, amounts in causes.items()
        if amounts.sum() > 0.0
    )


def _by_part_of_time(
    sample: ReplayedSample, replayed: ReplayedHarvest, zone: tzinfo
) -> tuple[tuple[PartOfTime, ...], tuple[PartOfTime, ...]]:
    """Return the working nodes by hour of the day, and by weekday."""
    steps = LocalSteps.of(sample, zone)
    in_steps = steps.harvest(sample, replayed.curves)

    def means(parts: Sequence[str], part_of_step: NDArray[np.intp]) -> tuple[PartOfTime, ...]:
        nodes = steps.mean_nodes(sample, in_steps, part_of_step, len(parts))
        return tuple(PartOfTime(part=part, nodes=mean) for part, mean in zip(parts, nodes, strict=True))

    return means(HOURS, steps.hour), means(DAYS, steps.weekday)


def _worth(prices: NodePrices, a_week: Callable[[float, float], EstimatedFigure]) -> WeeklyWorth:
    """Return the worth of a week.

    ``a_week(h, u)`` estimates h times the useful node-hours plus u times the allocated ones: only useful hours have a
    value, while all allocated hours draw energy.
    """
    price, extra_kw, kwh_price, carbon = prices.node_hour_price, prices.extra_kw, prices.kwh_price, prices.co2_g_per_kwh
    cost = None if extra_kw is None or kwh_price is None else extra_kw * kwh_price
    return WeeklyWorth(
        energy_kwh=None if extra_kw is None else a_week(0.0, extra_kw),
        co2_t=None if extra_kw is None or carbon is None else a_week(0.0, extra_kw * carbon / _GRAMS_A_TONNE),
        energy_cost=None if cost is None else a_week(0.0, cost),
        value=None if price is None else a_week(price, 0.0),
        net=None if price is None or cost is None else a_week(price, -cost),
    )


def _facts(sample: ReplayedSample, name: str, zone: tzinfo) -> LogFacts:
    log, (blocks, block) = sample.log, sample.blocks.drawn
    return LogFacts(
        name=name,
        sha256=log.sha256,
        unit=log.unit,
        nodes=len(log.node_names),
        start_s=log.start_s,
        span_s=log.span_s,
        block=block,
        blocks=blocks,
        replayed_block=sample.blocks.unit,
        blocks_replayed=len(sample.places),
        blocks_in_all=len(sample.blocks),
        hours_replayed=float(sample.replayed.hours.sum()),
        time_zone=str(zone),
    )


def _cost_of_cap(workload: SaturatingWorkload | None, max_tasks: int, log: EventLog) -> str:
    """Return a clause on the share of the harvest that the cap on competing tasks permits; "" for given tasks."""
    if workload is None:
        return ""
    endless = [msgspec.structs.replace(spec, work_samples=None) for spec in workload.tasks]
    bound = harvest_bound(log, endless, max_tasks, mixed=False)
    if bound is None or not bound.one_each_samples:
        return ""
    share = text_formats.percent(bound.bound_samples / bound.one_each_samples)
    return f", which bounds the harvest at {share} of the harvest with one task per idle node"


def _assumptions(
    inputs: AssessmentInputs, sample: ReplayedSample, workload: SaturatingWorkload | None, start_s: float
) -> Iterator[str]:
    settings = inputs.settings
    cap = _cost_of_cap(workload, settings.max_tasks, sample.log)
    yield f"Work: {workload.sentence}." if workload else f"Work: the tasks of {inputs.task_name}."
    yield f"Up to {settings.max_tasks:,} tasks compete at a time (--max-tasks){cap}."
    yield f"{progress_kept.in_short(settings.progress)}."
    costs = {name: getattr(settings, name) for name in ("grow_cost_s", "shrink_cost_s", "start_cost_s")}
    given = "".join(f", but {name} = {seconds:g}" for name, seconds in costs.items() if seconds is not None)
    yield f"Start and rescale times of the tasks{given}, multiplied by {settings.cost_factor:g} (--cost-factor)."
    yield "Nodes return immediately and without notice; batch jobs always get their nodes."
    if inputs.handback_delay_s is not None and inputs.jobs is not None:
        yield (
            "Waiting times of jobs: each job keeps its nodes, its run time and its turn on each node; a node "
            f"idle for more than {text_formats.duration(start_s)} (the start of a task) counts as "
            f"used by a task (--handback-delay). {UPPER_BOUND}"
        )
    if not sample.whole:
        yield (
            f"Replayed: {len(sample.places):,} of {len(sample.blocks):,} {sample.blocks.unit}s, drawn at random (seed "
            f"{SEED}); their harvested share is applied to all {sample.blocks.unit}s (--events limits the sample)."
        )
