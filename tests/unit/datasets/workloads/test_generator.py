"""Jobs of a shared cluster: drawn as said, each property from a stream of its own."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import correlation, fmean, quantiles
from typing import Any

import pytest

from bftrain import BadInput, BadValue, generate_mix, load_tasks, save_tasks
from bftrain.taskfiles.records import PROFILE_NAMES, profiles
from bftrain_datasets.workloads.generator import GANGS, ClusterShape, bundled_models, generate_cluster, models_of
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_datasets.workloads.task_generators import TaskArrivals, generate_trials
from tests.helpers.workloads import table

MANY = 20_000
LAMBDA_S = 9000.0  # mean gap, as in Gavel's traces of that name


def share_is(count: int, share: float, of: int) -> bool:
    """Within four standard deviations of a binomial distribution: one seed in 16,000 would miss it."""
    return abs(count - share * of) < 4 * math.sqrt(of * share * (1 - share))


@pytest.fixture(scope="module")
def tasks() -> list[Any]:
    shape = ClusterShape(high_share=0.2, deadlines=(1.2, 2.0, 10.0), users=4)
    return list(generate_cluster(MANY, 3, arrivals=TaskArrivals(per_hour=3600 / LAMBDA_S), shape=shape))


def durations(tasks: list[Any]) -> list[float]:
    return [task.work_samples / task.curve.speed(task.min_nodes) for task in tasks]


def test_gaps_are_exponential_and_the_first_job_comes_at_once(tasks: list[Any]) -> None:
    times = [task.submit_s for task in tasks]
    gaps = [after - before for before, after in pairwise(times)]
    assert times[0] == 0
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(LAMBDA_S, rel=4 / math.sqrt(MANY))
    for share in (0.1, 0.5, 0.9, 0.99):
        assert share_is(sum(gap < -LAMBDA_S * math.log(1 - share) for gap in gaps), share, len(gaps))


def test_durations_are_of_two_lengths_even_in_their_logarithm(tasks: list[Any]) -> None:
    powers = [math.log10(duration_s / 60) for duration_s in durations(tasks)]
    assert 1.5 <= min(powers) < 1.51
    assert 3.99 < max(powers) <= 4.0
    long = [power for power in powers if power >= 3]
    assert share_is(len(long), 0.2, MANY)
    assert quantiles(long, n=4) == pytest.approx([3.25, 3.5, 3.75], abs=0.04)
    assert quantiles([power for power in powers if power < 3], n=4) == pytest.approx([1.875, 2.25, 2.625], abs=0.04)


def test_gangs_weights_deadlines_models_and_users_have_their_shares(tasks: list[Any]) -> None:
    gangs = Counter(task.min_nodes for task in tasks)
    assert set(gangs) == set(GANGS)
    assert all(share_is(gangs[gang], share, MANY) for gang, share in GANGS.items())
    assert share_is(sum(task.weight == 5 for task in tasks), 0.2, MANY)
    slack = [
        round((task.deadline_s - task.submit_s) / duration_s, 3)
        for task, duration_s in zip(tasks, durations(tasks), strict=True)
    ]
    assert set(slack) == {1.2, 2.0, 10.0}
    assert all(share_is(count, 1 / 3, MANY) for count in Counter(slack).values())
    models = Counter(task.name.partition("-")[0] for task in tasks)
    assert set(models) == set(PROFILE_NAMES)
    assert all(share_is(count, 1 / 7, MANY) for count in models.values())
    users = Counter(task.user for task in tasks)
    assert set(users) == {"user-1", "user-2", "user-3", "user-4"}
    assert all(share_is(count, 1 / 4, MANY) for count in users.values())


def test_the_streams_do_not_know_of_each_other(tasks: list[Any]) -> None:
    """No two properties go together: all correlations are as small as chance makes them."""
    columns = {
        "gang": [float(task.min_nodes) for task in tasks],
        "power": [math.log10(duration_s) for duration_s in durations(tasks)],
        "weight": [task.weight for task in tasks],
        "user": [float(task.user[-1]) for task in tasks],
        "model": [float(PROFILE_NAMES.index(task.name.partition("-")[0])) for task in tasks],
        "gap": [0.0, *(b.submit_s - a.submit_s for a, b in pairwise(tasks))],
    }
    for one, first in columns.items():
        for other, second in columns.items():
            if one < other:
                assert abs(correlation(first, second)) < 4 / math.sqrt(MANY), (one, other)


def test_without_a_rate_all_come_at_the_start() -> None:
    found = generate_cluster(5, arrivals=TaskArrivals(start_s=7))
    assert {task.submit_s for task in found} == {7.0}
    assert {task.deadline_s for task in found} == {None}
    assert {(task.user, task.campaign, task.weight) for task in found} == {("", "", 1.0)}


def test_a_burst_comes_at_once_from_one_user_and_is_a_campaign() -> None:
    shape = ClusterShape(burst_share=0.3, burst_size=8, users=50)
    found = generate_cluster(3000, 1, arrivals=TaskArrivals(per_hour=10), shape=shape)
    bursts: dict[str, list[Any]] = {}
    for task in found:
        bursts.setdefault(task.campaign, []).append(task)
    single = bursts.pop("")
    assert all(len({(task.submit_s, task.user) for task in burst}) == 1 for burst in bursts.values())
    *whole, _ = bursts.values()
    assert {len(burst) for burst in whole} == {8}
    assert len({task.submit_s for task in single}) == len(single)
    assert share_is(len(bursts), 0.3, len(bursts) + len(single))


def test_rigid_and_elastic_sizes() -> None:
    rigid, elastic = (generate_cluster(50, 2, shape=ClusterShape(elastic=elastic)) for elastic in (False, True))
    assert {task.min_nodes == task.max_nodes for task in rigid} == {True}
    assert {(task.min_nodes, task.max_nodes) for task in elastic} == {(1, 64)}
    assert [task.work_samples for task in rigid] == [task.work_samples for task in elastic]
    assert {task.grow_cost_s for task in rigid} == {18.0}


def test_models_of_a_throughput_table(tmp_path: Path) -> None:
    speeds = load_speed_table(table(tmp_path))
    found = generate_cluster(200, 5, models=models_of(speeds, ("v100",)))
    assert {task.name.rpartition("-")[0] for task in found if task.min_nodes == 1} == {"net-b16", "other"}
    assert {task.name.rpartition("-")[0] for task in found if task.min_nodes > 1} == {"net-b16"}
    elastic = ClusterShape(gangs={2: 1, 4: 1}, elastic=True)
    slow = generate_cluster(50, 5, models=models_of(speeds, ("k80",)), shape=elastic)
    assert {(task.min_nodes, task.max_nodes) for task in slow} == {(2, 4)}
    with pytest.raises(BadInput, match=r"no model was measured on a gang of 1 .choose gangs among: 2, 4"):
        generate_cluster(50, 5, models=models_of(speeds, ("k80",)))


def test_the_bundled_models_are_those_of_the_profiles() -> None:
    assert {model.name: model.curve for model in bundled_models()} == {
        name: each.curve for name, each in profiles().items()
    }


@pytest.mark.parametrize("suffix", [".toml", ".csv"])
def test_generated_jobs_survive_their_file(tmp_path: Path, suffix: str) -> None:
    shape = ClusterShape(deadlines=(1.5,), burst_share=0.5, burst_size=3, users=2, high_share=0.5)
    made = generate_cluster(40, 8, arrivals=TaskArrivals(per_hour=2), shape=shape)
    path = tmp_path / f"tasks{suffix}"
    save_tasks(made, path)
    assert load_tasks(path) == made


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"long_share": 1.5}, "long_share: must be from 0 to 1, not 1.5"),
        ({"high_share": -0.1}, "high_share: must be from 0 to 1"),
        ({"burst_share": float("nan")}, "burst_share: must be from 0 to 1"),
        ({"high_weight": -1}, "high_weight: must be at least 0"),
        ({"gangs": {}}, "gangs: must be whole numbers of at least 1"),
        ({"gangs": {0: 1.0}}, "gangs: must be whole numbers of at least 1"),
        ({"gangs": {1: -1.0, 2: 2.0}}, "gangs: must have shares that are not negative"),
        ({"gangs": {1: 0.0}}, "gangs: must have shares"),
        ({"deadlines": (1.0, 0.0)}, "deadlines: must be multiples above 0"),
        ({"burst_size": 0}, "burst_size: must be at least 1"),
        ({"users": -1}, "users: must be at least 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        ClusterShape(**options)


def test_counts_seeds_and_rates_that_cannot_be() -> None:
    with pytest.raises(BadValue, match="count: must be at least 1"):
        generate_cluster(0)
    with pytest.raises(BadValue, match="seed: must not be negative"):
        generate_cluster(1, -1)
    with pytest.raises(BadValue, match="per_hour: must be above 0"):
        generate_cluster(1, arrivals=TaskArrivals(per_hour=0))


@pytest.mark.parametrize("generate", [generate_cluster, generate_mix, generate_trials])
def test_too_many_tasks_are_refused_before_any_is_made(generate: Any) -> None:  # noqa: ANN401 - any of three
    with pytest.raises(BadValue, match=r"tasks\.count: must not exceed 500,000, but is 2,147,483,647"):
        generate(0x7FFFFFFF, **({} if generate is generate_trials else {"seed": 1}))


def test_a_burst_is_not_larger_than_what_is_asked_for() -> None:
    made = generate_cluster(3, shape=ClusterShape(burst_share=1, burst_size=0x7FFFFFFF))
    assert [task.campaign for task in made] == ["burst-1"] * 3


def test_a_gang_without_a_share_is_never_drawn() -> None:
    found = generate_cluster(500, shape=ClusterShape(gangs={1: 0, 2: 1, 8: 0}))
    assert {task.min_nodes for task in found} == {2}


def test_jobs_with_speeds_on_several_kinds(tmp_path: Path) -> None:
    kinds = load_speed_table(table(tmp_path))
    models = models_of(kinds, ("v100", "k80"))
    plain = generate_cluster(200, 5, models=models_of(kinds, ("v100",)), shape=ClusterShape(gangs={1: 0.5, 2: 0.5}))
    made = generate_cluster(200, 5, models=models, shape=ClusterShape(gangs={1: 0.5, 2: 0.5}))
    assert [task.work_samples for task in made] == [task.work_samples for task in plain]  # durations are meant on v100
    seen = set()
    for task in made:
        assert task.curve == task.curves["v100"]
        seen.add((task.min_nodes, *task.curves))
    assert seen == {(1, "v100"), (2, "v100", "k80")}  # one node of the other is too small
    elastic = generate_cluster(50, 5, models=models, shape=ClusterShape(gangs={2: 1.0}, elastic=True))
    assert {(task.min_nodes, task.max_nodes) for task in elastic} == {(1, 8)}
