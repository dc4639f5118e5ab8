"""Limits of pilots under a scheduler that lives in memory: how many, how long, and why none can start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bftrain.live.schedulers.pilot_backend import blocked
from tests.helpers.live_inside import in_a_loop
from tests.helpers.live_limits import set_limits
from tests.helpers.pilot_stage import PilotStage
from tests.helpers.schedulers import Pilot, PilotLimits, PilotState, Trouble


@in_a_loop
async def test_a_limit_is_found_and_used_up(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, *(f"n{number}" for number in range(20)), pending=8)
    stage.toy.most = 11
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 11, "as many as are allowed")
        sent = len(stage.toy.orders)
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 50, "many looks later")
        assert len(stage.toy.orders) == sent, "no more is asked for"
        stage.toy.take("n1")
        await stage.until(lambda: len(stage.idle_nodes()) == 11, "one went, one came")
    assert stage.remarks() == ""


LENGTHS = (86400.0, 3600.0, 600.0)


@in_a_loop
async def test_where_the_longest_are_refused_shorter_ones_are_used(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", lengths_s=LENGTHS)
    stage.toy.most_s = 3600.0
    async with stage:
        await stage.until(lambda: "n1" in stage.idle_nodes(), "a shorter one has the node")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) >= 4, "and more wait")
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 50, "many looks later")
    tried = [order.seconds for order in stage.toy.orders]
    assert tried[:3] == [86400.0, 86400.0, 3600.0], "two, one, then shorter ones"
    assert tried.count(86400.0) == 2, "it is known then"
    assert 600.0 in tried
    assert stage.remarks() == "pilots must not be longer than 3600 s: submit: too many"


@in_a_loop
async def test_where_all_lengths_are_refused_people_are_warned_once(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", lengths_s=LENGTHS, pending=1)
    stage.toy.most_s = 60.0
    async with stage:
        await stage.until(lambda: "cannot be submitted" in stage.remarks(), "operators are warned")
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 50, "many looks later")
    assert [order.seconds for order in stage.toy.orders] == list(LENGTHS), "each was tried, and none again soon"
    assert stage.remarks().count("cannot be submitted") == 1
    assert stage.toy.jobs == {}


@in_a_loop
async def test_a_limit_of_the_number_is_not_taken_for_one_of_the_length(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", lengths_s=LENGTHS, pending=3)
    stage.toy.starts = False
    stage.toy.most = 2
    async with stage:
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) == 2, "two are allowed")
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 50, "many looks later")
    assert len({job.mark for job in stage.toy.jobs.values()}) == 1
    assert stage.toy.count(PilotState.TAKEN) == 0, "none was cancelled for shorter ones"
    assert stage.remarks() == "", "some are there"


@in_a_loop
async def test_no_pilot_is_longer_than_the_partition_allows(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, lengths_s=(86400.0, 7200.0, 600.0))
    stage.toy.allowed = PilotLimits(longest_s=3600.0, remarks=("slow",))
    async with stage:
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) == 4, "two of each length")
    assert {(order.rank, order.seconds) for order in stage.toy.orders} == {(0, 3600.0), (1, 600.0)}
    assert stage.remarks() == "slow"


@pytest.mark.parametrize("why", ["PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit"])
@in_a_loop
async def test_a_limit_of_time_that_is_lowered_is_read_while_others_run_and_wait(tmp_path: Path, why: str) -> None:
    async with PilotStage(tmp_path, "n1", lengths_s=(86_400.0, 600.0)) as stage:
        await stage.until(lambda: stage.toy.count(PilotState.RUNNING) == 1, "one runs")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) == 4, "two of each length wait")
        stage.toy.allowed = PilotLimits(longest_s=3600.0)
        long = {order.mark for order in stage.toy.orders if order.seconds > 3600}
        for id_, job in stage.toy.jobs.items():
            if job.state is PilotState.WAITING and job.mark in long:
                stage.toy.jobs[id_] = msgspec.structs.replace(job, why=why)
        await stage.until(lambda: {one.seconds for one in stage.toy.orders} >= {3600.0}, "shorter ones are submitted")
        waiting = [one.mark for one in stage.toy.jobs.values() if one.state is PilotState.WAITING]
        await stage.until(lambda: long.isdisjoint(waiting), "in place of those that are too long")
        assert stage.toy.count(PilotState.RUNNING) == 1, "the one that runs may go on"


@in_a_loop
async def test_limits_are_read_again_after_a_submission_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Slurm refuses jobs that are longer than the partition allows (EnforcePartLimits)."""
    set_limits(monkeypatch, submission_waits_s=dict.fromkeys(Trouble, (0.01, 0.01)))
    stage = PilotStage(tmp_path, "n1", lengths_s=(86_400.0,))
    async with stage:
        await stage.until(lambda: stage.toy.count(PilotState.RUNNING) == 1, "one runs")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) == 2, "the stock is there")
        stage.toy.allowed, stage.toy.refused_s = PilotLimits(longest_s=3600.0), 3600.0
        stage.toy.take("n1")
        stage.toy.nodes.append("n1")  # a waiting one starts there, and another one is to wait
        await stage.until(lambda: stage.toy.orders[-1].seconds == 3600.0, "shorter ones are submitted")


@pytest.mark.parametrize(
    ("whys", "reason"),
    [
        (
            ["QOSMaxJobsPerUserLimit", "AssocGrpNodeLimit"],
            "no pilot can start: AssocGrpNodeLimit, QOSMaxJobsPerUserLimit",
        ),
        (["PartitionDown"], "no pilot can start: PartitionDown"),
        (["QOSMaxJobsPerUserLimit", "Priority"], ""),
        (["Resources"], ""),
        (["Partition has no free nodes"], ""),
        ([], ""),
    ],
)
def test_the_reasons_of_pilots_that_cannot_start_are_named(whys: list[str], reason: str) -> None:
    waits = [Pilot(id=str(number), state=PilotState.WAITING, why=why) for number, why in enumerate(whys)]
    assert blocked(waits) == reason
    assert blocked([*waits, Pilot(id="r", state=PilotState.RUNNING, node="n1")]) == "", "one has started"
