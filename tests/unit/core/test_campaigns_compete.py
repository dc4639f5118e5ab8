"""Campaigns compete in the order of their virtual ends; what decides that survives restarts to the last digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from bftrain import (
    BrokenPlugin,
    Entity,
    Event,
    Harvester,
    Journal,
    Rerun,
    Settings,
    SpeedCurve,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSpec,
    build_harvester,
)
from bftrain.deciding.admission import FirstComeAdmission
from bftrain.deciding.campaigns import CampaignAdmission
from bftrain.deciding.objectives import throughput
from bftrain.rerun import recover, restore
from bftrain.values import wire
from bftrain.values.events import AdmissionUpdate, TaskInfo
from bftrain_solvers.allocators import greedy
from tests.unit.core.plugins import register
from tests.unit.core.samples import joined, left, nodes, submitted

LINEAR = SpeedCurve(nodes=(1, 100), rate=(1.0, 100.0))  # work in samples is work in node-seconds


def task(name: str, user: str, work: float | None, campaign: str = "", smallest: int = 1) -> TaskSpec:
    return TaskSpec(
        name=name, curve=LINEAR, min_nodes=smallest, max_nodes=50, work_samples=work, user=user, campaign=campaign
    )


class RecordedAdmission:
    """An admission that receives updates one after the other."""

    def __init__(self, **entities: float) -> None:
        self.admission = CampaignAdmission(entities={user: Entity(weight=weight) for user, weight in entities.items()})

    def enter(self, time_s: float, *specs: TaskSpec, used: int = 0) -> None:
        infos = tuple(TaskInfo(spec=spec, work_left_samples=spec.work_samples) for spec in specs)
        self.admission.note(AdmissionUpdate(time_s=time_s, used=used, entered=infos))

    def passed(self, time_s: float, used: int) -> None:
        self.admission.note(AdmissionUpdate(time_s=time_s, used=used))

    @property
    def order(self) -> list[str]:
        return list(self.admission.ranked())


def test_who_hands_in_little_goes_before_who_hands_in_much() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, *(task(f"much{number}", "ann", 100) for number in range(10)))
    campaigns.enter(1, task("little", "bob", 100))
    assert campaigns.order == ["little", *(f"much{number}" for number in range(10))]


def test_a_campaign_goes_whole_before_the_next_one_of_its_user() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a1", "ann", 50), task("a2", "ann", 150))
    campaigns.enter(600, task("later", "ann", 10))  # 10 minutes after the first: a campaign of its own
    campaigns.enter(601, task("b", "bob", 205))
    # ann's first ends virtually at a level of 200, bob's at 205, ann's second at 210
    assert campaigns.order == ["a1", "a2", "b", "later"]


def test_inside_a_campaign_the_least_work_goes_first() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a", "ann", 30), task("b", "ann", 10), task("c", "ann", 20), task("d", "ann", 10))
    assert campaigns.order == ["b", "d", "c", "a"]


def test_work_counts_on_the_smallest_size() -> None:
    campaigns = RecordedAdmission()
    bent = SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 15.0, 20.0))
    spec = TaskSpec(name="pair", curve=bent, min_nodes=2, max_nodes=4, work_samples=150.0, user="ann")
    campaigns.enter(0, spec, task("more", "bob", 21), task("less", "eve", 19))  # 10 s on 2 nodes: 20 node-seconds
    assert campaigns.order == ["less", "pair", "more"]


def test_a_weight_is_a_share() -> None:
    campaigns = RecordedAdmission(ann=4.0)
    campaigns.enter(0, task("a", "ann", 300), task("b", "bob", 100))  # 300 / 4 against 100 / 1
    assert campaigns.order == ["a", "b"]


def test_who_was_served_already_has_the_later_campaign_served_later() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a", "ann", 100))
    campaigns.passed(50, 2)  # 100 node-seconds: all of ann's, virtually
    campaigns.enter(50, task("b", "bob", 100))
    campaigns.enter(700, task("c", "ann", 90), used=0)
    # a ended at the level of 100, b ends at 200, c at 190
    assert campaigns.order == ["a", "c", "b"]


def test_while_no_task_runs_no_user_is_served() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a", "ann", 100))
    campaigns.passed(1e6, 0)
    assert campaigns.admission.virtual.left("ann") == 100
    campaigns.passed(1e6 + 10, 5)
    assert campaigns.admission.virtual.left("ann") == 50


def test_a_campaign_with_a_name_lasts_as_long_as_it_has_a_task() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a1", "ann", 100, "study"))
    campaigns.enter(5000, task("a2", "ann", 10, "study"), task("other", "ann", 1))
    campaigns.enter(5000, task("b", "bob", 105))
    assert campaigns.order == ["b", "a2", "a1", "other"]  # the study ends at 110, with a2 in it
    campaigns.admission.note(AdmissionUpdate(time_s=6000, finished=("a1", "a2")))
    campaigns.enter(6001, task("a3", "ann", 1000, "study"))
    assert campaigns.order == ["b", "other", "a3"]


def test_what_is_cancelled_is_taken_out_and_moves_the_others_up() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a1", "ann", 100))
    campaigns.enter(700, task("a2", "ann", 100))
    campaigns.enter(701, task("b", "bob", 150))
    assert campaigns.order == ["a1", "b", "a2"]
    campaigns.admission.note(AdmissionUpdate(time_s=702, dropped=("a1",)))
    assert campaigns.order == ["a2", "b"]


def test_what_is_left_of_a_cancelled_task_is_its_last_known_work() -> None:
    campaigns = RecordedAdmission()
    spec = task("a1", "ann", 100)
    campaigns.enter(0, spec)
    campaigns.admission.note(AdmissionUpdate(time_s=1, changed=(TaskInfo(spec=spec, work_left_samples=40.0),)))
    campaigns.enter(700, task("a2", "ann", 100))
    campaigns.admission.note(AdmissionUpdate(time_s=702, dropped=("a1",)))
    assert campaigns.admission.virtual.left("ann") == pytest.approx(160)


def test_a_curve_that_is_learned_changes_the_work() -> None:
    campaigns = RecordedAdmission()
    spec = task("a", "ann", 100)
    campaigns.enter(0, spec, task("b", "bob", 120))
    assert campaigns.order == ["a", "b"]
    for rate, order in ((0.5, ["b", "a"]), (2.0, ["a", "b"])):
        slow = msgspec.structs.replace(spec, curve=SpeedCurve(nodes=(1,), rate=(rate,)))
        campaigns.admission.note(AdmissionUpdate(time_s=1, changed=(TaskInfo(spec=slow, work_left_samples=100.0),)))
        assert campaigns.order == order
    assert campaigns.admission.virtual.left("ann") == pytest.approx(50)


def test_tasks_without_an_end_give_way_to_the_later_campaigns_of_their_user() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("for-ever", "ann", None))
    campaigns.enter(700, task("a", "ann", 3600))
    campaigns.passed(700 + 3600, 1)
    campaigns.enter(700 + 3600, task("b", "bob", 3601))
    assert campaigns.order == ["a", "b", "for-ever"]
    campaigns.passed(700 + 100 * 3600, 1)
    assert campaigns.order[-1] == "for-ever"
    campaigns.admission.note(AdmissionUpdate(time_s=1e6, finished=("for-ever", "a", "b")))
    assert campaigns.order == []


def test_what_is_over_is_forgotten() -> None:
    campaigns = RecordedAdmission()
    for number in range(50):
        campaigns.enter(1000 * number, task(f"t{number}", f"user{number % 7}", 10), used=3)
        campaigns.admission.note(AdmissionUpdate(time_s=1000 * number + 500, used=3, finished=(f"t{number}",)))
    campaigns.passed(1e6, 1)
    kept = campaigns.admission.kept()
    assert (kept["campaigns"], kept["tasks"], kept["virtual"]["tag"], kept["virtual"]["users"]) == ({}, {}, {}, {})


def test_books_go_through_json_and_come_back_as_they_were() -> None:
    campaigns = RecordedAdmission(ann=3.0)
    random = Random(1)  # noqa: S311 - a die, no secret
    for number in range(40):
        work = random.choice([None, random.uniform(1, 500)])
        campaigns.enter(100.0 * number, task(f"t{number}", random.choice(["ann", "bob", "eve"]), work), used=3)
    kept = msgspec.json.decode(msgspec.json.encode(campaigns.admission.kept()))
    again = RecordedAdmission(ann=3.0)
    again.admission.take_up(kept)
    assert again.admission.kept() == campaigns.admission.kept()
    for one in (campaigns, again):
        one.enter(5000.0, task("new", "bob", 123.0), used=7)
        one.admission.note(AdmissionUpdate(time_s=6000.0, used=7, dropped=("t7",), finished=("t3",)))
        one.passed(9000.0, 1)
    assert again.order == campaigns.order
    assert again.admission.kept() == campaigns.admission.kept()


def prolonged() -> RecordedAdmission:
    """Return one whose older campaign, without an end, began again after the younger one."""
    campaigns = RecordedAdmission()
    campaigns.enter(0.0, task("endless", "ann", None))
    campaigns.passed(3500.0, 1)
    campaigns.enter(3500.0, task("b1", "ann", 500.0))
    campaigns.passed(3700.0, 1)
    return campaigns


def test_after_a_restart_tasks_join_the_campaign_that_they_would_have_joined() -> None:
    campaigns, again = prolonged(), RecordedAdmission()
    again.admission.take_up(msgspec.json.decode(msgspec.json.encode(campaigns.admission.kept())))
    for one in (campaigns, again):
        one.enter(3800.0, task("b2", "ann", 100.0), used=1)  # 300 s after b1
        assert one.order == ["b2", "b1", "endless"]
    assert again.admission.kept() == campaigns.admission.kept()


def test_a_campaign_that_is_over_is_not_followed_by_an_older_one_after_a_restart() -> None:
    campaigns, again = prolonged(), RecordedAdmission()
    campaigns.admission.note(AdmissionUpdate(time_s=3750.0, used=1, finished=("b1",)))
    again.admission.take_up(campaigns.admission.kept())
    for one in (campaigns, again):
        one.enter(3800.0, task("b2", "ann", 100.0), used=1)
    assert again.order == campaigns.order
    assert again.admission.kept() == campaigns.admission.kept()


def test_books_from_before_these_were_kept_can_be_read() -> None:
    campaigns, again = RecordedAdmission(), RecordedAdmission()
    campaigns.enter(0.0, task("a", "ann", 300.0), task("endless", "bob", None))
    campaigns.enter(700.0, task("b", "ann", 100.0), used=0)
    books = msgspec.json.decode(msgspec.json.encode(campaigns.admission.kept()))
    del books["last"]
    for known in books["tasks"].values():
        del known["added"]
    again.admission.take_up(books)
    assert again.admission.kept() == campaigns.admission.kept()


@pytest.mark.parametrize("what", ["cancelled", "less", "more"])
def test_what_was_served_is_not_taken_off_those_without_an_end(what: str) -> None:
    campaigns = RecordedAdmission()
    some = [task(f"f{number}", "ann", 1000.0, "study") for number in range(3)]
    campaigns.enter(0.0, task("endless", "ann", None, "study"), *some)
    campaigns.enter(0.0, task("other", "bob", 1e5))
    campaigns.passed(2 * 6600.0, 1)  # half of it for ann: all of her work was served, and an hour begins again
    virtual = campaigns.admission.virtual
    assert virtual.left("ann") == pytest.approx(3600.0)
    changed = tuple(
        TaskInfo(spec=task(spec.name, "ann", 1500.0 if what == "more" else 400.0, "study"), work_left_samples=None)
        for spec in some
    )
    if what != "cancelled":
        campaigns.admission.note(AdmissionUpdate(time_s=2 * 6600.0, changed=changed))
    assert virtual.left("ann") == pytest.approx(3600.0 + (1500.0 if what == "more" else 0.0))
    campaigns.admission.note(AdmissionUpdate(time_s=2 * 6600.0, dropped=("f0", "f1", "f2")))
    assert virtual.left("ann") == pytest.approx(3600.0)


def test_other_shares_hold_from_a_restart_on() -> None:
    campaigns = RecordedAdmission()
    campaigns.enter(0, task("a", "ann", 100), task("b", "bob", 90))
    campaigns.passed(30, 1)
    assert campaigns.order == ["b", "a"]
    again = RecordedAdmission(ann=2.0)
    again.admission.take_up(campaigns.admission.kept())
    assert again.order == ["a", "b"]
    assert (again.admission.virtual.left("ann"), again.admission.virtual.left("bob")) == (85, 75)
    again.passed(60, 1)
    assert (again.admission.virtual.left("ann"), again.admission.virtual.left("bob")) == (65, 65)


def sizes(admission: str, pool: int, *specs: TaskSpec) -> Mapping[str, int]:
    harvester = build_harvester(Settings(admission=admission))
    harvester.absorb(joined(0, *nodes(1, pool)), *(submitted(0, spec) for spec in specs))
    return harvester.decide(0).sizes


def test_only_as_many_compete_as_can_use_the_pool() -> None:
    specs = [task(f"a{number}", "ann", 1000) for number in range(5)] + [task("b", "bob", 10)]
    assert list(sizes("campaigns", 60, *specs)) == ["b", "a0"]  # up to 50 nodes each
    assert list(sizes("campaigns,load=2", 60, *specs)) == ["b", "a0", "a1"]
    assert list(sizes("campaigns,demand=min", 3, *specs)) == ["b", "a0", "a1"]


def test_who_is_paused_or_too_large_is_passed_over() -> None:
    harvester = build_harvester(Settings(admission="campaigns"))
    large, small = task("large", "bob", 1, smallest=9), task("small", "ann", 1000)
    harvester.absorb(joined(0, *nodes(1, 5)), submitted(0, large), submitted(0, small))
    assert list(harvester.decide(0).sizes) == ["small"]


def moments(seed: int) -> list[tuple[Event, ...]]:
    """Return a storm: nodes come and go, tasks are submitted, finish, fail, are cancelled and measured."""
    random = Random(seed)  # noqa: S311 - a die, no secret
    found: list[tuple[Event, ...]] = [(joined(0.0, *nodes(1, 12)),)]
    alive: list[str] = []
    for number in range(120):
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
    admission="campaigns,gap_s=300", solver="greedy", max_tasks=4, max_failures=2, entities={"ann": Entity(weight=1.7)}
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
    one = recorded(tmp_path / "j.db", storm[:60])
    kept = wire.decode(wire.encode(one.snapshot), type(one.snapshot))
    assert kept.admission is not None
    two = build_harvester(SETTINGS)
    two.restore(kept)
    for moment in storm[60:]:
        assert one.absorb(*moment) == two.absorb(*moment)
        assert one.decide(one.time_s).same_as(two.decide(two.time_s))
    assert one.snapshot == two.snapshot


def test_other_settings_after_a_restart_are_rerun_too(tmp_path: Path) -> None:
    storm = moments(3)
    path = tmp_path / "j.db"
    recorded(path, storm[:60])
    others = msgspec.structs.replace(SETTINGS, entities={"bob": Entity(weight=5.0)}, admission="campaigns,load=0.5")
    with Journal.open(path) as journal:
        harvester = recover(journal, others)
        for moment in storm[60:]:
            harvester.absorb(*moment)
            journal.append(moment, harvester.decide(harvester.time_s))
    with Journal.open(path) as journal:
        assert not list(Rerun(journal).differences())


def test_who_takes_over_from_first_come_hears_of_all_who_are_there(tmp_path: Path) -> None:
    storm = moments(4)
    path = tmp_path / "j.db"
    plain = msgspec.structs.replace(SETTINGS, admission="first-come")
    harvester = Harvester(solver=greedy, objective=throughput, admission=FirstComeAdmission(4), max_failures=2)
    with Journal.create(path, plain) as journal:
        for moment in storm[:60]:
            harvester.absorb(*moment)
            journal.append(moment, harvester.decide(harvester.time_s))
    with Journal.open(path) as journal:
        taken = recover(journal, SETTINGS)
        books = taken.snapshot.admission
        assert books is not None
        assert set(books.books["tasks"]) == set(taken.unfinished)
        for moment in storm[60:]:
            taken.absorb(*moment)
            journal.append(moment, taken.decide(taken.time_s))
    with Journal.open(path) as journal:
        assert not list(Rerun(journal).differences())


def test_a_task_of_the_same_name_in_one_moment_is_another_one() -> None:
    harvester = build_harvester(SETTINGS)
    harvester.absorb(joined(0, "n1"), submitted(0, task("a", "ann", 100)))
    harvester.absorb(
        TaskCancelled(time_s=10, task="a"),
        submitted(10, task("a", "bob", 7)),
        submitted(10, task("a", "eve", 9)),  # noted, and nothing else
        TaskMeasured(time_s=10, task="a", work_left_samples=3.5),
    )
    books = harvester.snapshot.admission
    assert books is not None
    assert [(one["user"], len(one["tasks"])) for one in books.books["campaigns"].values()] == [("bob", 1)]
    assert books.books["tasks"]["a"]["left"] == 0.5


def test_books_that_cannot_be_read_name_the_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    harvester = build_harvester(SETTINGS)
    snapshot = harvester.snapshot
    assert snapshot.admission is not None
    odd = msgspec.structs.replace(snapshot, admission=msgspec.structs.replace(snapshot.admission, books={"x": 1}))
    with pytest.raises(BrokenPlugin, match="admission 'campaigns': raised ValidationError"):
        build_harvester(SETTINGS).restore(odd)
    register(monkeypatch, ("admission", "deaf", f"{__name__}:Deaf"))
    deaf = build_harvester(msgspec.structs.replace(SETTINGS, admission="deaf"))
    with pytest.raises(BrokenPlugin, match="admission 'deaf': raised KeyError"):
        deaf.absorb(joined(0, "n1"))


class Deaf(CampaignAdmission):
    """One that fails at every update."""

    def __init__(self, max_tasks: int) -> None:
        super().__init__(max_tasks)
        self.name = "deaf"

    def note(self, news: AdmissionUpdate) -> None:
        raise KeyError(news.time_s)


def test_a_journal_whose_admission_is_gone_can_still_be_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "j.db"
    recorded(path, moments(5)[:30])
    plain = msgspec.structs.replace(SETTINGS, admission="first-come")
    monkeypatch.setattr("bftrain.registry.BUILT_IN", {**_built_in_without_campaigns()})
    with Journal.open(path) as journal:
        assert recover(journal, plain).snapshot.admission is None


def _built_in_without_campaigns() -> dict[str, Mapping[str, str]]:
    from bftrain import registry  # noqa: PLC0415 - as it is when this is called

    return {**registry.BUILT_IN, "admission": {"first-come": registry.BUILT_IN["admission"]["first-come"]}}


def test_a_task_that_gets_another_name_is_known_by_it() -> None:
    admission = CampaignAdmission()
    harvester = Harvester(solver=greedy, objective=throughput, admission=admission)
    spec = task("a", "ann", 100)
    harvester.handle(submitted(0.0, spec), submitted(0.0, task("b", "bob", 500)))
    harvester.handle(TaskEdited(time_s=1.0, spec=spec, renamed="better"))
    assert harvester.unfinished == ("better", "b")
    assert set(admission.ranked()) == {"better", "b"}
    harvester.handle(TaskEdited(time_s=2.0, spec=msgspec.structs.replace(spec, name="better"), renamed="b"))
    assert harvester.unfinished == ("better", "b"), "a name that is in use is not given"
    harvester.handle(joined(3.0, "n1"), TaskFinished(time_s=3.0, task="better"))
    assert set(admission.ranked()) == {"b"}
