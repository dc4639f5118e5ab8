"""Consolidated and scattered placement: by hand, and against all choices for the fewest places."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from bftrain import conformance
from bftrain.deciding.placement_by_place import ConsolidatedPlacement, consolidated, scattered
from bftrain.node_units import host_of
from bftrain.topology import rack_of

RACKS = {"r1": "n[1-4]", "r2": "n[5-8]", "r3": "n[9-10]"}
rack = rack_of(RACKS)
by_rack = consolidated.in_places((rack, host_of))


def free(*nodes: str) -> dict[int, dict[str, None]]:
    return {number: {node: None} for number, node in enumerate(nodes)}


def held(*nodes: str) -> dict[str, int]:
    return dict.fromkeys(nodes, 0)


def test_a_start_takes_the_smallest_rack_that_suffices() -> None:
    nodes = free("n1", "n2", "n3", "n5", "n6", "n9")
    assert set(by_rack.take({}, nodes, 2)) == {"n5", "n6"}
    assert set(by_rack.take({}, nodes, 1)) == {"n9"}
    assert set(by_rack.take({}, nodes, 4)) == {"n1", "n2", "n3", "n9"}  # the largest, then one that suffices


def test_growth_stays_in_the_racks_that_are_held() -> None:
    assert set(by_rack.take(held("n1", "n2", "n5"), free("n3", "n6", "n7", "n9"), 2)) == {"n3", "n6"}


def test_what_lies_apart_is_given_up_first() -> None:
    assert set(by_rack.give_up(held("n1", "n2", "n3", "n5", "n9", "n10"), 3)) == {"n5", "n9", "n10"}


def test_gpus_go_by_racks_then_by_hosts() -> None:
    nodes = free("n1/gpu0", "n2/gpu0", "n2/gpu1", "n5/gpu0", "n5/gpu1")
    assert set(by_rack.take({}, nodes, 2)) == {"n5/gpu0", "n5/gpu1"}
    assert set(consolidated.take(held("n1/gpu1"), nodes, 3)) == {"n1/gpu0", "n2/gpu0", "n2/gpu1"}


def test_scattered_takes_from_each_in_turn_and_gives_up_where_most_is() -> None:
    apart = scattered.in_places((rack,))
    assert {rack(node) for node in apart.take({}, free("n1", "n2", "n5", "n6", "n9"), 3)} == {"r1", "r2", "r3"}
    assert rack(apart.take(held("n1"), free("n2", "n3", "n5"), 1)[0]) == "r2"
    assert {rack(node) for node in apart.give_up(held("n1", "n2", "n3", "n5"), 2)} == {"r1"}


@pytest.mark.parametrize("placement", [consolidated, scattered])
def test_both_keep_the_rules_of_placements(placement: ConsolidatedPlacement) -> None:
    conformance.check_placement(placement)


def test_no_choice_lies_on_fewer_racks() -> None:
    """Of all choices from nothing, none of as many nodes lies on fewer racks; nor of what stays after giving up."""
    draw = random.Random(4)  # noqa: S311 - no secret
    names = [f"n{number}" for number in range(1, 11)]
    for _ in range(60):
        nodes = sorted(draw.sample(names, draw.randrange(1, 9)))
        count = draw.randrange(1, len(nodes) + 1)
        best = min(len(set(map(rack, some))) for some in combinations(nodes, count))
        assert len(set(map(rack, by_rack.take({}, free(*nodes), count)))) == best
        stays = set(nodes) - set(by_rack.give_up(held(*nodes), len(nodes) - count))
        assert len(stays) == count
        assert len(set(map(rack, stays))) == best
