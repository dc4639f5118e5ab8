"""Which nodes the built-in placement gives up and takes, and that fewer tasks pay when a group leaves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from random import Random
from statistics import mean
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import Harvester, Shrink, Stop
from bftrain.deciding.objectives import throughput
from bftrain.deciding.placement import grouped
from bftrain.ports import Placement
from tests.unit.core import parts
from tests.unit.core.samples import joined, left, spec, submitted


def free(*groups: str) -> dict[int, dict[str, None]]:
    """Return free nodes: one word per group, a letter a node; groups are numbered from 0."""
    return {number: dict.fromkeys(group) for number, group in enumerate(groups) if group}


def taken(held: Mapping[str, int], groups: dict[int, dict[str, None]], number: int) -> str:
    return "".join(grouped.take(held, groups, number))


def test_it_is_a_placement() -> None:
    assert isinstance(grouped, Placement)


def test_the_smallest_group_that_is_large_enough_is_taken() -> None:
    assert taken({}, free("abcd", "efg", "hi"), 3) == "efg"
    assert taken({}, free("abcd", "ef", "hi"), 3) == "abc"


def test_of_two_that_fit_alike_the_one_idle_for_longer_is_taken() -> None:
    assert taken({}, free("abc", "def"), 2) == "ab"


def test_if_none_is_large_enough_the_largest_goes_first_and_the_rest_is_best_fit() -> None:
    assert taken({}, free("ab", "cdef", "g", "hij"), 5) == "cdefg"
    assert taken({}, free("ab", "cdef", "gh", "ijk"), 6) == "cdefab"
    assert taken({}, free("ab", "cd", "ef"), 6) == "abcdef"


def test_groups_already_held_come_first_those_of_most_nodes_before_others() -> None:
    assert taken({"x": 1}, free("abcd", "e"), 3) == "eab"
    assert taken({"x": 1, "y": 0, "z": 0}, free("a", "b", "cdefgh"), 3) == "abc"
    assert taken({"x": 7}, free("ab"), 2) == "ab"


def test_not_more_than_asked_for() -> None:
    assert taken({"x": 0}, free("abc"), 2) == "ab"
    assert taken({}, free("abc"), 0) == ""


def test_groups_of_which_least_is_held_are_given_up_the_freshest_first() -> None:
    held = {"a": 0, "b": 0, "c": 1, "d": 2, "e": 2, "f": 3}
    assert grouped.give_up(held, 1) == ["f"]
    assert grouped.give_up(held, 2) == ["f", "c"]
    assert grouped.give_up(held, 4) == ["f", "c", "d", "e"]
    assert grouped.give_up(held, 6) == ["f", "c", "d", "e", "a", "b"]


def as_written(sizes: dict[int, int], wanted: int) -> list[int]:
    """The rule in its simplest words: the smallest group that is large enough, else the largest, again and again."""
    order = []
    while wanted > 0 and sizes:
        enough = [(size, group) for group, size in sizes.items() if size >= wanted]
        group = min(enough)[1] if enough else min((-size, group) for group, size in sizes.items())[1]
        order.append(group)
        wanted -= sizes.pop(group)
    return order


@settings(max_examples=200)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 60))
def test_the_one_pass_over_groups_does_what_the_rule_says(sizes: list[int], wanted: int) -> None:
    groups = {number: {f"{number}-{place}": None for place in range(size)} for number, size in enumerate(sizes)}
    chosen = grouped.take({}, groups, wanted)
    order = list(dict.fromkeys(int(node.split("-")[0]) for node in chosen))
    assert order == as_written(dict(enumerate(sizes)), wanted)
    assert len(chosen) == min(wanted, sum(sizes))


def test_many_small_groups_cost_no_quadratic_time() -> None:
    def cost(groups: int) -> float:
        shattered = {number: {f"n{number}": None} for number in range(groups)}
        begun = process_time()
        assert len(grouped.take({}, shattered, groups)) == groups
        return process_time() - begun

    few = min(cost(4_000) for _ in range(5))
    many = min(cost(32_000) for _ in range(5))
    assert many < 30 * few  # eight times as many: eight times the time when linear, sixty-four when quadratic


def tasks_hit(placement: Placement, seed: int) -> list[int]:
    """Let groups come and go under tasks of random sizes; gives how many tasks each departure hit."""
    random = Random(seed)  # noqa: S311 - a seeded storm, no secret
    harvester = Harvester(solver=parts.Scripted(parts.dice(seed)), objective=throughput, placement=placement)
    harvester.handle(*(submitted(0.0, spec(f"t{number}", 1, 24)) for number in range(8)))
    names = count()
    groups: list[tuple[str, ...]] = []
    hits = []
    for time_s in range(60):
        if len(groups) > 6:
            gone = groups.pop(random.randrange(len(groups)))
            actions = harvester.absorb(left(time_s, *gone))
            hits.append(sum(isinstance(action, (Shrink, Stop)) for action in actions))
        groups.append(tuple(f"n{next(names)}" for _ in range(random.randint(4, 16))))
        harvester.handle(joined(time_s, *groups[-1]))
    return hits


def test_a_departing_group_hits_fewer_tasks_than_with_nodes_chosen_at_random() -> None:
    together = mean(mean(tasks_hit(grouped, seed)) for seed in range(5))
    scattered = mean(mean(tasks_hit(parts.Scattered(seed), seed)) for seed in range(5))
    assert together < 0.6 * scattered
