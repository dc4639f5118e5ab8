"""Storms of jobs against a model that asks, second by second, who holds which node."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bftrain import BadInput, EventLog, ImportOptions, NodeState
from bftrain.nodesets import expand
from bftrain_datasets.importing import job_columns, occupancy
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.pipeline import all_idle
from bftrain_datasets.log.edits import close_short_gaps, mark_down
from tests.helpers.transitions import log_from_transitions

DAY = 1_700_000_000
LONGEST = 60
NODES = [f"n{number}" for number in range(6)]
BUSY, IDLE, DOWN = (int(state) for state in NodeState)

Job = tuple[int, int, int, frozenset[str], bool]  # name, start, length, nodes, still running
JOBS = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.integers(0, LONGEST - 2),
        st.integers(1, 30),
        st.frozensets(st.sampled_from(NODES), min_size=1, max_size=4),
        st.integers(0, 9).map(lambda number: number == 0),
    ),
    min_size=1,
    max_size=25,
)
EDGES = st.one_of(st.none(), st.integers(0, LONGEST))
WINDOWS = st.tuples(EDGES, EDGES).filter(lambda pair: None in pair or pair[0] < pair[1])  # type: ignore[operator]  # no None there


def seconds_of(log: EventLog) -> NDArray[np.int8]:
    """Return the state of each node in each second: what the log says, read off event by event."""
    begin, end = round(log.start_s), round(log.end_s)
    states = np.zeros((len(log.node_names), end - begin), dtype=np.int8)
    for number, time_s in enumerate(log.times.tolist()):
        low, high = log.offsets[number], log.offsets[number + 1]
        for node, state in zip(log.nodes[low:high].tolist(), log.states[low:high].tolist(), strict=True):
            states[node, round(time_s) - begin :] = state
    return states


def end_of(job: Job) -> float:
    return math.inf if job[4] else job[1] + job[2]


@settings(max_examples=200)
@given(jobs=JOBS, window=WINDOWS, known=st.one_of(st.none(), st.just(NODES[:4])), part=st.sampled_from([1, 5, 1 << 22]))
def test_a_log_is_what_a_model_of_every_second_says(
    jobs: list[Job], window: tuple[int | None, int | None], known: list[str] | None, part: int
) -> None:
    job_columns._PAIRS_AT_ONCE = part  # noqa: SLF001 - machines too large for a test are built in parts
    low, high = window
    options = ImportOptions(
        nodes=tuple(known) if known else None,
        window=(None if low is None else DAY + low, None if high is None else DAY + high),
    )
    intake = RecordIntake(options)
    intake.begin_file("jobs")
    for line, job in enumerate(jobs, 1):
        intake.row(line)
        end_s = RUNNING if job[4] else DAY + end_of(job)
        intake.job(str(job[0]), DAY + job[1], end_s, ",".join(sorted(job[3], reverse=bool(line % 2))))
    intake.settle()
    machine = set(known or NODES)
    mine = [job for job in jobs if job[3] & machine]
    mine = [job for job in mine if (low is None or end_of(job) > low) and (high is None or job[1] < high)]
    outside = len(jobs) - len(mine)
    gone = {job[:2] for job in jobs if job[3] & machine and not job[4] and job not in mine}
    different = {(job[0], job[1], end_of(job), frozenset(job[3] & machine)): job for job in mine}
    for name, start, until, nodes in list(different):  # a row from when it ran, and another with its end
        if until < math.inf or (name, start) in gone:
            different.pop((name, start, math.inf, nodes), None)
    reach = max((job[1] if job[4] else end_of(job) for job in mine), default=0)
    begin = min((job[1] for job in different.values()), default=0) if low is None else low
    end = reach if high is None else high
    try:
        log = occupancy.log_from_jobs(intake)
    except BadInput:
        assert not different or begin >= end
        return
    rows = intake.rows()
    assert (rows.read, rows.used, sum(rows.aside.values())) == (
        *(len(jobs), len(different)),
        outside + len(mine) - len(different),
    )
    assert (log.start_s, log.end_s) == (DAY + begin, DAY + end)
    held: dict[str, Counter[int]] = {name: Counter() for name in log.node_names}
    for _, start, until, nodes in different:
        for node in nodes:
            held[node].update(range(max(start, begin), int(min(until, end))))
    expected = np.array(
        [[BUSY if held[name][at] else IDLE for at in range(begin, int(end))] for name in log.node_names]
    )
    assert np.array_equal(seconds_of(log), expected)
    found = {each.name: each.node_s for each in intake.findings()}
    over = sum(count - 1 for seconds in held.values() for count in seconds.values())
    assert found.get("shared", 0.0) + found.get("held_twice", 0.0) == over
    running = any(job[4] for job in different.values())
    tails = [end - 1 - max(seconds) for seconds in held.values() if seconds] if high is None and not running else [0]
    assert found.get("censored_end", 0.0) == sum(tails)


@given(jobs=JOBS, seed=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(jobs: list[Job], seed: object) -> None:
    def built(rows: list[Job]) -> tuple[str, dict[str, tuple[int, float]]]:
        intake = RecordIntake()
        intake.begin_file("jobs")
        for line, job in enumerate(rows, 1):
            intake.row(line)
            intake.job(str(job[0]), DAY + job[1], DAY + job[1] + job[2], ",".join(sorted(job[3])))
        intake.settle()
        log = occupancy.log_from_jobs(intake)
        found = {each.name: (each.count, each.node_s) for each in intake.findings() if each.name != "notation"}
        for pair in ("shared", "held_twice"):  # which of two that begin at once comes second is open
            found.pop(pair, None)
        return log.sha256, found

    shuffled = list(jobs)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert built(shuffled) == built(jobs)


CHANGES = st.lists(
    st.tuples(st.integers(0, LONGEST), st.sampled_from(NODES[:3]), st.sampled_from(list(NodeState))), min_size=1
)


def log_of(changes: list[tuple[int, str, NodeState]]) -> EventLog:
    return log_from_transitions(changes, node_names=NODES[:3], begin_s=0, end_s=LONGEST + 5)


@given(
    changes=CHANGES, windows=st.lists(st.tuples(st.integers(-5, LONGEST + 9), st.integers(-5, LONGEST + 9)), max_size=4)
)
def test_declared_downtime_is_down_and_nothing_else_changes(
    changes: list[tuple[int, str, NodeState]], windows: list[tuple[int, int]]
) -> None:
    log = log_of(changes)
    made = mark_down(log, windows)
    expected = seconds_of(log)
    for low, high in windows:
        if low < high:
            expected[:, max(low, 0) : max(high, 0)] = DOWN
    assert np.array_equal(seconds_of(made), expected)
    assert (made.start_s, made.end_s, made.node_names) == (log.start_s, log.end_s, log.node_names)
    assert made.provenance == log.provenance


@given(changes=CHANGES, least=st.integers(0, 30))
def test_short_gaps_are_closed_and_long_ones_and_those_at_the_edges_kept(
    changes: list[tuple[int, str, NodeState]], least: int
) -> None:
    log = log_of(changes)
    made, count, node_s = close_short_gaps(log, least)
    before = seconds_of(log)
    expected, closed = before.copy(), []
    for node in range(before.shape[0]):
        edges = np.flatnonzero(np.diff(np.concatenate(([BUSY], before[node], [BUSY])) == IDLE))
        for low, high in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if high - low < least and low > 0 and high < before.shape[1]:
                expected[node, low:high] = BUSY
                closed.append(high - low)
    assert np.array_equal(seconds_of(made), expected)
    assert (count, node_s) == (len(closed), sum(closed))


@given(changes=CHANGES, least=st.integers(1, 40))
def test_the_whole_machine_is_idle_when_no_node_is_busy(changes: list[tuple[int, str, NodeState]], least: int) -> None:
    log = log_of(changes)
    states = seconds_of(log)
    quiet = (states != BUSY).all(axis=0) & (states == IDLE).any(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8)))
    spans = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    assert all_idle(log, least) == [(low, high) for low, high in spans if high - low > least]


RANGES = st.tuples(st.integers(0, 120), st.integers(0, 12), st.sampled_from([1, 3])).map(
    lambda made: f"{made[0]:0{made[2]}d}" + (f"-{made[0] + made[1]:0{made[2]}d}" if made[1] else "")
)
BRACKETS = st.lists(RANGES, min_size=1, max_size=3).map(lambda made: f"[{','.join(made)}]")
STEMS = st.sampled_from(["n", "nid", "rack-a", "x.y", "r2c"])
PIECES = st.one_of(
    STEMS,
    st.tuples(STEMS, BRACKETS).map("".join),
    st.tuples(STEMS, BRACKETS, st.sampled_from(["-ib", ".site", "x"])).map("".join),
    st.tuples(STEMS, BRACKETS, st.sampled_from(["c", "-n"]), BRACKETS).map("".join),
)


@given(pieces=st.lists(PIECES, min_size=1, max_size=4))
def test_node_sets_are_what_the_library_of_the_trade_makes_of_them(pieces: list[str]) -> None:
    text = ",".join(pieces)
    assert set(expand(text)) == {str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)}


@given(st.text(alphabet="n1[]-,0/ax. \x00", max_size=30))
def test_any_text_is_a_node_set_or_a_value_error(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert names
    assert all(name and not set(name) & set("[], \x00/") for name in names)
