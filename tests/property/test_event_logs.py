"""For any transitions: the log keeps its promises, and files and selections keep the log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import EventLog, NodesJoined, NodesLeft, NodeState, load_log, save_log
from bftrain_datasets.log.measures import fragments, summarise
from tests.helpers.transitions import log_from_transitions

NAMES = st.text(st.characters(exclude_categories=("C", "Z"), codec="utf-8"), min_size=1, max_size=4)
TIMES = st.one_of(st.integers(0, 12).map(float), st.floats(-1e9, 1e9, allow_nan=False))
Transition = tuple[float, str, NodeState]
SUFFIXES = [".npz", ".csv", ".parquet"]


@st.composite
def transitions_by_node(draw: st.DrawFn) -> tuple[list[str], list[Transition]]:
    """Draw node names and transitions of them in no order, with repeats and several at one time."""
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    one = st.tuples(TIMES, st.sampled_from(names), st.sampled_from(NodeState))
    return names, draw(st.lists(one, min_size=1, max_size=30))


def built(names: list[str], transitions: list[Transition]) -> EventLog:
    return log_from_transitions(transitions, node_names=names, end_s=max(time for time, _, _ in transitions) + 10.0)


@given(transitions_by_node())
def test_the_log_knows_the_state_of_every_node_at_every_time(what: tuple[list[str], list[Transition]]) -> None:
    names, transitions = what
    log = built(names, transitions)
    state = dict.fromkeys(names, NodeState.BUSY)
    for moment in sorted({time for time, _, _ in transitions}):
        for time, name, new in transitions:
            if time == moment:
                state[name] = new
        assert log.states_at(moment).tolist() == [state[name] for name in log.node_names]


@given(transitions_by_node())
def test_every_transition_is_accounted_for(what: tuple[list[str], list[Transition]]) -> None:
    counts = built(*what).provenance.counts
    outcomes = ("used", "superseded", "repeated", "stated_busy")
    assert counts["transitions"] == len(what[1]) == sum(counts[outcome] for outcome in outcomes)


@given(transitions_by_node())
def test_replaying_the_events_by_hand_gives_pool_sizes_and_idle_time(what: tuple[list[str], list[Transition]]) -> None:
    log = built(*what)
    pool: set[str] = set()
    idle_node_s = 0.0
    now = log.start_s
    sizes = {now: 0}
    for event in log.events():
        assert event.time_s >= now
        idle_node_s += len(pool) * (event.time_s - now)
        now = event.time_s
        if isinstance(event, NodesLeft):
            assert pool.issuperset(event.nodes)
            pool.difference_update(event.nodes)
        else:
            assert isinstance(event, NodesJoined)
            assert pool.isdisjoint(event.nodes)
            pool.update(event.nodes)
        sizes[now] = len(pool)
    idle_node_s += len(pool) * (log.end_s - now)
    assert idle_node_s == pytest.approx(log.idle_node_s, rel=1e-9, abs=1e-6)
    assert idle_node_s == pytest.approx(fragments(log).length_s.sum(), rel=1e-9, abs=1e-6)
    known = dict(zip(log.times.tolist(), log.pool_sizes().tolist(), strict=True))
    assert {time: known[time] for time in sizes} == sizes


@given(transitions_by_node(), st.sampled_from(SUFFIXES))
def test_files_give_back_what_was_saved(what: tuple[list[str], list[Transition]], suffix: str) -> None:
    log = built(*what)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"log{suffix}"
        save_log(log, path)
        assert load_log(path) == log


@given(transitions_by_node(), st.data())
def test_selecting_parts_conserves_idle_time(what: tuple[list[str], list[Transition]], data: st.DataObject) -> None:
    log = built(*what)
    cut_s = data.draw(st.floats(log.start_s, log.end_s, allow_nan=False))
    before, after = log.select(window=(None, cut_s)), log.select(window=(cut_s, None))
    assert before.idle_node_s + after.idle_node_s == pytest.approx(log.idle_node_s, rel=1e-9, abs=1e-6)
    assert after.states_at(cut_s).tolist() == log.states_at(cut_s).tolist()
    mine = data.draw(st.sets(st.integers(0, len(log.node_names) - 1), max_size=len(log.node_names) - 1))
    rest = sorted(set(range(len(log.node_names))) - mine)
    parts = [log.select(nodes=sorted(chosen)) for chosen in (mine, rest) if chosen]
    assert sum(part.idle_node_s for part in parts) == pytest.approx(log.idle_node_s, rel=1e-9, abs=1e-6)
    assert log.select().sha256 == log.sha256


@given(transitions_by_node())
def test_any_log_can_be_summarised(what: tuple[list[str], list[Transition]]) -> None:
    summary = summarise(built(*what))
    assert 0 <= summary.idle_share <= 1 + 1e-9
    assert 0 <= summary.leaving.together <= 1
    assert summary.pool.percentiles[5] <= summary.pool.percentiles[99] <= summary.pool.largest
