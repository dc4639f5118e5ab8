"""Campaigns compete in the order of their virtual ends; what decides that survives restarts to the last digit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from bftrain import (
    Entity,
    Event,
    Harvester,
    Journal,
    Rerun,
    Settings,
    SpeedCurve,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSpec,
    build_harvester,
)
from bftrain.rerun import recover, restore
from bftrain.values import wire
from tests.helpers.campaigns import CAMPAIGNS
from tests.unit.core.samples import joined, left, nodes, submitted

LINEAR = SpeedCurve(nodes=(1, 100), rate=(1.0, 100.0))  # work in samples is work in node-seconds


def task(name: str, user: str, work: float | None, campaign: str = "", smallest: int = 1) -> TaskSpec:
    return TaskSpec(
        name=name, curve=LINEAR, min_nodes=smallest, max_nodes=50, work_samples=work, user=user, campaign=campaign
    )


def moments(seed: int) -> list[tuple[Event, ...]]:
    """Return a storm: nodes come and go, tasks are submitted, finish, fail, are cancelled and measured."""
    random = Random(seed)  # noqa: S311 - a die, no secret
    found: list[tuple[Event, ...]] = [(joined(0.0, *nodes(1, 12)),)]
    alive: list[str] = []
    for number in range(80):
        now_s = 50.0 * (number + 1) + random.random()
        kind = random.choice(["submit", "submit", "finish", "fail", "cancel", "measure", "leave", "join"])
        if kind == "submit" or not alive:
            user, label = random.choice(["ann", "bob", "eve"]), random.choice(["", "", "study"])
            work = random.choice([None, 300.0, random.uniform(1, 9000)])
            alive.append(f"t{number}")
            found.append((submitted(now_s, task(f"t{number}", user, work, label, random.choice([1, 3]))),))
        elif kind == "leave":
            found.append((left(now_s, *nodes(1, random.randint(1, 6))),))
        elif kind == "join":
            found.append((joined(now_s, *nodes(1, 12)),))
        else:
            name = random.choice(alive)
            event = {
                "finish": TaskFinished(time_s=now_s, task=name),
                "cancel": TaskCancelled(time_s=now_s, task=name),
                "fail": TaskFailed(time_s=now_s, task=name),
                "measure": TaskMeasured(time_s=now_s, task=name, work_left_samples=random.uniform(0, 300)),
            }[kind]
            if kind in {"finish", "cancel"}:
                alive.remove(name)
            found.append((event,))
    return found


SETTINGS = Settings(
    admission=f"{CAMPAIGNS},gap_s=300",
    solver="greedy",
    max_tasks=4,
    max_failures=2,
    entities={"ann": Entity(weight=1.7)},
)


def recorded(path: Path, storm: Sequence[tuple[Event, ...]]) -> Harvester:
    harvester = build_harvester(SETTINGS)
    with Journal.create(path, SETTINGS) as journal:
        for moment in storm:
            harvester.absorb(*moment)
            journal.append(moment, harvester.decide(harvester.time_s + 0.25))
    return harvester


def test_a_journal_leads_to_the_same_decisions_and_books_again(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    harvester = recorded(path, moments(1))
    with Journal.open(path) as journal:
        assert not list(Rerun(journal).differences())
        assert restore(journal).snapshot == harvester.snapshot
        assert recover(journal, SETTINGS).snapshot == harvester.snapshot  # followed, not decided again


def test_a_harvester_that_takes_up_goes_on_as_the_other_would(tmp_path: Path) -> None:
    storm = moments(2)
    one = recorded(tmp_path / "j.db", storm[:40])
    kept = wire.decode(wire.encode(one.snapshot), type(one.snapshot))
    assert kept.admission is not None
    two = build_harvester(SETTINGS)
    two.restore(kept)
    for moment in storm[40:]:
        assert one.absorb(*moment) == two.absorb(*moment)
        assert one.decide(one.time_s).same_as(two.decide(two.time_s))
    assert one.snapshot == two.snapshot


def test_other_settings_after_a_restart_are_rerun_too(tmp_path: Path) -> None:
    storm = moments(3)
    path = tmp_path / "j.db"
    recorded(path, storm[:40])
    others = msgspec.structs.replace(SETTINGS, entities={"bob": Entity(weight=5.0)}, admission=f"{CAMPAIGNS},load=0.5")
    with Journal.open(path) as journal:
        harvester = recover(journal, others)
        for moment in storm[40:]:
            harvester.absorb(*moment)
            journal.append(moment, harvester.decide(harvester.time_s))
    with Journal.open(path) as journal:
        assert not list(Rerun(journal).differences())


def test_who_takes_over_from_first_come_hears_of_all_who_are_there(tmp_path: Path) -> None:
    storm = moments(4)
    path = tmp_path / "j.db"
    plain = msgspec.structs.replace(SETTINGS, admission="first-come")
    harvester = build_harvester(plain)
    with Journal.create(path, plain) as journal:
        for moment in storm[:40]:
            harvester.absorb(*moment)
            journal.append(moment, harvester.decide(harvester.time_s))
    with Journal.open(path) as journal:
        taken = recover(journal, SETTINGS)
        books = taken.snapshot.admission
        assert books is not None
        assert set(books.books["tasks"]) == set(taken.unfinished)
        for moment in storm[40:]:
            taken.absorb(*moment)
            journal.append(moment, taken.decide(taken.time_s))
    with Journal.open(path) as journal:
        assert not list(Rerun(journal).differences())
