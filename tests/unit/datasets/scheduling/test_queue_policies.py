"""The profile of free nodes, against one that counts every second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrain_datasets.scheduling.queue_policies import FreeNodesProfile

NODES, END = 9, 60

plans = st.lists(st.tuples(st.integers(0, END), st.integers(0, 15), st.integers(1, NODES), st.booleans()), max_size=25)


def plain(profile: FreeNodesProfile) -> list[int]:
    return [profile.free[max(place for place, at in enumerate(profile.times) if at <= time)] for time in range(END * 2)]


@given(plans, st.integers(1, NODES), st.integers(0, 30), st.integers(0, END))
def test_plans_are_taken_and_given_up(
    found: list[tuple[int, int, int, bool]], size: int, length: int, now: int
) -> None:
    profile, free = FreeNodesProfile(0.0, NODES), [NODES] * (END * 2)
    for begin, lasts, nodes, is_kept in found:
        fits = min(free[begin : begin + lasts], default=NODES) >= nodes
        assert profile.least(begin, begin + lasts) == min(free[begin : begin + lasts] or [free[begin]])
        if not fits:
            continue
        profile.take(begin, begin + lasts, nodes)
        if is_kept:
            free[begin : begin + lasts] = [each - nodes for each in free[begin : begin + lasts]]
        else:
            assert min(plain(profile)) >= 0
            profile.take(begin, begin + lasts, -nodes)
        assert plain(profile) == free
        assert profile.times == sorted(set(profile.times))
        assert all(left != right for left, right in zip(profile.free, profile.free[1:], strict=False))
    fitting = (at for at in range(END * 2) if min(free[at : at + max(length, 1)]) >= size)
    assert profile.earliest(size, length) == next(fitting)
    profile.forget(now)
    assert profile.times[0] == now
    assert plain_from(profile, now) == free[now:]


def plain_from(profile: FreeNodesProfile, now: int) -> list[int]:
    return [
        profile.free[max(place for place, at in enumerate(profile.times) if at <= time)] for time in range(now, END * 2)
    ]


def test_a_plan_too_many_shows() -> None:
    profile = FreeNodesProfile(0.0, 4)
    profile.take(10, 20, 3)
    profile.take(15, 30, 2)
    assert profile.least(0, 15) == 1
    assert profile.least(0, 16) == -1
    assert profile.least(20, 40) == 2


def test_what_runs_makes_a_profile() -> None:
    made = FreeNodesProfile.of(5.0, 1, [(7.0, 0), (7.0, 1), (9.0, 2)], [2, 1, 4])
    assert (made.times, made.free) == ([5, 7, 9], [1, 4, 8])
    assert FreeNodesProfile.of(5.0, 1, [(5.0, 0)], [2]).free == [3]
