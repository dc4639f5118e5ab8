"""The stock of pilots: what it submits and cancels after one look or a few."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bftrain.live.schedulers.policy import MOST_WAITING, PilotMoves, PilotPolicy, PilotPolicySettings
from tests.helpers.schedulers import Pilot, PilotLimits, PilotState, Trouble

LONG, SHORT = "long", "short"
BOTH = (LONG, SHORT)


def pilot(id_: str, state: PilotState = PilotState.WAITING, **more: Any) -> Pilot:  # noqa: ANN401 - fields of a pilot
    node = f"n{id_}" if state is not PilotState.WAITING else ""
    return Pilot(**{"id": id_, "state": state, "mark": LONG, "node": node, **more})


def waiting(count: int, mark: str = LONG) -> list[Pilot]:
    return [pilot(f"{mark}{number}", mark=mark) for number in range(count)]


def running(count: int, *, start_s: float = 0.0) -> list[Pilot]:
    return [pilot(f"r{number:03}", PilotState.RUNNING, start_s=start_s) for number in range(count)]


def look(
    stock: PilotPolicy, pilots: list[Pilot], at: float = 0.0, marks: tuple[str, ...] = BOTH, idle: int | None = None
) -> PilotMoves:
    return stock.moves(at, 1000 + at, pilots, marks=marks, idle=idle)


def test_each_length_has_its_stock() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=3))
    assert look(stock, []) == PilotMoves(submit=(3, 3))
    assert look(stock, waiting(2) + waiting(3, SHORT)).submit == (1, 0)
    assert look(stock, waiting(3) + waiting(3, SHORT)) == PilotMoves(submit=(0, 0))


def test_it_doubles_while_all_start_and_shrinks_while_none_does() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4, submits_per_min=100_000))
    submitted = [look(stock, [], marks=(LONG,)).submit[0]]
    held: list[Pilot] = []
    for step in range(1, 8):
        waits = [pilot(f"{step}-{number}") for number in range(submitted[-1])]
        look(stock, held + waits, step, marks=(LONG,))
        held += [pilot(one.id, PilotState.RUNNING) for one in waits]
        submitted += look(stock, held, step + 0.5, marks=(LONG,)).submit
    assert submitted == [4, 8, 16, 32, 64, 64, 64, 64]
    assert max(submitted) == MOST_WAITING

    record = held + waiting(64)
    counts = []
    for step in range(8, 8 + 15 * 6, 15):
        moves = look(stock, record, step, marks=(LONG,))
        assert moves.submit == (0,)
        record = [one for one in record if one.id not in moves.cancel]
        counts.append(len(record) - len(held))
    assert counts == [64, 64, 32, 16, 8, 8]


def test_no_more_than_tasks_could_use_or_the_site_allows() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4, max_nodes=6))
    assert look(stock, running(5)).submit == (1, 0)
    assert look(stock, running(6)).submit == (0, 0)
    assert len(look(stock, running(8)).cancel) == 2, "the site's word holds for those that run too"
    stock.want(3)
    assert sum(look(stock, running(2)).submit) == 1
    assert look(stock, running(4)).cancel == (), "who runs and is not wanted is given back by others"
    assert set(look(stock, [*running(3), *waiting(2)]).cancel) == {"long0", "long1"}
    stock.want(100)
    stock.limit(PilotLimits(running=4, submitted=5))
    assert look(stock, running(4)).submit == (0, 0)
    stock.limit(PilotLimits(submitted=5))
    assert sum(look(stock, running(3)).submit) == 2


def test_pilots_of_another_order_are_replaced_once_they_are_gone() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=2))
    stock.want(2)
    old = [pilot("7", mark="yesterday"), pilot("8", mark="yesterday")]
    assert look(stock, old, marks=(LONG,)) == PilotMoves(submit=(0,), cancel=("7", "8"), again_s=1.0)
    assert look(stock, old, 1, marks=(LONG,)).cancel == (), "once is enough"
    assert look(stock, old, 20, marks=(LONG,)).cancel == ("7", "8"), "but not for ever"
    assert look(stock, [], 21, marks=(LONG,)).submit == (2,)
    held = [pilot("9", PilotState.RUNNING, mark="yesterday")]
    assert look(stock, held, 22, marks=(LONG,)) == PilotMoves(submit=(1,)), "who runs is used"


def test_reserve_leaves_nodes_idle() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4, reserve=2))
    assert look(stock, [], marks=(LONG,), idle=5).submit == (3,)
    assert look(stock, waiting(3), marks=(LONG,), idle=5).submit == (0,)
    assert set(look(stock, waiting(3), marks=(LONG,), idle=4).cancel) == {"long2"}
    assert look(stock, [], marks=(LONG,), idle=None).submit == (0,), "unknown is not idle"
    assert look(stock, running(3), marks=(LONG,), idle=2) == PilotMoves(submit=(0,))


def test_pilots_give_way_where_nothing_else_preempts_them() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=1))
    held = [pilot(str(number), PilotState.RUNNING, start_s=100.0 * number) for number in range(4)]
    waits = [pilot("w")]

    def cancels(*others: int, idle: int = 0) -> set[str]:
        moves = PilotPolicy(PilotPolicySettings(pending=1)).moves(
            0.0, 1000.0, held + waits, marks=(LONG,), idle=idle, others=others
        )
        assert moves.submit == (0,)
        return set(moves.cancel)

    assert cancels(1) == {"w", "3"}, "the one that waits would take the node at once"
    assert cancels(2, 1) == {"w", "1", "2", "3"}
    assert cancels(3, idle=3) == {"w"}, "enough are idle"
    assert cancels(5) == set(), "a job that needs more than all of ours waits for others"
    assert cancels(5, 2) == {"w", "2", "3"}
    assert cancels(5, idle=1) == {"w", "0", "1", "2", "3"}
    assert stock.moves(0.0, 1000.0, held, marks=(LONG,), idle=3, others=[2]).submit == (1,), "one is left over"


def test_reserve_is_restored_from_the_youngest() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4, reserve=2))
    held = [pilot("old", PilotState.RUNNING, start_s=1.0), pilot("young", PilotState.RUNNING, start_s=9.0)]
    assert look(stock, held, marks=(LONG,), idle=1).cancel == ("young",)
    assert look(stock, held, 1, marks=(LONG,), idle=1).cancel == (), "it is on its way"
    ending = [held[0], pilot("young", PilotState.ENDING)]
    assert look(stock, ending, 2, marks=(LONG,), idle=1).cancel == ()
    assert look(stock, held[:1], 3, marks=(LONG,), idle=0).cancel == ("old",)


def test_lengths_change_less_and_less_often_where_no_pilot_starts() -> None:
    """As on a full cluster, for a member of a site that may hold one node more than it has."""
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    stock.want(1)
    pilots: list[Pilot] = []
    submitted: list[tuple[int, str]] = []
    for at in range(0, 3600, 2):
        moves = look(stock, pilots, at)
        pilots = [one for one in pilots if one.id not in moves.cancel]
        for mark, count in zip(BOTH, moves.submit, strict=True):
            pilots += [pilot(f"{at}{mark}", mark=mark)] * count
            submitted += [(at, mark)] * count
        assert stock.takes_turns == (at >= 12), "both were tried, and neither was started"
    assert {mark for at, mark in submitted if at < 12} == {LONG, SHORT}
    assert len(submitted) < 20
    assert max(later - earlier for (earlier, _), (later, _) in pairwise(submitted)) >= 600
    look(stock, running(1), 3600)
    stock.want(2)
    assert look(stock, running(1), 3602).submit == (1, 0), "one was started: it begins with the longest again"
    assert not stock.takes_turns


def test_a_small_limit_of_jobs_is_shared_between_the_lengths() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    stock.limit(PilotLimits(submitted=5))
    assert look(stock, []).submit == (3, 2)
    assert look(stock, running(3)).submit == (1, 1)
    moves = look(stock, [*running(1), *waiting(4)], 1.0)
    assert (moves.submit, len(moves.cancel)) == ((0, 0), 2), "the longest make room"
    left = [*running(1), *waiting(2)]
    assert look(stock, left, 2.0).submit == (0, 2)
    stopped = [pilot("s", PilotState.STOPPED)]
    assert sum(look(stock, [*running(2), *stopped], 3.0).submit) == 2, "it counts until it is gone"


def test_commands_keep_to_their_rate_in_any_minute() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=64, submits_per_min=30))
    sent = []
    for second in range(121):
        count = sum(look(stock, [], second, marks=(LONG,)).submit)
        for _ in range(count):
            stock.submitted(1)
        sent.append(count)
    assert [second for second, count in enumerate(sent) if count] == [0, 60, 120]
    assert set(sent) == {0, 30}
    assert look(stock, [], 150.0, marks=(LONG,)).again_s == pytest.approx(30.0)


def test_a_rate_below_one_is_a_longer_wait() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=64, submits_per_min=0.5))
    assert look(stock, [], 0.0, marks=(LONG,)).submit == (1,)
    stock.submitted(1)
    assert look(stock, [], 119.0, marks=(LONG,)).submit == (0,)
    assert look(stock, [], 120.0, marks=(LONG,)).submit == (1,)


def test_no_waiting_pilot_makes_room_for_one_that_may_not_be_submitted_yet() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=1, submits_per_min=0.5))
    stock.want(1)
    pilots: list[Pilot] = []
    submitted: list[tuple[int, str]] = []
    for at in range(0, 1200, 2):
        moves = look(stock, pilots, at)
        pilots = [one for one in pilots if one.id not in moves.cancel]
        for mark, count in zip(BOTH, moves.submit, strict=True):
            pilots += [pilot(f"{at}{mark}", mark=mark)] * count
            submitted += [(at, mark)] * count
            for _ in range(count):
                stock.submitted(1)
        assert pilots or at - submitted[-1][0] <= 122, "the other length follows"
        assert pilots or moves.cancel, "an idle node finds a pilot at any time, but between two looks"
    assert {mark for _, mark in submitted} == {LONG, SHORT}
    stock.want(3)
    assert len(look(stock, [*waiting(1), *waiting(1, SHORT), *running(2)], 1200).cancel) == 1, (
        "but no more wait than may"
    )


def test_a_command_that_submits_many_counts_once_and_a_refused_one_too() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=64, submits_per_min=2), together=True)
    assert look(stock, [], 0.0).submit == (64, 64)
    stock.submitted(64)
    assert look(stock, waiting(64), 1.0).submit == (0, 64)
    stock.submitted(0)
    assert look(stock, waiting(64), 2.0).submit == (0, 0), "two commands a minute are all that is allowed"
    assert look(stock, waiting(64), 60.0).submit == (0, 64)


@pytest.mark.parametrize(
    ("trouble", "waits"),
    [
        (Trouble.AWAY, [1, 2, 4, 8, 16, 32, 60, 60]),
        (Trouble.LIMIT, [15, 30, 60, 120, 240, 300, 300]),
        (Trouble.REFUSED, [30, 60, 120, 240, 480, 600, 600]),
    ],
)
def test_troubles_make_it_wait_twice_as_long_each_time(trouble: Trouble, waits: list[float]) -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=1))
    now, seen = 0.0, []
    for _ in waits:
        assert look(stock, [], now, marks=(LONG,)).submit == (1,)
        stock.failed(now, trouble, alive=0)
        moves = look(stock, [], now + 0.01, marks=(LONG,))
        assert moves.submit == (0,)
        seen.append(round(moves.again_s))
        now += 0.01 + moves.again_s
    assert seen == waits
    stock.submitted(1)
    stock.failed(now, trouble, alive=0)
    assert look(stock, [], now, marks=(LONG,)).again_s == waits[0], "success makes it forget"


def test_where_no_more_is_taken_none_is_offered_until_some_are_gone() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    stock.failed(0.0, Trouble.LIMIT, alive=3)
    assert look(stock, waiting(3), 1.0, marks=(LONG,)) == PilotMoves(submit=(0,), again_s=14.0)
    assert look(stock, waiting(2), 2.0, marks=(LONG,)).submit == (2,)
    assert look(stock, waiting(3), 15.0, marks=(LONG,)).submit == (1,), "limits may be raised"


def test_pilots_that_end_as_they_start_slow_it_down() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    look(stock, [], marks=(LONG,))
    over: list[Pilot] = []
    tries = []
    now = 1.0
    for number in range(6):
        over.append(pilot(str(number), PilotState.FAILED, start_s=1000 + now))
        assert look(stock, over, now, marks=(LONG,)).submit == (0,)
        now += look(stock, over, now, marks=(LONG,)).again_s
        tries.append(round(now))
        assert look(stock, over, now, marks=(LONG,)).submit == (1,), "one tries whether it is better now"
        now += 1
    assert [later - earlier for earlier, later in pairwise(tries)] == [5, 9, 17, 33, 65]
    assert stock.failing
    grown = pilot("good", PilotState.RUNNING, start_s=1000 + now)
    assert look(stock, [*over, grown], now + 59, marks=(LONG,)).submit == (1,)
    assert look(stock, [*over, grown], now + 61, marks=(LONG,)).submit > (1,)
    assert not stock.failing


@pytest.mark.parametrize(
    ("over", "harm"),
    [
        (pilot("1", PilotState.TAKEN, start_s=1000.0, end_s=1001.0), False),
        (pilot("1", PilotState.LEFT, start_s=1000.0, end_s=1031.0), True),  # no daemon answered the agent
        (pilot("1", PilotState.LEFT, start_s=0.0, end_s=1001.0), False),
        (pilot("1", PilotState.FAILED, start_s=0.0, end_s=1001.0), True),
    ],
)
def test_being_taken_is_no_failure(over: Pilot, harm: bool) -> None:  # noqa: FBT001 - a column of the table
    stock = PilotPolicy(PilotPolicySettings(pending=1))
    look(stock, [], marks=(LONG,))
    assert look(stock, [over], 40.0, marks=(LONG,)).submit == ((0,) if harm else (1,))


def test_a_node_on_which_pilots_fail_is_avoided_if_others_work() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    works = pilot("w", PilotState.RUNNING, start_s=0.0)
    look(stock, [works], marks=(LONG,))
    over = [pilot("1", PilotState.FAILED, node="sick")]
    look(stock, [works, *over], 1, marks=(LONG,))
    assert stock.avoided(1) == ()
    over.append(pilot("2", PilotState.FAILED, node="sick"))
    look(stock, [works, *over], 5, marks=(LONG,))
    assert stock.avoided(5) == ("sick",)
    assert stock.avoided(5 + 1801) == ()


def test_nodes_are_not_to_blame_where_nothing_works() -> None:
    stock = PilotPolicy(PilotPolicySettings(pending=4))
    look(stock, [], marks=(LONG,))
    for number in range(9):
        look(stock, [pilot(str(number), PilotState.FAILED, node="n1")], number, marks=(LONG,))
    assert stock.avoided(9) == ()
