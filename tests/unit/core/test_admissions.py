"""Admissions by name: what can be set in them, what is refused, and how each chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bftrain import (
    BadInput,
    BftrainError,
    BrokenPlugin,
    Entity,
    Harvester,
    Settings,
    TaskSpec,
    UnknownName,
    build_harvester,
    registry,
)
from bftrain.deciding.admission import AdmitAll, FirstComeAdmission, LoadAdmission, QuotaAdmission
from bftrain.deciding.campaigns import CampaignAdmission
from bftrain.parts import absolute_admission, resolve_admission
from bftrain.ports import Admission, ChoosingAdmission, NotingAdmission, Queue
from bftrain.values.sharing import Inside
from tests.unit.core.plugins import HERE as PLUGINS
from tests.unit.core.plugins import register
from tests.unit.core.samples import joined, left, nodes, spec, submitted


def test_a_name_alone_leaves_everything_as_it_is() -> None:
    assert resolve_admission("first-come", 7) == FirstComeAdmission(7)
    assert resolve_admission("all", 7) == AdmitAll()
    assert resolve_admission("load", 7) == LoadAdmission(7, 1.0, "min")
    assert resolve_admission("campaigns", 7) == CampaignAdmission(7)


def test_what_can_be_set_is_set_in_one_text() -> None:
    assert resolve_admission("load=1.5", 7) == LoadAdmission(7, 1.5)
    assert resolve_admission("load,demand=max,factor=2", 7) == LoadAdmission(7, 2, "max")
    assert resolve_admission("load=0.5,demand=max", 7) == LoadAdmission(7, 0.5, "max")
    users = {"ann": Entity(nodes=3)}
    assert resolve_admission("quota=16,tasks=4", 7, users) == QuotaAdmission(7, 16, 4, users)
    assert resolve_admission("campaigns=60,load=2,demand=min", 7, users) == CampaignAdmission(7, 60, 2, "min", users)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("lode", "no admission is called 'lode' (did you mean 'load'?)"),
        ("first-come=3", "admission 'first-come': has no settings (write first-come alone)"),
        ("load,faktor=3", "admission 'load': has no setting 'faktor' (did you mean 'factor'?)"),
        ("load=1,factor=2", "admission 'load': 'factor' is set twice"),
        ("load,2", "admission 'load': '2' sets nothing (write a name and settings"),
        ("load,", "admission 'load': '' sets nothing"),
        ("load=much", "admission 'load': factor must be a number above 0, not 'much'"),
        ("load=0", "admission 'load': factor must be a number above 0, not 0"),
        ("load=inf", "admission 'load': factor must be a number above 0, not inf"),
        ("load,demand=most", "admission 'load': demand must be min or max, not 'most'"),
        ("quota", "admission 'quota': no user has a quota (write quota,nodes=16,tasks=4, or"),
        ("quota=1.5", "admission 'quota': nodes must be a whole number of at least 1, not 1.5"),
        ("quota,tasks=0", "admission 'quota': tasks must be a whole number of at least 1, not 0"),
        ("campaigns=-1", "admission 'campaigns': gap_s must be a number above 0, not -1"),
        ("campaigns,load=x", "admission 'campaigns': load must be a number above 0, not 'x'"),
    ],
)
def test_what_cannot_be_set_is_refused_in_words(said: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        resolve_admission(said, 7)
    assert str(refused.value).startswith(words)


def test_every_built_in_admission_can_be_made_and_keeps_to_its_port() -> None:
    for name in registry.BUILT_IN["admission"]:
        made = resolve_admission(name, 3, {"ann": Entity(nodes=1)})
        assert made.name == name
        assert isinstance(made, Admission | ChoosingAdmission)
    assert isinstance(resolve_admission("campaigns", 3), NotingAdmission)


class Youngest:
    """The youngest first, and no task over eight nodes."""

    name = "youngest"

    def __init__(self, max_tasks: int, most: int = 8) -> None:
        self.max_tasks, self.most = max_tasks, most

    def choose(self, queue: Queue) -> Mapping[str, int]:
        return dict.fromkeys(list(queue)[::-1][: self.max_tasks], self.most)

    def remark(self, task: TaskSpec) -> str:
        return "is welcome" if task.max_nodes == 9 else ""


class Raises(Youngest):
    name = "raises"

    def choose(self, queue: Queue) -> Mapping[str, int]:
        raise RuntimeError(f"no idea at {queue.time_s:g} s")


def old_fashioned(max_tasks: int) -> Admission:
    class Names:
        name = "old-fashioned"

        def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:
            return sorted(waiting_or_running)[: min(pool, max_tasks)]

    return Names()


def needs_more(max_tasks: int, secret: str) -> object:
    raise AssertionError(max_tasks, secret)


def gives_nothing(max_tasks: int) -> object:
    return max_tasks


HERE = __name__
not_callable = 3


def test_an_admission_of_an_own_file_needs_no_package(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Last:\n    name = 'last'\n    def __init__(self, max_tasks, count=1):\n        self.count = count\n"
        "    def choose(self, queue):\n        return list(queue)[-self.count:]\n"
    )
    made: Any = resolve_admission(f"{tmp_path}/mine.py:Last,count=2", 5)
    assert (made.name, made.count) == ("last", 2)
    with pytest.raises(UnknownName, match="did you mean 'Last'"):
        resolve_admission(f"{tmp_path}/mine.py:Lats", 5)


def test_a_file_is_named_so_that_it_is_found_from_everywhere(tmp_path: Path) -> None:
    assert absolute_admission("mine.py:Last=3,x=2", tmp_path) == f"{tmp_path}/mine.py:Last=3,x=2"
    assert absolute_admission("load=1.5,demand=max", tmp_path) == "load=1.5,demand=max"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("needs_more", "cannot be created: TypeError: needs_more() missing 1 required positional argument: 'secret'"),
        ("gives_nothing", "does not implement bftrain.ports: needs a name, and choose(queue) or admit(names, pool)"),
        ("not_callable", "is of the type int, not a function or class that creates an admission"),
    ],
)
def test_a_factory_that_makes_none_is_broken(monkeypatch: pytest.MonkeyPatch, target: str, words: str) -> None:
    register(monkeypatch, ("admission", "odd", f"{HERE}:{target}"))
    with pytest.raises(BrokenPlugin) as broken:
        resolve_admission("odd", 5)
    assert str(broken.value).startswith(f"admission 'odd': {words}")


def core(admission: str, *, max_tasks: int = 35, **entities: Entity) -> Harvester:
    return build_harvester(Settings(admission=admission, max_tasks=max_tasks, entities=entities))


def test_an_admission_of_before_that_knows_names_only_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("admission", "old", f"{HERE}:old_fashioned"))
    harvester = core("old", max_tasks=2)
    harvester.absorb(joined(0, *nodes(1, 9)), *(submitted(0, spec(name, 1, 2)) for name in "cba"))
    assert list(harvester.decide(0).sizes) == ["a", "b"]


def test_an_admission_may_limit_sizes_and_remark_on_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("admission", "youngest", f"{HERE}:Youngest"))
    harvester = core("youngest=5", max_tasks=2)
    harvester.absorb(joined(0, *nodes(1, 20)), *(submitted(0, spec(name, 1, 9)) for name in "abc"))
    decision = harvester.decide(0)
    assert dict(decision.sizes) == {"c": 5, "b": 5}
    assert decision.notes[-1] == "task 'c' is welcome"


def test_one_who_gives_less_than_a_minimum_or_raises_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("admission", "youngest", f"{HERE}:Youngest"), ("admission", "raises", f"{HERE}:Raises"))
    for said, words in (
        ("youngest=2", "admission 'youngest': lets task 'a' have 2 nodes, and it needs 3"),
        ("raises", f"admission 'raises': raised RuntimeError: no idea at 4 s, at {__file__}:"),
    ):
        harvester = core(said)
        harvester.absorb(joined(4, *nodes(1, 20)), submitted(4, spec("a", 3, 9)))
        with pytest.raises(BrokenPlugin) as broken:
            harvester.decide(4)
        assert str(broken.value).startswith(words)


def compete(harvester: Harvester, pool: int, *specs: TaskSpec) -> list[str]:
    harvester.absorb(joined(0, *nodes(1, pool)), *(submitted(0, task) for task in specs))
    return list(harvester.decide(0).sizes)


def test_all_compete_regardless_of_their_number() -> None:
    tasks = [spec(f"t{number}", 1, 1) for number in range(40)]
    assert len(compete(core("first-come"), 3, *tasks)) == 35
    assert len(compete(core("all"), 3, *tasks)) == 40


def test_load_admits_until_the_demand_is_so_many_times_the_pool() -> None:
    tasks = [spec(name, 4, 8) for name in "abcde"]
    assert compete(core("load"), 9, *tasks) == ["a", "b"]
    assert compete(core("load=1.5"), 9, *tasks) == ["a", "b", "c"]  # 12 of 13.5
    assert compete(core("load=2,demand=max"), 9, *tasks) == ["a", "b"]  # 16 of 18
    assert compete(core("load=5", max_tasks=3), 9, *tasks) == ["a", "b", "c"]


def test_load_always_lets_the_first_compete_and_none_overtake() -> None:
    tasks = [spec("a", 1, 8), spec("large", 6, 6), spec("small", 1, 1)]
    assert compete(core("load=0.1"), 9, *tasks) == ["a"]
    assert compete(core("load=0.6"), 9, *tasks) == ["a"]  # the large one bars the small one, or it would wait for ever
    assert compete(core("load"), 9, *tasks) == ["a", "large", "small"]


def test_load_skips_tasks_for_which_the_whole_pool_is_too_small() -> None:
    harvester = core("load")
    assert compete(harvester, 3, spec("large", 4, 4), spec("small", 1, 1)) == ["small"]
    harvester.absorb(joined(1, "n99"))
    assert list(harvester.decide(1).sizes) == ["large"]  # 4 of 4 demanded: the small one waits
    harvester.absorb(left(2, "n99"))
    assert list(harvester.decide(2).sizes) == ["small"]


def test_a_quota_bounds_what_a_user_holds_and_how_many_of_their_tasks_compete() -> None:
    tasks = [spec(f"ann{number}", 2, 8, user="ann") for number in range(4)]
    tasks += [spec(f"bob{number}", 2, 8, user="bob") for number in range(2)]
    harvester = core("quota,nodes=10,tasks=2", bob=Entity(nodes=5))
    assert compete(harvester, 40, *tasks) == ["ann0", "ann1", "bob0", "bob1"]
    held = {name: len(nodes) for name, nodes in harvester.held.items()}
    assert held == {"ann0": 5, "ann1": 5, "bob0": 3, "bob1": 2}


def test_inside_a_quota_the_oldest_may_have_all() -> None:
    tasks = [spec(f"t{number}", 2, 7, user="ann") for number in range(3)]
    harvester = core("quota=10", ann=Entity(inside=Inside.FIFO))
    compete(harvester, 40, *tasks)
    assert {name: len(nodes) for name, nodes in harvester.held.items()} == {"t0": 6, "t1": 2, "t2": 2}


def test_nodes_of_a_quota_that_a_task_cannot_use_go_to_the_others() -> None:
    tasks = [spec("a", 1, 2, user="ann"), spec("b", 1, 9, user="ann"), spec("c", 3, 9, user="ann")]
    harvester = core("quota=13")
    compete(harvester, 40, *tasks)
    assert {name: len(nodes) for name, nodes in harvester.held.items()} == {"a": 2, "b": 6, "c": 5}


def test_without_a_quota_of_nodes_only_the_number_of_tasks_counts() -> None:
    tasks = [spec(f"t{number}", 1, 4, user="ann") for number in range(3)] + [spec("b", 1, 4, user="bob")]
    harvester = core("quota,tasks=2")
    assert compete(harvester, 40, *tasks) == ["t0", "t1", "b"]
    assert set(map(len, harvester.held.values())) == {4}


def test_a_task_larger_than_its_users_quota_is_reported_at_once() -> None:
    harvester = core("quota=3")
    harvester.absorb(joined(0, *nodes(1, 20)), submitted(0, spec("a", 4, 9, user="ann")))
    decision = harvester.decide(0)
    assert decision.notes == ("task 'a' needs 4 nodes and its user 'ann' may hold 3: it never runs",)
    assert not decision.sizes


def test_users_with_shares_and_prices_reach_the_problem() -> None:
    entities, prices = {"ann": Entity(weight=2.0)}, {"v100": 2.5}
    harvester = build_harvester(Settings(entities=entities, prices=prices))
    harvester.absorb(joined(0, "n1"), submitted(0, spec("a", 1, 2)))
    problem = harvester.ask(0).problem
    assert problem is not None
    assert (dict(problem.entities), dict(problem.prices)) == (entities, prices)


def test_an_admission_of_a_package_is_checked_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("admission", "object", f"{PLUGINS}:no_solver"))
    with pytest.raises(BftrainError, match="is of the type object"):
        build_harvester(Settings(admission="object"))
