"""Assessment: its figures are those of a plain computation from the log's stays and the table of allocations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from bftrain import EventLog, ReplaySettings, sample_log
from bftrain.topology import load_topology
from bftrain_datasets.log.idle_doubts import doubtful_nodes
from bftrain_datasets.workloads.saturating import SaturatingWorkload
from bftrain_replay.assessing.alternative_replays import replay_alternatives
from bftrain_replay.assessing.assess_page import page
from bftrain_replay.assessing.assessment import Alternatives, AssessmentInputs, ReplayedHarvest, assess, replay_sample
from bftrain_replay.assessing.batch_jobs import jobs_of
from bftrain_replay.assessing.node_groups import NodeGroups
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.assessing.what_if import MixRow, WhatIfRow
from bftrain_replay.assessing.what_if_replays import InputFiles
from bftrain_replay.assessing.worth import NodePrices
from bftrain_replay.results.harvest_by_block import RESAMPLES, EstimatedFigure, HarvestCurve
from bftrain_replay.results.headline import harvest_node_h
from bftrain_replay.sweeping.run_point import work
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass
from tests.helpers.site_data import site_data
from tests.unit.replay.assessing.site_logs import site_log

Stays = list[tuple[str, float, float]]  # node, begin and end

FREE: Final = ReplaySettings(cost_factor=0.0, progress="task", max_tasks=8)  # nothing is lost: all that is held counts
ZONE: Final = ZoneInfo("Europe/Prague")
PRICES: Final = NodePrices(idle_watts=100.0, busy_watts=400.0, kwh_price=0.25, co2_g_per_kwh=500.0, node_hour_price=2.0)


def _replayed(log: EventLog, settings: ReplaySettings, events: int = 0) -> ReplayedHarvest:
    tasks = SaturatingWorkload.of(log.idle_node_s, settings.max_tasks).tasks
    found = replay_sample(ReplayedSample.of(log, events), tasks, settings)
    assert found is not None
    return found


@pytest.fixture(scope="module", params=["summit", "wagap", "theta", "ub-micro"])
def replayed(request: pytest.FixtureRequest) -> ReplayedHarvest:
    return _replayed(site_log(request.param), FREE)


def _idle_stays(log: EventLog) -> Stays:
    since: dict[str, float] = {}
    stays = []
    for time_s, left, joined in log.pool_changes():
        stays += [(node, since.pop(node), time_s) for node in left]
        since.update(dict.fromkeys(joined, time_s))
    return stays + [(node, begin_s, log.end_s) for node, begin_s in since.items()]


def _held_stays(replayed: ReplayedHarvest) -> Stays:
    stays = []
    for window, held in zip(replayed.sample.windows, replayed.held, strict=True):
        begin_s = replayed.sample.log.start_s + window.begin_s
        rows = zip(held.node.tolist(), held.from_s.tolist(), held.to_s.tolist(), strict=True)
        stays += [(held.nodes[node], begin_s + from_s, begin_s + to_s) for node, from_s, to_s in rows]
    return stays


def _hours_within(stays: Iterable[tuple[str, float, float]], low_s: float, high_s: float) -> float:
    return sum(max(0.0, min(end_s, high_s) - max(begin_s, low_s)) for _, begin_s, end_s in stays) / 3600


def _edges(log: EventLog) -> list[float]:
    length_s = 604_800.0 if log.span_s >= 4 * 604_800.0 else 86_400.0
    edges = [log.start_s]
    while log.end_s - edges[-1] >= 1.5 * length_s:
        edges.append(edges[-1] + length_s)
    return [*edges, log.end_s]


def _bootstrap(amounts: Sequence[float], of: Sequence[float], factor: float) -> tuple[float, ...]:
    draws = np.random.default_rng(0).integers(0, len(amounts), (RESAMPLES, len(amounts)))
    drawn = [(sum(amounts[i] for i in draw), sum(of[i] for i in draw)) for draw in draws.tolist()]
    figures = [factor * amount / whole for amount, whole in drawn if whole]
    return tuple(float(np.percentile(figures, at)) for at in (5, 50, 95))


def _same(found: EstimatedFigure | None, expected: tuple[float, ...]) -> None:
    assert found is not None
    low, median, high = expected
    assert found.median == pytest.approx(median, rel=1e-6, abs=1e-6)
    if found.low is not None:
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


def test_node_hours_a_week_and_their_worth_are_those_of_plain_sums(replayed: ReplayedHarvest) -> None:
    log = replayed.sample.log
    found = assess(replayed, FREE, AssessmentInputs(name="log", command="", prices=PRICES))
    edges = _edges(log)
    blocks = list(pairwise(edges))
    hours = [(high - low) / 3600 for low, high in blocks]
    idle, held = (
        [_hours_within(stays, low, high) for low, high in blocks] for stays in (_idle_stays(log), _held_stays(replayed))
    )
    _same(found.idle, _bootstrap(idle, hours, 168.0))
    _same(found.used, _bootstrap(held, hours, 168.0))
    _same(found.harvest, _bootstrap(held, hours, 168.0))
    _same(found.harvest_share, _bootstrap(held, idle, 1.0))
    _same(found.of_machine, _bootstrap(held, [each * len(log.node_names) for each in hours], 1.0))
    _same(found.worth.energy_kwh, _bootstrap(held, hours, 168.0 * 0.3))
    _same(found.worth.co2_t, _bootstrap(held, hours, 168.0 * 0.3 * 500 / 1e6))
    _same(found.worth.energy_cost, _bootstrap(held, hours, 168.0 * 0.3 * 0.25))
    _same(found.worth.value, _bootstrap(held, hours, 168.0 * 2.0))
    _same(found.worth.net, _bootstrap(held, hours, 168.0 * (2.0 - 0.3 * 0.25)))
    assert [cause.cause for cause in found.causes if cause.cause in {"preemption", "rescaling", "start_up"}] == []


def test_hours_and_weekdays_are_those_of_the_calendar(replayed: ReplayedHarvest) -> None:
    log = replayed.sample.log
    found = assess(replayed, FREE, AssessmentInputs(name="log", command="", zone=ZONE))
    edges = _edges(log)
    held, lasting = (defaultdict[str, list[float]](lambda: [0.0] * (len(edges) - 1)) for _ in range(2))
    whole = [("", low, high) for low, high in pairwise(edges)]
    for stays, counted in ((_held_stays(replayed), held), (whole, lasting)):
        for block, part, hours in _quarters(stays, edges):
            counted[part][block] += hours
    for found_part in (*found.hours, *found.days):
        hours = lasting[found_part.part]
        if sum(hours):
            _same(found_part.nodes, _bootstrap(held[found_part.part], hours, 1.0))
        else:
            assert found_part.nodes is None


def _quarters(stays: Stays, edges: Sequence[float]) -> Iterator[tuple[int, str, float]]:
    """Cut stays at quarters of an hour and at edges; give block, hour and weekday, and how long each piece is."""
    for _, since_s, end_s in stays:
        begin_s = since_s
        while begin_s < end_s:
            block = sum(begin_s >= edge for edge in edges[1:-1])
            until_s = min(end_s, (begin_s // 900.0 + 1.0) * 900.0, edges[block + 1])
            at = datetime.fromtimestamp(begin_s, ZONE)
            yield block, f"{at:%H}", (until_s - begin_s) / 3600
            yield block, f"{at:%A}", (until_s - begin_s) / 3600
            begin_s = until_s


def test_groups_add_up_and_each_is_that_of_its_nodes(replayed: ReplayedHarvest) -> None:
    log = replayed.sample.log
    half = len(log.node_names) // 2
    kinds = ["first"] * half + ["second"] * (len(log.node_names) - half)
    groups = NodeGroups(("first", "second"), np.array([kind == "second" for kind in kinds], dtype=np.int32), "kind")
    found = assess(replayed, FREE, AssessmentInputs(name="log", command="", groups=groups))
    edges = _edges(log)
    hours = [(high - low) / 3600 for low, high in pairwise(edges)]
    kind_of = dict(zip(log.node_names, kinds, strict=True))
    for group in found.groups:
        idle, held = (
            [
                _hours_within([stay for stay in stays if kind_of[stay[0]] == group.name], low, high)
                for low, high in pairwise(edges)
            ]
            for stays in (_idle_stays(log), _held_stays(replayed))
        )
        _same(group.idle, _bootstrap(idle, hours, 168.0))
        _same(group.harvest, _bootstrap(held, hours, 168.0))


def test_the_sure_harvest_leaves_out_the_doubtful_share_at_each_time(replayed: ReplayedHarvest) -> None:
    log = replayed.sample.log
    found = assess(replayed, FREE, AssessmentInputs(name="log", command=""))
    at_s, doubtful = doubtful_nodes(log)
    pool, stays, edges = log.pool_sizes(), _held_stays(replayed), _edges(log)
    sure = [0.0] * (len(edges) - 1)
    for begin_s, end_s, nodes in zip(at_s, [*at_s[1:], log.end_s], doubtful, strict=True):
        idle = pool[log.times <= begin_s][-1]
        share = 1.0 - (nodes / idle if idle else 0.0)
        here = [stay for stay in stays if stay[1] < end_s and stay[2] > begin_s]
        for block, (low, high) in enumerate(pairwise(edges)):
            sure[block] += share * _hours_within(here, max(begin_s, low), min(end_s, high))
    hours = [(high - low) / 3600 for low, high in pairwise(edges)]
    _same(found.sure, _bootstrap(sure, hours, 168.0))


def test_racks_of_real_names_are_rows_and_add_up() -> None:
    log = site_log("summit")
    groups = NodeGroups.of(log, load_topology("names:1"))
    assert groups is not None
    found = assess(_replayed(log, FREE), FREE, AssessmentInputs(name="log", command="", groups=groups))
    assert found.groups_by == "rack"
    racks = Counter(re.sub(r"n\d+$", "n", name) for name in log.node_names)  # as c05n of c05n06
    assert {group.name: group.nodes for group in found.groups} == dict(racks)
    assert len(racks) > 8
    # Medians of resamples do not add up exactly; those of the same days nearly do
    assert sum(group.harvest.median for group in found.groups) == pytest.approx(found.harvest.median, rel=0.1)
    assert f"{len(racks) - 7:,} others" in str(page(found))


RECORDS: Final = {"theta_2022.swf.gz": "swf", "wagap-2013.swf.gz": "pernode", "ub-micro-slurm_acct.out": "sacct"}
# Of Summit states of nodes are public and no records of jobs; a schedule of Theta's has neither racks nor partitions
USERS: Final = set(RECORDS) - {"theta_2022.swf.gz"}  # whose records name them
OPEN: Final = {"ndstat-10sdn6-evt.tar.gz": "which jobs would wait", "theta_2022.swf.gz": "on which nodes"}


def test_each_question_is_answered_on_the_page_or_it_says_what_is_needed(replayed: ReplayedHarvest) -> None:
    log = replayed.sample.log
    (source,) = log.provenance.sources
    jobs = jobs_of([site_data(f"{RECORDS[source.name]}/{source.name}")], log) if source.name in RECORDS else None
    inputs = AssessmentInputs(
        name="log",
        command="",
        prices=PRICES,
        groups=NodeGroups.of(log),
        start_cost_s=30.0,
        handback_delay_s=30.0,
        jobs=jobs,
    )
    same = EstimatedFigure(median=1.0)
    rows = Alternatives(
        what_ifs=(
            WhatIfRow(what="tasks", label="8", option="", value=8.0, assumed=True, harvest=same, change=None),
            WhatIfRow(what="costs", label="x 10", option="", value=10.0, assumed=False, harvest=same, change=same),
        ),
        mixes=(MixRow(models=("one",), harvest=same, share=same, scaling=1.0, work=same),),
    )
    found = page(assess(replayed, FREE, inputs, rows))
    text = str(found)
    for words in (
        "Harvest a week",
        "Value a week",
        "Extra energy a week",
        "Extra waits",
        "costs x 10: 5 min a start",
        "which tasks do the most",
    ):
        assert words in text
    wanted = [OPEN[source.name]] if source.name in OPEN else []
    assert [words for words in OPEN.values() if f"Not answered here: {words}" in text] == wanted
    assert text.count("Not answered here") == len(wanted)
    assert ("jobs that start later, at most" in text) == (source.name in RECORDS)
    assert ("on average over all, if a node takes 30 s to be free" in text) == (source.name in RECORDS)
    assert ("most affected: user" in text) == (source.name in USERS)
    assert any(words in text for words in ("By partition", "By names of nodes")) == (source.name != "theta_2022.swf.gz")
    alone = re.sub("</?code>", "", str(page(assess(replayed, FREE, AssessmentInputs(name="log", command="")))))
    for option in ("--node-hour-price", "--kinds FILE", "--handback-delay 30s", "leave out --quick"):
        assert option in alone


def test_what_is_lost_and_what_counts_are_those_of_the_replay() -> None:
    settings = ReplaySettings(max_tasks=2)
    done = _replayed(sample_log(), settings)
    found = assess(done, settings, AssessmentInputs(name="log", command=""))
    (curve,) = done.curves
    summary = curve.result.summary()
    assert done.by_block(HarvestCurve.harvest_node_h).sum() == pytest.approx(harvest_node_h(summary))
    causes = {cause.cause for cause in found.causes}
    assert {"preemption", "start_up", "rescaling", "task_cap"} <= causes
    assert found.harvest.median < found.used.median < found.idle.median


@pytest.mark.parametrize("name", ["summit", "wagap", "theta", "ub-micro"])
def test_an_assumption_comes_to_what_its_own_replay_does(name: str, tmp_path: Path) -> None:
    log, settings = site_log(name), ReplaySettings(max_tasks=8)
    done = _replayed(log, settings)
    files = InputFiles.of(done.sample, tmp_path / "log.npz", None, settings, tmp_path)

    def run(table: str, passes: Sequence[SweepPass]) -> dict[str, PassOutcome] | None:
        if table != "what if":
            return None
        chosen = [job for job in passes if job.words == "--cost-factor 10"]
        done = {job.id: work(job, lambda: log, lambda: list(files.tasks), lambda _: True) for job in chosen}
        return {job.id: done[chosen[0].id] for job in passes}  # the others are not looked at

    others = replay_alternatives(done, settings, {}, files, run, every=True)
    (row,) = (row for row in others.what_ifs if row.option == "--cost-factor 10")
    dear = _replayed(log, replace_struct(settings, cost_factor=10.0))
    own, other = (each.by_block(HarvestCurve.harvest_node_h).tolist() for each in (done, dear))
    _same(row.change, tuple(ratio - 1.0 for ratio in _bootstrap(other, own, 1.0)))


def test_a_part_that_is_replayed_is_applied_to_all_idle_node_time() -> None:
    log = sample_log()
    events = len(log) // 2
    done = _replayed(log, FREE, events)
    sample = done.sample
    assert 1 <= len(sample.places) < len(sample.blocks)
    found = assess(done, FREE, AssessmentInputs(name="log", command=""))
    shares = done.by_block(HarvestCurve.harvest_node_h) / sample.idle_by_block[sample.places]
    assert found.harvest.median == pytest.approx(found.idle.median * shares.mean(), rel=0.05)
    assert found.idle.median == pytest.approx(log.idle_node_s / log.span_s * 168.0, rel=0.1)
    assert any("drawn at random" in text for text in found.assumptions)


def test_the_same_inputs_give_the_same_figures() -> None:
    log = sample_log().select(window=(0.0, 40_000.0))
    first, second = (
        assess(_replayed(log, FREE), FREE, AssessmentInputs(name="log", command=command)).to_dict()
        for command in ("one", "two")
    )
    assert first["figures_sha256"] == second["figures_sha256"]
    assert first["harvest"] == second["harvest"]


def test_figures_of_a_log_of_gpus_are_in_gpus() -> None:
    log = sample_log().select(window=(0.0, 40_000.0), nodes=slice(0, 16))
    log = replace(log, provenance=replace_struct(log.provenance, unit="gpu"))
    found = assess(_replayed(log, FREE), FREE, AssessmentInputs(name="log", command="bftrain assess --node-watts"))
    made = page(found)
    assert "GPU-hours a week can be harvested" in made.lead
    assert "16 GPUs observed" in made.subtitle
    assert "bftrain assess --node-watts" in str(made.sections[-1].parts)


def test_prices_that_contradict_are_refused() -> None:
    with pytest.raises(ValueError, match="busy_watts: is less than idle_watts"):
        NodePrices(idle_watts=100.0, busy_watts=50.0)
