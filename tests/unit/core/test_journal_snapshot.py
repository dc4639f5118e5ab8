"""A journal that says now and then where things stand: a quick way back, other settings, tables of others beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput, Event, Harvester, Journal, NotAvailable, Rerun, Settings, build_harvester
from bftrain.rerun import recover, restore
from tests.unit.core.samples import joined, left, nodes, spec, submitted

SETTINGS = Settings(max_tasks=7)
MOMENTS: list[tuple[Event, ...]] = [
    (joined(0, *nodes(1, 6)), submitted(0, spec("a", 2, 4)), submitted(0, spec("b", 1, 3, grow_cost_s=9.0))),
    (left(5, "n1", "n2"),),
    (joined(5, *nodes(7, 9)),),
    (submitted(8, spec("c", 1, 8)),),
    (left(9, *nodes(3, 8)),),
    (joined(11, "n1"),),
]


def go_on(journal: Journal, core: Harvester, moments: list[tuple[Event, ...]], keep_every: int = 0) -> None:
    for moment in moments:
        core.absorb(*moment)
        journal.append_events(moment, sync=False)
        journal.append_decision(core.decide(moment[-1].time_s), sync=False)
        if keep_every and len(journal) % keep_every == 0:
            journal.keep(journal.settings_now, core.snapshot)


@pytest.mark.parametrize("keep_every", [0, 1, 2, 4])
@pytest.mark.parametrize("cut", range(7))
def test_a_recovered_harvester_stands_where_the_recorded_one_did(tmp_path: Path, keep_every: int, cut: int) -> None:
    straight = build_harvester(SETTINGS)
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        go_on(journal, straight, MOMENTS[:cut], keep_every)
    with Journal.open(tmp_path / "j") as journal:
        recovered = recover(journal, SETTINGS)
        assert recovered.snapshot == straight.snapshot
        go_on(journal, recovered, MOMENTS[cut:])
        assert list(Rerun(journal).differences()) == []
        assert recovered.snapshot == restore(journal).snapshot


def test_events_without_a_decision_are_owed_what_they_demand(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        core = build_harvester(SETTINGS)
        go_on(journal, core, MOMENTS[:1])
        demanded = core.absorb(*MOMENTS[1])
        journal.append_events(MOMENTS[1])
        assert recover(journal, SETTINGS).owed == demanded


def test_nothing_is_decided_again_to_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        go_on(journal, build_harvester(SETTINGS), MOMENTS)
        asked: list[object] = []
        monkeypatch.setattr("bftrain_solvers.exact.solver.solve", lambda *given: asked.append(given))
        recover(journal, SETTINGS)
        assert asked == []


def test_of_those_with_the_same_settings_the_last_two_are_kept(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        core = build_harvester(SETTINGS)
        go_on(journal, core, MOMENTS[:2], keep_every=1)
        journal.keep(Settings(horizon_s=5.0), core.snapshot)
        core = recover(journal, Settings(horizon_s=5.0))
        go_on(journal, core, MOMENTS[2:], keep_every=1)
        kept = journal.rows("SELECT step, changed FROM standing ORDER BY step")
        assert kept == [(2, 1), (5, 0), (6, 0)]


def test_other_settings_hold_from_where_they_were_changed(tmp_path: Path) -> None:
    others = Settings(solver="greedy", horizon_s=7.0, max_failures=9)
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        go_on(journal, build_harvester(SETTINGS), MOMENTS[:3])
    with Journal.open(tmp_path / "j") as journal:
        go_on(journal, recover(journal, others), MOMENTS[3:])
    with Journal.open(tmp_path / "j") as journal:
        assert (journal.settings, journal.settings_now) == (SETTINGS, others)
        assert [step.decision and step.decision.solver for step in journal.steps()] == ["exact"] * 3 + ["greedy"] * 3
        assert list(Rerun(journal).differences()) == []
        journal.require_settings(others)
        with pytest.raises(BadInput, match="has solver = 'greedy'"):
            journal.require_settings(SETTINGS)
        assert recover(journal, others).snapshot == restore(journal).snapshot


def test_settings_can_change_before_anything_happened_and_back(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        recover(journal, Settings(solver="greedy"))
        go_on(journal, recover(journal, SETTINGS), MOMENTS[:2])
        assert list(Rerun(journal).differences()) == []
        assert len(list(journal.restart_snapshots())) == 1


def test_a_step_that_was_cut_off_before_the_settings_changed_is_decided_by_the_new_ones(tmp_path: Path) -> None:
    others = Settings(solver="greedy")
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        core = build_harvester(SETTINGS)
        core.absorb(*MOMENTS[0])
        journal.append_events(MOMENTS[0])
        recover(journal, others)
    with Journal.open(tmp_path / "j") as journal:  # and it was cut off once more before it could decide
        core = recover(journal, others)
        journal.append_decision(core.decide(0))
        go_on(journal, core, MOMENTS[1:])
        assert [(step.number, len(step.events)) for step in journal.steps()][:3] == [(1, 3), (2, 0), (3, 1)]
        assert list(Rerun(journal).differences()) == []


def test_what_is_kept_beside_the_record_changes_with_it_or_not_at_all(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        journal.change(("CREATE TABLE beside (x INTEGER PRIMARY KEY) STRICT", ()))
        journal.append_events(MOMENTS[0], [("INSERT INTO beside VALUES (?)", (1,))])
        with pytest.raises(NotAvailable, match="cannot be written: UNIQUE constraint failed"):
            journal.append_events(MOMENTS[1], [("INSERT INTO beside VALUES (?)", (1,))])
        assert (len(journal), journal.rows("SELECT x FROM beside")) == (1, [(1,)])
        journal.append_events(MOMENTS[1], [("INSERT INTO beside VALUES (?)", (2,))])
    with Journal.open(tmp_path / "j") as journal:
        assert journal.rows("SELECT count(*) FROM beside WHERE x > ?", (0,)) == [(2,)]
        assert len(list(journal.steps(after=1))) == 1


def test_only_what_need_not_survive_a_power_cut_is_written_without_waiting(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", SETTINGS) as journal:
        levels = []

        def level() -> int:
            return int(journal.rows("PRAGMA synchronous")[0][0])

        for sync in (True, False, False, True):
            journal.append_events(MOMENTS[0], sync=sync)
            levels.append(level())
    assert levels == [2, 1, 1, 2]  # FULL and NORMAL
