"""Admissions by name: what can be set in them, what is refused, and how each chooses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bftrain import BadInput, BrokenPlugin, Entity, Harvester, Settings, TaskSpec, UnknownName, build_harvester
from bftrain.ports import Queue
from tests.unit.core.plugins import register
from tests.unit.core.samples import joined, nodes, spec, submitted


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("lode", "did you mean 'load'"),
        ("first-come=3", "'first-come'"),
        ("load,faktor=3", "did you mean 'factor'"),
        ("load=1,factor=2", "'factor'"),
        ("load,2", "'2'"),
        ("load,", "''"),
        ("load=much", "'much'"),
        ("load=0", "factor"),
        ("load=inf", "inf"),
        ("load,demand=most", "'most'"),
        ("quota", "'quota'"),
        ("quota=1.5", "nodes"),
        ("quota,tasks=0", "tasks"),
        ("campaigns", "no longer built in .*examples/admissions/campaigns.py"),
    ],
)
def test_what_cannot_be_set_is_refused_in_words(said: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        core(said)


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
    harvester = core(f"{tmp_path}/mine.py:Last,count=2")
    harvester.absorb(joined(0, *nodes(1, 9)), *(submitted(0, spec(name, 1, 2)) for name in "cba"))
    assert set(harvester.decide(0).sizes) == {"b", "a"}
    with pytest.raises(UnknownName, match="did you mean 'Last'"):
        core(f"{tmp_path}/mine.py:Lats")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("needs_more", "cannot be created: TypeError: needs_more() missing 1 required positional argument: 'secret'"),
        ("gives_nothing", "does not implement bftrain.ports: needs a name, and choose(queue)"),
        ("not_callable", "is of the type int, not a function or class that creates an admission"),
    ],
)
def test_a_factory_that_makes_none_is_broken(monkeypatch: pytest.MonkeyPatch, target: str, words: str) -> None:
    register(monkeypatch, ("admission", "odd", f"{HERE}:{target}"))
    with pytest.raises(BrokenPlugin) as broken:
        core("odd")
    assert str(broken.value).startswith(f"admission 'odd': {words}")


def core(admission: str, *, max_tasks: int = 35, **entities: Entity) -> Harvester:
    return build_harvester(Settings(admission=admission, max_tasks=max_tasks, entities=entities))


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
        ("youngest=2", "admission 'youngest': limits task 'a' to 2 nodes, but it needs 3"),
        ("raises", f"admission 'raises': raised RuntimeError: no idea at 4 s, at {__file__}:"),
    ):
        harvester = core(said)
        harvester.absorb(joined(4, *nodes(1, 20)), submitted(4, spec("a", 3, 9)))
        with pytest.raises(BrokenPlugin) as broken:
            harvester.decide(4)
        assert str(broken.value).startswith(words)


def test_users_with_shares_and_prices_reach_the_problem() -> None:
    entities, prices = {"ann": Entity(weight=2.0)}, {"v100": 2.5}
    harvester = build_harvester(Settings(entities=entities, prices=prices))
    harvester.absorb(joined(0, "n1"), submitted(0, spec("a", 1, 2)))
    problem = harvester.ask(0).problem
    assert problem is not None
    assert (dict(problem.entities), dict(problem.prices)) == (entities, prices)
