"""Which nodes placements give up and take: by hand, and against all choices for the fewest racks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, count
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import Harvester, Settings, Shrink, Stop, build_harvester, registry
from bftrain.ports import Placement
from tests.helpers.named_parts import THROUGHPUT
from tests.unit.core import parts
from tests.unit.core.samples import joined, left, spec, submitted

GROUPED: Placement = registry.load("placement", "grouped")
RACKS = {"r1": "n[1-4]", "r2": "n[5-8]", "r3": "n[9-10]"}


def rack(node: str) -> str:
    number = int(node.partition("/")[0].removeprefix("n"))
    return next(name for name, last in (("r1", 4), ("r2", 8), ("r3", 10)) if number <= last)


def held_after(
    placement: str, moments: Sequence[tuple[str, str, int]], racks: dict[str, str] | None = None
) -> set[str]:
    """Return the nodes of the task ``a`` after moments: joining and leaving nodes, and the number of nodes it has."""
    wanted = iter([size for _, _, size in moments])
    solver = parts.Scripted(lambda table: parts.say(table, {"a": next(wanted)}))
    settings = Settings(placement=placement, racks=racks or {})
    harvester = build_harvester(settings, solver=solver)
    harvester.absorb(submitted(0, spec("a", 1, 60)))
    for time_s, (joining, leaving, _) in enumerate(moments):
        harvester.handle(
            *(joined(time_s, node) for node in joining.split()), *(left(time_s, node) for node in leaving.split())
        )
    return set(harvester.held.get("a", ()))


@pytest.mark.parametrize(
    ("moments", "found"),
    [
        # A start takes the nodes that lie closest together by the numbers in their names
        ([("n1 n4 n7 n8 n9 n20 n21", "", 3)], "n7 n8 n9"),
        ([("n1 n4 n7 n20 n21", "", 2)], "n20 n21"),
        ([("a01n17 a01n18 b01n01 b01n90", "", 2)], "a01n17 a01n18"),
        ([("gpu001 cpu001 cpu002", "", 2)], "cpu001 cpu002"),
        # Growth takes those nearest to the middle of its nodes; shrinking gives up those farthest from it
        ([("n10 n11 n12", "", 3), ("n1 n2 n8 n9 n15 n30 n31", "", 5)], "n8 n9 n10 n11 n12"),
        ([("n1 n10 n11 n12 n30", "", 5), ("", "", 3)], "n10 n11 n12"),
        # A start on GPUs takes the node with the fewest that suffice; growth stays on the node
        ([("n1/gpu0 n1/gpu1 n1/gpu2 n2/gpu3 n2/gpu4 n4/gpu5", "", 1)], "n4/gpu5"),
        ([("n1/gpu0 n1/gpu1 n1/gpu2 n2/gpu3 n2/gpu7 n4/gpu5", "", 2)], "n2/gpu3 n2/gpu7"),
        ([("n2/gpu1", "", 1), ("n1/gpu0 n1/gpu1 n2/gpu0 n2/gpu7", "", 3)], "n2/gpu0 n2/gpu1 n2/gpu7"),
    ],
)
def test_neighbours_lie_close_together(moments: list[tuple[str, str, int]], found: str) -> None:
    assert held_after("neighbours", moments) == set(found.split())


@pytest.mark.parametrize(
    ("placement", "moments", "found"),
    [
        # The smallest rack that suffices; else the largest, then one that suffices
        ("consolidated", [("n1 n2 n3 n5 n6 n9", "", 2)], "n5 n6"),
        ("consolidated", [("n1 n2 n3 n5 n6 n9", "", 1)], "n9"),
        ("consolidated", [("n1 n2 n3 n5 n6 n9", "", 4)], "n1 n2 n3 n9"),
        ("consolidated", [("n1 n2 n5", "", 3), ("n3 n6 n7 n9", "", 5)], "n1 n2 n3 n5 n6"),
        ("consolidated", [("n1 n2 n3 n5 n9 n10", "", 6), ("", "", 3)], "n1 n2 n3"),
        ("consolidated", [("n1/gpu0 n2/gpu0 n2/gpu1 n5/gpu0 n5/gpu1", "", 2)], "n5/gpu0 n5/gpu1"),
    ],
)
def test_consolidated_goes_by_racks(placement: str, moments: list[tuple[str, str, int]], found: str) -> None:
    assert held_after(placement, moments, RACKS) == set(found.split())


def test_scattered_takes_from_each_rack_in_turn_and_gives_up_where_most_is() -> None:
    start = ("n1 n2 n5 n6 n9", "", 3)
    assert {rack(node) for node in held_after("scattered", [start], RACKS)} == {"r1", "r2", "r3"}
    shrunk = held_after("scattered", [("n1 n2 n3 n5", "", 4), ("", "", 2)], RACKS)
    assert sorted(map(rack, shrunk)) == ["r1", "r2"]


def test_no_choice_lies_on_fewer_racks() -> None:
    draw = Random(4)  # noqa: S311 - no secret
    names = [f"n{number}" for number in range(1, 11)]
    for _ in range(30):
        nodes = sorted(draw.sample(names, draw.randrange(1, 9)))
        size = draw.randrange(1, len(nodes) + 1)
        best = min(len(set(map(rack, some))) for some in combinations(nodes, size))
        all_of_them = (" ".join(nodes), "", len(nodes))
        for moments in ([(" ".join(nodes), "", size)], [all_of_them, ("", "", size)]):
            found = held_after("consolidated", moments, RACKS)
            assert len(found) == size
            assert len(set(map(rack, found))) == best


def taken(held: dict[str, int], groups: Sequence[str], number: int) -> str:
    free = {place: dict.fromkeys(group) for place, group in enumerate(groups) if group}
    return "".join(GROUPED.take(held, free, number))


@pytest.mark.parametrize(
    ("held", "groups", "number", "found"),
    [
        ({}, ["abcd", "efg", "hi"], 3, "efg"),  # the smallest group that is large enough
        ({}, ["abc", "def"], 2, "ab"),  # of two alike the one idle for longer
        ({}, ["ab", "cdef", "g", "hij"], 5, "cdefg"),  # the largest first, the rest is best fit
        ({"x": 1}, ["abcd", "e"], 3, "eab"),  # groups that it has nodes of come first
        ({"x": 1, "y": 0, "z": 0}, ["a", "b", "cdefgh"], 3, "abc"),
        ({}, ["abc"], 0, ""),
    ],
)
def test_grouped_keeps_nodes_together_that_joined_together(
    held: dict[str, int], groups: list[str], number: int, found: str
) -> None:
    assert taken(held, groups, number) == found


def test_grouped_gives_up_groups_of_which_least_is_held_the_freshest_first() -> None:
    held = {"a": 0, "b": 0, "c": 1, "d": 2, "e": 2, "f": 3}
    assert GROUPED.give_up(held, 4) == ["f", "c", "d", "e"]


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 60))
def test_grouped_does_what_the_rule_says(sizes: list[int], wanted: int) -> None:
    """The smallest group that is large enough, else the largest, again and again."""
    groups = {number: {f"{number}-{place}": None for place in range(size)} for number, size in enumerate(sizes)}
    chosen = list(dict.fromkeys(int(node.split("-")[0]) for node in GROUPED.take({}, groups, wanted)))
    remaining, order = dict(enumerate(sizes)), []
    while wanted > 0 and remaining:
        enough = [(size, group) for group, size in remaining.items() if size >= wanted]
        group = min(enough)[1] if enough else min((-size, group) for group, size in remaining.items())[1]
        order.append(group)
        wanted -= remaining.pop(group)
    assert chosen == order


def tasks_hit(placement: Placement, seed: int) -> list[int]:
    """Let groups come and go under tasks of random sizes; return how many tasks each departure hit."""
    random = Random(seed)  # noqa: S311 - a seeded storm, no secret
    harvester = Harvester(solver=parts.Scripted(parts.dice(seed)), objective=THROUGHPUT, placement=placement)
    harvester.handle(*(submitted(0.0, spec(f"t{number}", 1, 24)) for number in range(8)))
    names = count()
    groups: list[tuple[str, ...]] = []
    hits = []
    for time_s in range(40):
        if len(groups) > 6:
            gone = groups.pop(random.randrange(len(groups)))
            actions = harvester.absorb(left(time_s, *gone))
            hits.append(sum(isinstance(action, (Shrink, Stop)) for action in actions))
        groups.append(tuple(f"n{next(names)}" for _ in range(random.randint(4, 16))))
        harvester.handle(joined(time_s, *groups[-1]))
    return hits


def test_a_departing_group_hits_fewer_tasks_than_with_nodes_chosen_at_random() -> None:
    together = mean(mean(tasks_hit(GROUPED, seed)) for seed in range(3))
    scattered = mean(mean(tasks_hit(parts.Scattered(seed), seed)) for seed in range(3))
    assert together < 0.6 * scattered
