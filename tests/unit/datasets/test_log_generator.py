"""Generated logs look like the machine that BFTrainer (arXiv:2106.12091) measured; the figures below are Summit's."""

from __future__ import annotations

import tracemalloc
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from bftrain import BadValue, EventLog, generate_log, sample_log
from bftrain_datasets.log.log_generator import SAMPLE_START_S
from bftrain_datasets.log.measures import (
    departures,
    fragments,
    in_large_departures,
    leave_chances,
    leaving_together,
    summarise,
    weighted_percentiles,
)


@pytest.fixture(scope="module")
def summit_like() -> EventLog:
    return generate_log(4734, 15, seed=0)


def test_idle_share_is_summits_within_two_per_cent(summit_like: EventLog) -> None:
    assert summit_like.idle_share == pytest.approx(0.0827, rel=0.02)


@pytest.mark.parametrize(
    ("percentile", "seconds", "tolerance"),
    [
        (10, 91, 0.05),
        (25, 162, 0.05),
        (50, 475, 0.05),
        (75, 1397, 0.06),
        (90, 3269, 0.06),
        (95, 4723, 0.1),
        (99, 9246, 0.15),
    ],
)
def test_fragment_percentiles_are_summits(
    summit_like: EventLog, percentile: int, seconds: float, tolerance: float
) -> None:
    assert np.percentile(fragments(summit_like).length_s, percentile) == pytest.approx(seconds, rel=tolerance)


def test_fragments_are_as_many_and_as_long_as_summits(summit_like: EventLog) -> None:
    pieces = fragments(summit_like)
    assert pieces.length_s.size / (4734 * 15) == pytest.approx(423_502 / (4734 * 14.92), rel=0.05)
    assert pieces.length_s.mean() == pytest.approx(1192, rel=0.05)
    shares = summarise(summit_like).fragments.shares
    assert [share.fragments for share in shares] == pytest.approx([0.15, 0.56, 0.91], abs=0.02)
    assert [share.idle_time for share in shares] == pytest.approx([0.011, 0.109, 0.56], abs=0.04)


def test_most_nodes_leave_with_those_they_came_with_and_in_large_departures(summit_like: EventLog) -> None:
    assert leaving_together(fragments(summit_like)) == pytest.approx(0.83, abs=0.05)
    assert in_large_departures(departures(summit_like), least=64) == pytest.approx(0.82, abs=0.05)


def test_the_chance_of_leaving_falls_with_age(summit_like: EventLog) -> None:
    pieces = fragments(summit_like)
    *chances, last = leave_chances(pieces, np.sort(pieces.length_s), (0.0, 600.0, 1800.0, 3600.0, 7200.0))
    assert chances[0] == pytest.approx(0.40, abs=0.03)
    assert chances == pytest.approx([0.402, 0.215, 0.147, 0.142], abs=0.05)
    assert chances[0] > 2 * chances[2]
    assert last < 0.3  # Summit: 0.05; few nodes are left by then, so single groups decide


def test_the_pool_is_as_spread_out_as_summits(summit_like: EventLog) -> None:
    ours = weighted_percentiles(summit_like.pool_sizes(), summit_like.durations_s, (5, 25, 50, 75, 90, 95, 99))
    summit = {5: 1, 25: 13, 50: 81, 75: 502, 90: 1161, 95: 1732, 99: 3469}
    assert ours[5] <= 3
    for percentile in (25, 50):
        assert summit[percentile] / 2 <= ours[percentile] <= 2 * summit[percentile]
    for percentile in (75, 90, 95, 99):
        assert ours[percentile] == pytest.approx(summit[percentile], rel=0.4)


def test_events_come_about_as_often_as_on_summit(summit_like: EventLog) -> None:
    gaps = np.diff(summit_like.times)
    assert gaps.mean() == pytest.approx(54, rel=0.15)
    assert np.median(gaps) == pytest.approx(30, rel=0.15)
    assert np.percentile(gaps, 90) == pytest.approx(111, rel=0.15)


def test_the_seed_decides_everything() -> None:
    assert generate_log(100, 1, seed=5) == generate_log(100, 1, seed=5)
    assert generate_log(100, 1, seed=5).sha256 != generate_log(100, 1, seed=6).sha256
    later = generate_log(100, 1, seed=5, start_s=1000.0)
    assert later.times.tolist() == (generate_log(100, 1, seed=5).times + 1000).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_other_idle_shares_and_sizes_are_reached_too(seed: int) -> None:
    assert generate_log(512, 5, seed, idle_share=0.2).idle_share == pytest.approx(0.2, rel=0.05)
    assert generate_log(1000, 3, seed).idle_share == pytest.approx(0.0827, rel=0.05)


@pytest.mark.parametrize(("nodes", "days"), [(1, 0.5), (2, 0.01), (10, 3.0)])
def test_tiny_machines_and_short_logs_work(nodes: int, days: float) -> None:
    log = generate_log(nodes, days, seed=0)
    assert len(log.node_names) == nodes
    assert log.span_s == round(days * 86_400)


def test_the_sample_is_small_bursty_and_summit_like() -> None:
    log = sample_log()
    assert len(log.node_names) == 256
    assert 1500 <= len(log) <= 3000
    assert log.idle_share == pytest.approx(0.0827, rel=0.02)
    pool = weighted_percentiles(log.pool_sizes(), log.durations_s, (25, 50, 90))
    assert pool[90] > 10 * pool[50] > 10 * pool[25]
    assert log.pool_sizes().max() > 200
    assert log.sha256 == generate_log(256, 2.5, 54, start_s=SAMPLE_START_S).sha256  # else: save it as sample_nodes.npz


def test_the_sample_of_gpus_is_of_a_cluster_whose_hosts_are_shared() -> None:
    spec = spec_from_file_location("sample_gpus", Path(__file__).parents[3] / "docs" / "scripts" / "sample_gpus.py")
    assert spec
    assert spec.loader
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    log = sample_log("gpu")
    assert log.sha256 == script.sample_gpus().sha256
    assert (log.unit, len(log.node_names), len({name.split("/")[0] for name in log.node_names})) == ("gpu", 256, 32)
    assert 0.05 < log.idle_share < 0.2
    with pytest.raises(BadValue, match=r"sample_log\.unit: must be one of node, gpu, not 'core'"):
        sample_log("core")


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"nodes": 0}, "nodes"),
        ({"days": 0}, "days"),
        ({"days": 1e9}, "days"),
        ({"seed": -1}, "seed"),
        ({"idle_share": 0.9}, "idle_share"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, float], where: str) -> None:
    with pytest.raises(BadValue) as caught:
        generate_log(**({"nodes": 8, "days": 1, "seed": 0} | changed))  # type: ignore[arg-type]
    assert caught.value.where == f"generate_log.{where}"


def test_the_smallest_idle_share_is_a_log_too() -> None:
    assert generate_log(4, 0.1, 0, idle_share=5e-324).idle_share < 0.01


def test_memory_does_not_grow_with_groups_times_nodes() -> None:
    tracemalloc.start()
    log = generate_log(20_000, 0.25, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * log.nodes.size, "bytes a change: columns, sorted copies, names"
