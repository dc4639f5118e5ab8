"""Speeds of tasks whose GPUs lie on several hosts: by hand, and against a second computation from who held what."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as changed

import bftrain
from bftrain import EventLog, NodeState, ReplaySettings, SpeedCurve, SpreadSpeed, SpreadSpeeds, TaskSpec
from tests.helpers.transitions import log_from_transitions
from tests.unit.replay.cases import ReplayOutcome, log_of, task

ONE_EACH = ("a/gpu0", "b/gpu0", "c/gpu0", "d/gpu0")


def spread(*speeds: SpreadSpeed | float, per_place: int | None = 4) -> SpreadSpeeds:
    found = tuple(SpreadSpeed(share=each) if isinstance(each, float) else each for each in speeds)
    return SpreadSpeeds(speeds=found, per_place=per_place)


def gpus(log: EventLog) -> EventLog:
    return replace(log, provenance=changed(log.provenance, unit="gpu"))


def replayed(log: EventLog, *tasks: TaskSpec, **settings: object) -> ReplayOutcome:
    return bftrain.replay(gpus(log), tasks, ReplaySettings(**settings))  # type: ignore[arg-type]  # the fields' own types


def test_a_gang_on_two_hosts_does_what_it_does_there() -> None:
    log = log_of((0.0, ONE_EACH, ""), end_s=100.0)
    gang = task(rate=(10.0, 18.0), min_nodes=2, spread=spread(SpreadSpeed(curve=SpeedCurve(nodes=(2,), rate=(6.0,)))))
    done = replayed(log, gang)
    assert done.result.harvested_samples == 600.0
    assert done.result.lost_samples["spread"] == 1200.0
    assert done.result.lost_node_s["spread"] == pytest.approx(200.0 * 2 / 3)
    summary = done.result.summary()
    assert summary.lost["spread"].samples == 1200.0
    assert summary.efficiency == pytest.approx(1 / 3)  # of a dedicated pool
    assert done.result.warnings == ()


def test_its_end_and_its_start_count_at_the_speed_that_it_has() -> None:
    log = log_of((0.0, ONE_EACH, ""), end_s=100.0)
    (record,) = replayed(log, task(min_nodes=2, spread=spread(0.5), work_samples=360.0, start_cost_s=10.0)).result.tasks
    assert record.finish_s == 50.0  # nine a second, after ten seconds
    assert record.lost_start_up_samples == 90.0


def test_a_task_does_not_grow_onto_a_host_that_slows_it_down() -> None:
    log = log_of((0.0, ("a/gpu0", "a/gpu1", "a/gpu2", "b/gpu0"), ""), end_s=100.0)
    rate = (10.0, 19.0, 27.0, 34.0)
    assert replayed(log, task(rate=rate, spread=spread(0.5))).result.harvested_samples == 2700.0
    assert replayed(log, task(rate=rate, spread=spread(0.9))).result.harvested_samples == pytest.approx(3060.0)
    assert replayed(log, task(rate=rate)).result.harvested_samples == 3400.0


def test_growing_uses_the_hosts_that_it_holds_first() -> None:
    """It holds one of a; then one of a and two of b join: three are a's two and one of b, which is slower than two."""
    joined = ((0.0, ("a/gpu0",), ""), (10.0, ("a/gpu1", "b/gpu0", "b/gpu1"), ""))
    done = replayed(log_of(*joined, end_s=20.0), task(rate=(10.0, 19.0, 27.0), spread=spread(0.4)))
    assert done.result.harvested_samples == 100.0 + 190.0


def test_more_than_a_host_holds_are_not_spread_on_the_fewest_hosts() -> None:
    names = [f"{host}/gpu{gpu}" for host in "ab" for gpu in range(2)]
    log = log_of((0.0, names, ""), (50.0, "", ["b/gpu1"]), end_s=100.0)
    gang = task(rate=(10.0, 19.0, 27.0, 34.0), min_nodes=3, spread=spread(0.5, per_place=None))
    assert replayed(log, gang).result.harvested_samples == 50.0 * (34.0 + 27.0)
    alone = changed(gang, spread=spread(0.5, per_place=4))  # measured on hosts of four
    assert replayed(log, alone).result.harvested_samples == 25.0 * (34.0 + 27.0)


@pytest.mark.parametrize(
    ("places", "expected"), [(1, 100.0), (2, 100.0), (3, 85.0), (4, 70.0), (5, 60.0), (6, 50.0), (9, 50.0)]
)
def test_speeds_between_numbers_of_places_are_linear(places: int, expected: float) -> None:
    known = (SpreadSpeed(share=0.9), SpreadSpeed(places=4, share=0.7))
    by_size = SpreadSpeed(places=6, curve=SpeedCurve(nodes=(4, 12), rate=(30.0, 70.0)))
    found = SpreadSpeeds(per_place=4, speeds=(*known, by_size))
    assert found.speed(8, places, 100.0) == pytest.approx(expected)


def test_speeds_of_a_kind_go_before_those_of_all() -> None:
    found = spread(0.9, SpreadSpeed(kind="k80", share=0.5))
    assert [found.speed(2, 2, 10.0, kind) for kind in ("", "v100", "k80")] == [9.0, 9.0, 5.0]


def test_a_speed_of_nothing_is_a_task_that_waits_on_its_nodes() -> None:
    done = replayed(log_of((0.0, ONE_EACH, ""), end_s=10.0), task(rate=(0.0, 18.0), spread=spread(0.0)))
    assert (done.result.harvested_samples, done.result.used_node_s) == (0.0, 0.0)


def test_spread_tasks_on_whole_nodes_are_warned_of_and_figures_stay() -> None:
    log = log_of((0.0, "abcd", ""), end_s=100.0)
    plain = bftrain.replay(log, [task()], ReplaySettings()).result
    given = bftrain.replay(log, [task(spread=spread(0.5))], ReplaySettings()).result
    assert given.summary() == plain.summary()
    assert "spread" not in given.summary().lost
    assert "task 't' has speeds by places" in given.warnings[0]


def test_what_was_lost_is_shown_when_it_was_lost() -> None:
    log = log_of((0.0, ONE_EACH[:1], ""), (7200.0, ONE_EACH[1:2], ""), end_s=4 * 3600.0)
    result = replayed(log, task(min_nodes=2, spread=spread(0.5))).result
    found = result.losses.between("spread", np.array([0.0, 7200.0, 10800.0, 14400.0]))
    assert found.tolist() == [0.0, 3600.0, 3600.0]


@pytest.mark.parametrize("seed", range(6))
def test_harvest_equals_a_sum_over_who_held_what(seed: int) -> None:
    """Without costs and ends of work, each second of a task is worth its size's speed on the hosts that it holds."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    names = [f"h{host}/gpu{gpu}" for host in range(5) for gpu in range(4)]
    moved = [(0.0, name, NodeState.IDLE) for name in names[::2]]
    for _ in range(60):
        state = draw.choice((NodeState.IDLE, NodeState.IDLE, NodeState.BUSY))
        moved.append((float(draw.randrange(1, 3000)), draw.choice(names), state))
    log = log_from_transitions(moved, node_names=names, begin_s=0.0, end_s=3000.0)
    rate = (10.0, 19.0, 27.0, 34.0, 40.0, 45.0, 49.0, 52.0)
    far = {2: 0.8, 3: 0.6}
    speeds = spread(SpreadSpeed(share=0.8), SpreadSpeed(places=3, share=0.6))
    tasks = [task(f"t{number}", rate=rate, min_nodes=1 + 3 * number, spread=speeds) for number in range(3)]
    result = replayed(log, *tasks).result
    assert result.allocations is not None
    table = result.allocations.rows().table()
    held = defaultdict[str, list[tuple[float, float, str]]](list)
    for of, node, from_s, to_s in zip(table.task, table.node, table.from_s, table.to_s, strict=True):
        held[table.tasks[of]].append((float(from_s), float(to_s), table.nodes[node].partition("/")[0]))
    done = lost = 0.0
    for rows in held.values():
        for begin, end in pairwise(sorted({time for row in rows for time in row[:2]})):
            hosts = [host for from_s, to_s, host in rows if from_s <= begin and end <= to_s]
            if hosts:
                spread_out = len(set(hosts)) > -(-len(hosts) // 4)
                part = far[min(len(set(hosts)), 3)] if spread_out else 1.0
                if spread_out and len(hosts) > 4 and len(set(hosts)) > 2:  # two hosts are the fewest: between 1 and 3
                    part = 0.6
                done += part * rate[len(hosts) - 1] * (end - begin)
                lost += (1.0 - part) * rate[len(hosts) - 1] * (end - begin)
    assert result.harvested_samples == pytest.approx(done)
    assert result.lost_samples.get("spread", 0.0) == pytest.approx(lost)
    assert lost > 0.0


def test_the_terminal_and_the_page_name_what_was_lost(tmp_path: Path) -> None:
    done = replayed(log_of((0.0, ONE_EACH, ""), end_s=100.0), task(min_nodes=2, spread=spread(0.5)))
    done.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "tasks on more hosts or racks than needed, where they are slower" in page


RACKS = {"r1": "n[1-2]", "r2": "n[3-4]"}
TWO_RACKS = log_of((0.0, ("n1", "n2", "n3"), ""), (50.0, ("n4",), ("n2",)), end_s=100.0)


@pytest.mark.parametrize(
    ("placement", "expected"), [("auto", 50 * 20.0 + 50 * 12.0), ("consolidated", 1600.0), ("scattered", 100 * 12.0)]
)
def test_whole_nodes_lie_in_racks(placement: str, expected: float) -> None:
    """Two nodes of one rack, of which one leaves; the third and fourth are in another."""
    gang = task(rate=(0.0, 20.0), min_nodes=2, spread=spread(0.6, per_place=None))
    settings = ReplaySettings(racks=RACKS, placement=placement)
    result = bftrain.replay(TWO_RACKS, [changed(gang, min_nodes=1, curve=gang.curve)], settings).result
    assert result.harvested_samples == pytest.approx(expected)
    assert result.warnings == ()


def test_nodes_in_no_rack_are_warned_of() -> None:
    done = bftrain.replay(TWO_RACKS, [task()], ReplaySettings(racks={"r1": "n[1-2]"}))
    assert "nodes without a rack, which count as one rack: 2, such as 'n3'" in done.result.warnings[0]
