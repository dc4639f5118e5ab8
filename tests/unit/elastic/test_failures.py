"""Which deaths count against a program, on paper."""

from __future__ import annotations

import pytest

from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.failures import (
    ALLOWED,
    ALLOWED_FROM_OUTSIDE,
    FailurePolicy,
    WorkerDeath,
    is_connection_trouble,
)

SETTLE_S = 5.0


def death(code: int, tail: str = "", *, at: float, node: str = "a", started: bool = True) -> WorkerDeath:
    return WorkerDeath(
        text=f"w ended with {code}",
        node=node,
        nodes=frozenset({node, "b"}),
        exit=WorkerExit(code, tail),
        began_s=at,
        started=started,
    )


def failure_of(policy: FailurePolicy, now: float) -> str:
    return policy.judge(now).failure


def test_three_deaths_of_its_own_without_a_step_between_are_a_failure() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(ALLOWED):
        now = 100.0 + 10 * number
        policy.died(death(1, "ValueError: odd", at=now - 1), now, 0)
        assert failure_of(policy, now) == ""
        failed = failure_of(policy, now + SETTLE_S + 0.1)
        assert failed == ("w ended with 1\nValueError: odd" if number == ALLOWED - 1 else "")


def test_a_step_between_restarts_the_count() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(10 * ALLOWED):
        now = 100.0 + 10 * number
        policy.died(death(1, at=now - 1), now, number)
        assert failure_of(policy, now + SETTLE_S + 0.1) == ""


@pytest.mark.parametrize("when_s", [-4.0, 4.0])
def test_a_node_of_the_group_that_leaves_before_or_after_forgives_all(when_s: float) -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(20):
        now = 100.0 + 20 * number
        if when_s < 0:
            policy.node_leaves("b", now + when_s)
        policy.died(death(1, at=now - 1), now, 0)
        if when_s > 0:
            policy.node_leaves("b", now + when_s)
        assert policy.judge(now + SETTLE_S + 0.1).notes == ()


def test_deaths_that_follow_from_another_do_not_count_but_are_reported() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(4):
        policy.died(death(1, f"ValueError: {number}", at=50.0), 100.0 + number, 0)
    judged = policy.judge(200.0)
    assert judged.failure == ""
    assert len(judged.notes) == 4


def test_workers_that_die_in_turns_count_although_each_began_before_the_last_death() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(2 * ALLOWED - 1):
        policy.died(death(1, "SyntaxError", at=98.5 + number), 100.0 + number, 0)
    assert failure_of(policy, 200.0)


def test_the_reason_is_the_death_that_explains_the_others() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(ALLOWED):
        now = 100.0 + 10 * number
        policy.died(death(1, "RuntimeError: Connection closed by peer", at=now - 1), now, 0)
        policy.died(death(1, "Traceback\nValueError: odd", at=now - 1), now + 0.1, 0)
        reason = failure_of(policy, now + SETTLE_S + 1)
    assert reason.endswith("ValueError: odd")


def test_signals_from_outside_count_for_less_and_not_at_all_while_a_program_loads() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(5 * ALLOWED_FROM_OUTSIDE):
        now = 100.0 + 10 * number
        policy.died(death(-9, at=now - 1, started=False), now, 0)
        assert failure_of(policy, now + SETTLE_S + 0.1) == ""
    for number in range(ALLOWED_FROM_OUTSIDE):
        now = 1000.0 + 10 * number
        policy.died(death((-15, 137)[number % 2], at=now - 1), now, 0)
        failed = failure_of(policy, now + SETTLE_S + 0.1)
    assert "as others before it" in failed


def test_another_try_waits_while_it_is_open_whether_it_would_be_one_too_many() -> None:
    policy = FailurePolicy(SETTLE_S)
    for number in range(ALLOWED):
        assert not policy.undecided
        policy.died(death(1, at=100.0 + number), 100.5 + number, 0)
    assert policy.undecided
    policy.node_leaves("a", 103.0)
    assert not policy.undecided


@pytest.mark.parametrize(
    ("reason", "trouble"),
    [
        ("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4", True),
        ("Timed out waiting 20000ms for recv operation to complete", True),
        ("[enforce fail at gloo/transport/tcp/pair.cc] op.preamble.length <= op.nbytes. 8 vs 4", False),
        ("The size of tensor a (3) must match the size of tensor b (4)", False),
    ],
)
def test_lost_connections_are_distinguished_from_mistakes(reason: str, *, trouble: bool) -> None:
    assert is_connection_trouble(reason) is trouble
