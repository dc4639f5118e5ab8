"""A policy of rounds as a live run asks it chooses the same tasks and kinds as a simulation, round by round."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

import bftrain
from bftrain import Decision, Harvester, NodesJoined, SpeedCurve, TaskFinished, TaskMeasured, TaskSpec, TaskSubmitted
from bftrain.config import LiveSettings
from bftrain.errors import BadValue, UnknownName
from bftrain.values.events import Event
from bftrain_replay.rounds import round_solver
from bftrain_replay.rounds.policy_choice import PolicyChoice
from tests.helpers.round_cases import gang

CLUSTER = {"k80": 4, "p100": 3, "v100": 2}
ROUND_S = 60.0


def some_tasks(seed: int, count: int) -> list[TaskSpec]:
    chance = random.Random(seed)  # noqa: S311 - equal tasks in every run
    tasks = []
    for number in range(count):
        size = chance.choice([1, 1, 1, 2])
        most = {"k80": 1.0, "p100": chance.uniform(1.2, 3.0), "v100": chance.uniform(2.0, 6.0)}
        more = {"weight": chance.choice([1.0, 2.0]), "user": chance.choice("ab"), "speeds": most}
        tasks.append(gang(f"t{number}", chance.uniform(100.0, 3000.0), size, chance.uniform(0.0, 4000.0), **more))
    return tasks


class RoundsByHand:
    """A live run on a clock of its own, whose tasks train at the speeds of their curves."""

    def __init__(self, policy: str, cluster: Mapping[str, int], tasks: Sequence[TaskSpec]) -> None:
        self.harvester: Harvester = bftrain.build_harvester(LiveSettings(policy=policy, round_s=ROUND_S))
        self._nodes = [
            NodesJoined(time_s=0.0, nodes=tuple(f"{kind}-{number}" for number in range(count)), kind=kind)
            for kind, count in cluster.items()
        ]
        self._specs = {task.name: task for task in tasks}
        self._left = {task.name: float(task.work_samples or 0.0) for task in tasks}
        self.end_s: dict[str, float] = {}
        self.decisions: list[Decision] = []

    def run(self) -> dict[str, float]:
        """Return when each task has finished."""
        self.harvester.absorb(*self._nodes)
        number = 0
        events: list[Event] = [TaskSubmitted(time_s=each.submit_s, spec=each) for each in self._specs.values()]
        while len(self.end_s) < len(self._specs):
            now_s = number * ROUND_S
            events.sort(key=lambda event: event.time_s)
            here = [event for event in events if event.time_s <= now_s]
            events = [event for event in events if event.time_s > now_s]
            for event in here:
                self.harvester.absorb(event)
            for name in self.harvester.unfinished:
                self.harvester.absorb(TaskMeasured(time_s=now_s, task=name, work_left_samples=self._left[name]))
            decision = self.harvester.decide(now_s)
            self.decisions.append(decision)
            events += self._trained(decision.sizes, decision.kinds, now_s)
            number += 1
        return self.end_s

    def _trained(self, sizes: Mapping[str, int], kinds: Mapping[str, str], now_s: float) -> list[Event]:
        done = list[Event]()
        for name, size in sizes.items():
            curve = self._specs[name].curve_on(kinds.get(name, ""))
            if not size or curve is None:
                continue
            speed = curve.speed(size)
            need_s = self._left[name] / speed
            if need_s <= ROUND_S:
                self.end_s[name] = now_s + need_s
                done.append(TaskFinished(time_s=now_s + need_s, task=name))
            self._left[name] -= speed * ROUND_S
        return done


@pytest.mark.parametrize(
    "policy", ["fifo", "las", "srtf", "tiresias=600", "max-min", "finish-time", "makespan", "allox"]
)
def test_every_task_finishes_as_in_the_simulation(policy: str) -> None:
    tasks = some_tasks(seed=1, count=20)
    simulated = bftrain.rounds(CLUSTER, tasks, policy=policy, round_s=ROUND_S)
    ends_s = {row.name: row.finish_s for row in simulated.tasks.itertuples()}
    assert RoundsByHand(policy, CLUSTER, tasks).run() == pytest.approx(ends_s)


def test_more_tasks_than_reserved_rows_finish_all() -> None:
    tasks = [gang(f"t{number}", 50.0, submit_s=10.0 * number) for number in range(150)]
    ends_s = RoundsByHand("las", {"": 4}, tasks).run()
    assert len(ends_s) == 150


def test_a_task_that_keeps_its_nodes_is_not_stopped() -> None:
    tasks = [gang("a", 600.0), gang("b", 600.0)]
    run = RoundsByHand("max-min", {"": 2}, tasks)
    run.run()
    assert run.end_s == pytest.approx({"a": 600.0, "b": 600.0})


def test_an_unknown_policy_is_an_error_at_the_start() -> None:
    with pytest.raises(UnknownName, match="max-mim"):
        bftrain.build_harvester(LiveSettings(policy="max-mim"))


def at(harvester: Harvester, time_s: float, *events: Event) -> dict[str, int]:
    """Apply events, and return the sizes of the round that starts."""
    for event in events:
        harvester.absorb(event)
    return dict(harvester.decide(time_s).sizes)


def submitted(*tasks: TaskSpec) -> list[Event]:
    return [TaskSubmitted(time_s=0.0, spec=task) for task in tasks]


def live(policy: str) -> Harvester:
    return bftrain.build_harvester(LiveSettings(policy=policy, round_s=ROUND_S))


def joined(*nodes: str, time_s: float = 0.0, kind: str = "") -> Event:
    return NodesJoined(time_s=time_s, nodes=nodes, kind=kind)


@pytest.mark.parametrize("policy", ["max-min", "makespan", "finish-time", "las"])
def test_a_task_whose_work_is_done_but_still_runs_stops_no_other(policy: str) -> None:
    harvester = live(policy)
    at(harvester, 0.0, joined("n1", "n2"), *submitted(gang("a", 100.0), gang("b", 100.0)))
    done = TaskMeasured(time_s=60.0, task="a", work_left_samples=0.0)
    new = TaskSubmitted(time_s=60.0, spec=gang("c", 50.0))
    sizes = at(harvester, 120.0, done, new, joined("n3", time_s=60.0))
    assert sizes == {"a": 1, "b": 1, "c": 1}


def test_an_endless_task_waits_if_the_policy_needs_work_and_comes_last_by_remaining_time() -> None:
    tasks = [gang("endless", None), gang("a", 100.0)]
    assert at(live("makespan"), 0.0, joined("n1", "n2"), *submitted(*tasks)) == {"endless": 0, "a": 1}
    assert at(live("srtf"), 0.0, joined("n1", "n2"), *submitted(*tasks)) == {"endless": 1, "a": 1}
    assert at(live("srtf"), 0.0, joined("n1"), *submitted(*tasks)) == {"endless": 0, "a": 1}


def test_more_nodes_than_ever_before_change_nothing_for_running_tasks() -> None:
    curve = SpeedCurve(nodes=(1, 8), rate=(1.0, 8.0))
    task = TaskSpec(name="a", max_nodes=8, curve=curve, work_samples=1e5)
    harvester = live("optimus")
    nodes = [f"n{number}" for number in range(8)]
    assert at(harvester, 0.0, joined(*nodes), *submitted(task)) == {"a": 8}
    assert at(harvester, 60.0, joined("n8", time_s=30.0)) == {"a": 8}


def test_new_measurements_change_the_shares() -> None:
    curves = {"fast": SpeedCurve(nodes=(1,), rate=(10.0,)), "slow": SpeedCurve(nodes=(1,), rate=(1.0,))}
    tasks = [gang(name, 1e6, speeds={"fast": 10.0, "slow": 1.0}) for name in ("a", "b")]
    harvester = live("makespan")
    at(harvester, 0.0, joined("f", kind="fast"), joined("s", kind="slow"), *submitted(*tasks))
    slower = {**curves, "fast": SpeedCurve(nodes=(1,), rate=(1.0,))}
    harvester.absorb(TaskMeasured(time_s=1.0, task="a", curves=slower))
    taken = [harvester.decide(60.0 * number).kinds for number in range(1, 9)]
    assert [kinds["b"] for kinds in taken].count("fast") >= 6, "a gains nothing there"


def test_a_policy_decides_without_nodes_and_with_the_first_ones() -> None:
    harvester = live("max-min")
    assert at(harvester, 0.0, *submitted(gang("a", 100.0))) == {"a": 0}
    assert at(harvester, 60.0, joined("n1", time_s=30.0, kind="v100")) == {"a": 1}


def test_a_task_larger_than_the_pool_waits() -> None:
    curve = SpeedCurve(nodes=(4, 8), rate=(4.0, 8.0))
    large = TaskSpec(name="large", min_nodes=4, max_nodes=8, curve=curve, work_samples=100.0)
    assert at(live("optimus"), 0.0, joined("n1", "n2"), *submitted(large, gang("a", 10.0))) == {"large": 0, "a": 1}


def test_rounds_are_from_a_second_to_a_day() -> None:
    for round_s in (1e-9, 1e12):
        with pytest.raises(BadValue, match="round_s"):
            LiveSettings(policy="las", round_s=round_s)


def test_an_elastic_task_runs_at_its_smallest_size() -> None:
    curve = SpeedCurve(nodes=(1, 4), rate=(1.0, 3.0))
    harvester = bftrain.build_harvester(LiveSettings(policy="fifo", round_s=ROUND_S))
    task = TaskSpec(name="a", min_nodes=2, max_nodes=4, curve=curve, work_samples=100.0)
    harvester.absorb(NodesJoined(time_s=0.0, nodes=("n1", "n2", "n3")), TaskSubmitted(time_s=0.0, spec=task))
    assert dict(harvester.decide(0.0).sizes) == {"a": 2}


def long_tasks_before_short_ones() -> list[TaskSpec]:
    long = [gang(f"long{number}", 6000.0, submit_s=0.0) for number in range(4)]
    return long + [gang(f"short{number}", 60.0, submit_s=10.0 * number) for number in range(40)]


def mean_completion_s(policy: str, tasks: Sequence[TaskSpec]) -> tuple[float, RoundsByHand]:
    run = RoundsByHand(policy, {"": 2}, tasks)
    ends_s = run.run()
    return sum(ends_s[task.name] - task.submit_s for task in tasks) / len(tasks), run


def test_auto_takes_the_policy_that_serves_recent_tasks_best_in_simulation() -> None:
    tasks = long_tasks_before_short_ones()
    fifo_s, _ = mean_completion_s("fifo", tasks)
    srtf_s, _ = mean_completion_s("srtf", tasks)
    auto_s, run = mean_completion_s("auto=completion,fifo,srtf", tasks)
    assert auto_s == pytest.approx(srtf_s, rel=0.1)
    assert auto_s < fifo_s / 2
    assert {decision.solver for decision in run.decisions if decision.sizes} >= {"srtf"}
    reasons = [decision.solver_words for decision in run.decisions if decision.solver_words]
    assert reasons[0].startswith("srtf for completion of 5 tasks in simulation: fifo ")
    assert len(reasons) <= len(run.decisions) / 10 + 1


def test_auto_keeps_its_policy_where_another_gains_nothing() -> None:
    tasks = [gang(f"t{number}", 300.0, submit_s=100.0 * number) for number in range(12)]
    _, run = mean_completion_s("auto=makespan,fifo,srtf", tasks)
    assert {decision.solver for decision in run.decisions if decision.sizes} == {"fifo"}


def test_auto_simulates_the_latest_tasks_even_if_earlier_ones_are_present(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    def look(_choice: PolicyChoice, _time_s: float, recent: Sequence[TaskSpec], _nodes: Mapping[str, int]) -> str:
        seen.append(tuple(task.name for task in recent))
        return ""

    monkeypatch.setattr(round_solver, "RECENT", 3)
    monkeypatch.setattr(PolicyChoice, "look", look)
    tasks = [gang(f"t{number}", 300.0, submit_s=10.0 * number) for number in range(5)]
    RoundsByHand("auto", {"": 1}, tasks).run()
    assert set(seen) == {("t0",), ("t2", "t3", "t4")}


def test_auto_chooses_among_policies_and_figures_that_exist() -> None:
    with pytest.raises(UnknownName, match="no figure is called 'speed'"):
        bftrain.build_harvester(LiveSettings(policy="auto=speed", round_s=ROUND_S))
    with pytest.raises(UnknownName, match="'las2'"):
        bftrain.build_harvester(LiveSettings(policy="auto=rho,las2", round_s=ROUND_S))
