"""Pilots under a scheduler in memory: kept in stock, reported, found again, given back, and their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from bftrain import NotAvailable
from bftrain.live.schedulers import policy
from tests.helpers.live_inside import World, decided, in_a_loop, live_inside, submit, until
from tests.helpers.pilot_stage import PilotStage, ToyScheduler
from tests.helpers.schedulers import ALIVE, AgentOrder, Pilot, PilotLimits, PilotState, Run, Trouble, blocked
from tests.helpers.timeouts import set_timeouts


@in_a_loop
async def test_idle_nodes_are_filled_and_reported_and_so_is_their_end(tmp_path: Path) -> None:
    async with PilotStage(tmp_path, "n1", "n2", "n3") as stage:
        await stage.until(lambda: set(stage.idle_nodes()) == {"n1", "n2", "n3"}, "all nodes are ours")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) >= 2, "and a stock waits for more")
        assert await stage.scheduler.look() == {"n1", "n2", "n3"}
        stage.toy.take("n2")
        await stage.until(lambda: set(stage.idle_nodes()) == {"n1", "n3"}, "n2 was taken")
        stage.toy.nodes.append("n2")
        await stage.until(lambda: "n2" in stage.idle_nodes(), "n2 came back")
    assert (tmp_path / "pilots").stat().st_mode & 0o777 == 0o700


@in_a_loop
async def test_what_an_earlier_daemon_left_is_used_and_not_doubled(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", "n2", "n3")
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 3, "all are ours")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) >= 2, "the stock is there")
    jobs = dict(stage.toy.jobs)
    stock = stage.toy.count(PilotState.WAITING)
    assert stage.toy.count(PilotState.RUNNING) == 3, "agents go on while the daemon is away"
    later = PilotStage(tmp_path, toy=stage.toy)
    async with later:
        await later.until(lambda: len(later.idle_nodes()) == 3, "they are found again")
        asked = stage.toy.asked
        await later.until(lambda: stage.toy.asked > asked + 20, "some looks later")
        assert stage.toy.jobs == jobs
    later.begin(AgentOrder(argv=("agent", "--manager", "elsewhere")))
    await later.until(lambda: stage.toy.count(PilotState.TAKEN) == stock, "who waits with an old order is replaced")
    await later.until(lambda: stage.toy.count(PilotState.WAITING) == 2, "by the new one")
    assert stage.toy.count(PilotState.RUNNING) == 3
    await later.end()


@in_a_loop
async def test_pilots_of_another_state_are_left_alone(tmp_path: Path) -> None:
    async with PilotStage(tmp_path / "a", "n1", "n2", owner="a") as first:
        await first.until(lambda: len(first.idle_nodes()) == 2, "both nodes are the first one's")
        jobs = {id_ for id_, job in first.toy.jobs.items() if job.state in ALIVE}
        async with PilotStage(tmp_path / "b", toy=first.toy, owner="b") as second:
            await second.until(lambda: len(first.toy.jobs) > len(jobs), "the second one has pilots of its own")
            await second.scheduler.give_back({"n1"})
            await second.scheduler.leave()
            assert await second.scheduler.look() == set()
        assert {id_ for id_, job in first.toy.jobs.items() if job.state in ALIVE} >= jobs
        assert second.remarks().startswith("jobs named bftrain-t are pilots of a live run with another state")


@in_a_loop
async def test_want_and_drained_nodes(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", "n2", "n3", "n4")
    stage.scheduler.want(2)
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 2, "no more than could be used")
        assert stage.toy.count(PilotState.WAITING) == 0
        stage.scheduler.want(4, without={"n1", "unheard-of"})
        await stage.scheduler.give_back({"n1"})
        await stage.until(lambda: set(stage.idle_nodes()) == {"n2", "n3", "n4"}, "all but the drained one")
        assert {order.avoid for order in stage.toy.orders} <= {(), ("n1",)}
        stage.scheduler.want(4)
        await stage.until(lambda: len(stage.idle_nodes()) == 4, "it is back")


@in_a_loop
async def test_until_when_a_node_is_ours(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", "n2", plan_poll_s=0.01)
    stage.toy.planned = {"n1": 5000.0}
    async with stage:
        await stage.until(lambda: stage.idle_nodes() == {"n1": 5000.0, "n2": None}, "n1 is planned for others")
        count = len(stage.news)
        stage.toy.planned = {"n1": 5010.0}
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 10, "some looks later")
        assert len(stage.news) == count, "a few seconds are no news"
        stage.toy.planned = {"n1": 9000.0, "n2": 100.0}
        await stage.until(lambda: stage.idle_nodes() == {"n1": 9000.0, "n2": 100.0}, "plans changed")


@in_a_loop
async def test_a_scheduler_that_is_away_changes_nothing(tmp_path: Path) -> None:
    async with PilotStage(tmp_path, "n1", "n2") as stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 2, "both are ours")
        jobs = dict(stage.toy.jobs)
        stage.toy.away = True
        await stage.until(lambda: "not reachable" in stage.remarks(), "operators are warned")
        assert await stage.scheduler.look() is None
        await stage.scheduler.give_back({"n1"})
        await asyncio.sleep(0.1)
        assert stage.toy.jobs == jobs
        assert len(stage.idle_nodes()) == 2
        assert stage.remarks().count("does not answer") == 1, "once"
        stage.toy.away = False
        stage.toy.take("n1")
        await stage.until(lambda: set(stage.idle_nodes()) == {"n2"}, "it goes on")
        assert stage.remarks().count("answers again") == 1, "and operators know that it is over"


@in_a_loop
async def test_pilots_that_fail_are_reported_and_not_repeated_without_end(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", "n2")
    async with stage:
        await stage.fail_all_pilots()
    assert len(stage.toy.jobs) < 12


@pytest.mark.parametrize("how", [PilotState.LEFT, PilotState.FAILED])
@in_a_loop
async def test_pilots_that_leave_when_they_are_asked_to_have_not_failed(tmp_path: Path, how: PilotState) -> None:
    async with PilotStage(tmp_path, "n1") as stage:
        for _ in range(10):  # as often as a main job wants the node for a moment
            await stage.until(lambda: "n1" in stage.idle_nodes(), "it is ours")
            stage.scheduler.noticed("n1")
            stage.toy.take("n1", why=how)
            stage.scheduler.hint()
            await stage.until(lambda: "n1" not in stage.idle_nodes(), "it was taken")
            stage.toy.nodes.append("n1")
        assert stage.remarks() == ""
        await stage.until(lambda: "n1" in stage.idle_nodes(), "it is ours again")


@in_a_loop
async def test_a_pilot_that_fails_after_the_one_with_a_notice_has_failed(tmp_path: Path) -> None:
    async with PilotStage(tmp_path, "n1") as stage:
        await stage.until(lambda: "n1" in stage.idle_nodes(), "it is ours")
        stage.scheduler.noticed("n1")
        stage.toy.take("n1", why=PilotState.LEFT)
        stage.toy.nodes.append("n1")
        await stage.fail_all_pilots()
        assert len(stage.toy.jobs) < 12


@in_a_loop
async def test_leaving_cancels_all_and_submits_no_more(tmp_path: Path) -> None:
    async with PilotStage(tmp_path, "n1", "n2") as stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 2, "both are ours")
        await stage.scheduler.leave()
        assert stage.toy.count(*ALIVE) == 0
        await stage.until(lambda: stage.idle_nodes() == {}, "that is reported too")
        asked = stage.toy.asked
        await stage.until(lambda: stage.toy.asked > asked + 10, "some looks later")
        assert stage.toy.count(*ALIVE) == 0


@in_a_loop
async def test_leaving_says_if_some_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, pilots_gone_s=0.05)
    stage = PilotStage(tmp_path, "n1")
    stage.toy.away = True
    with pytest.raises(NotAvailable, match="cancel the jobs named bftrain-t"):
        await stage.scheduler.leave()


@in_a_loop
async def test_a_scheduler_that_would_not_take_pilots_away_ends_it(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1")

    async def refuse(_: Run) -> PilotLimits:
        raise NotAvailable("never preempted")

    stage.toy.limits = refuse  # type: ignore[method-assign]  # what a wrong partition says
    stage.begin()
    assert stage.running is not None
    with pytest.raises(NotAvailable, match="never preempted"):
        await stage.running
    assert stage.toy.jobs == {}


@in_a_loop
async def test_pilots_give_way_under_a_scheduler_that_does_not_preempt_them(tmp_path: Path) -> None:
    waits = [0]

    async def waiting_jobs(_: Run) -> list[int]:
        return [size for size in waits if size]

    stage = PilotStage(tmp_path, "n1", "n2", "n3")
    stage.toy.waiting_jobs = waiting_jobs  # type: ignore[attr-defined]  # of a scheduler that preempts nothing
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 3, "all are ours")
        waits[0] = 2
        await stage.until(lambda: stage.toy.count(PilotState.RUNNING) == 1, "two gave way")
        assert stage.toy.count(PilotState.WAITING) == 0, "and none waits to take their nodes"
        waits[0] = 0
        await stage.until(lambda: len(stage.idle_nodes()) == 3, "the job is done")


@in_a_loop
async def test_a_mistake_in_settings_at_a_start_ends_no_pilots_of_the_run_before(tmp_path: Path) -> None:
    stage = PilotStage(tmp_path, "n1", "n2")
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 2, "both are ours")

    async def refuse(_: Run) -> PilotLimits:
        raise NotAvailable("Slurm has no such partition")

    stage.toy.limits = refuse  # type: ignore[method-assign]  # what a wrong partition says
    with pytest.raises(NotAvailable, match="no such partition"):
        await PilotStage(tmp_path, toy=stage.toy).scheduler.check(AgentOrder(argv=("agent",)))
    assert stage.toy.count(PilotState.RUNNING) == 2, "they train on, and are found by a start that is right"


@pytest.mark.parametrize("answers", [True, False])
@in_a_loop
async def test_pilots_are_cancelled_once_they_are_in_the_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: bool,  # noqa: FBT001 - a column of the table
) -> None:
    set_timeouts(monkeypatch, limits_s=0.0)
    stage = PilotStage(tmp_path, "n1", "n2")
    stage.begin()
    await stage.until(lambda: len(stage.idle_nodes()) == 2, "both are ours")
    await stage.until(lambda: stage.toy.count(PilotState.WAITING) > 0, "and more wait")

    async def refuse(_: Run) -> PilotLimits:
        stage.toy.away = not answers
        raise NotAvailable("never preempted")

    stage.toy.limits = refuse  # type: ignore[method-assign]  # what a partition says that was changed
    assert stage.running is not None
    with pytest.raises(NotAvailable, match="never preempted"):
        await stage.running
    if answers:
        assert stage.toy.count(*ALIVE) == 0
        assert stage.idle_nodes() == {}
    else:
        assert "not cancelled yet" in stage.remarks()
        assert len(stage.idle_nodes()) == 2, "they are there as long as no answer says otherwise"


@in_a_loop
async def test_a_drained_node_is_to_be_left_and_gets_no_pilot_until_it_is_resumed(tmp_path: Path) -> None:
    drained: dict[str, str] = {}
    asked: list[Sequence[str]] = []

    async def draining(_: Run, nodes: Sequence[str]) -> Mapping[str, str]:
        asked.append(nodes)
        return {node: why for node, why in drained.items() if node in nodes}

    stage = PilotStage(tmp_path, "n1", "n2", "n3", plan_poll_s=0.01)
    stage.toy.draining = draining  # type: ignore[attr-defined]  # of a scheduler that tells
    async with stage:
        await stage.until(lambda: len(stage.idle_nodes()) == 3, "all are ours")
        drained.update(n1="draining, disk", n2="draining, disk", n9="drained, not ours")
        await stage.until(lambda: stage.scheduler.to_leave() == {"n1", "n2"}, "they are to be left")
        assert stage.remarks() == "toy drains n[1-2] (draining, disk): tasks leave, and nodes are given back"
        await stage.scheduler.give_back({"n1", "n2"})
        await stage.until(lambda: set(stage.idle_nodes()) == {"n3"}, "they are given back")
        await stage.until(lambda: stage.toy.count(PilotState.WAITING) >= 2, "the stock is there again")
        assert set(stage.idle_nodes()) == {"n3"}, "none starts there"
        drained.clear()
        await stage.until(lambda: len(stage.idle_nodes()) == 3, "they are in service again")
        assert stage.scheduler.to_leave() == set()
        assert stage.remarks().count("drains") == 1
    assert all("n9" not in nodes for nodes in asked)


@in_a_loop
async def test_tasks_shrink_off_a_drained_node_before_it_is_given_back(tmp_path: Path) -> None:
    world, drained = World(vacates=False), set[str]()
    world.to_leave = lambda: frozenset(drained)  # type: ignore[attr-defined]  # as of pilots
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 2)
        world.lend("n1", "n2")
        await decided(daemon)
        drained.add("n1")
        await until(lambda: world.orders()[-1]["action"] != "start")  # at the next tick
        order = world.orders()[-1]
        assert (order["action"], order["nodes"]) == ("shrink", ("n1",)), "it is not killed"
        assert world.asked("give_back") == []
        world.tell("a", "vacated", nodes=["n1"])
        await until(lambda: world.asked("give_back"))
        assert world.asked("give_back") == [("n1",)]


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
    monkeypatch.setattr(policy, "TROUBLE_WAITS_S", dict.fromkeys(Trouble, (0.01, 0.01)))
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


@in_a_loop
async def test_refused_commands_count_for_the_limit(tmp_path: Path) -> None:
    toy = ToyScheduler()
    toy.together, toy.most = True, 0
    async with PilotStage(tmp_path, toy=toy, pending=64, submits_per_min=4.0) as stage:
        await stage.until(lambda: len(toy.orders) >= 4, "it halves the number that is refused")
        asked = toy.asked
        await stage.until(lambda: toy.asked >= asked + 5, "it looks on")
        assert len(toy.orders) == 4
