"""Nodes that lie close together by their names go to the same task, however the free ones are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain.conformance import check_placement
from bftrain.deciding.placement import neighbours, position
from bftrain.deciding.pool import NodePool
from bftrain.ports import OrderedPlacement
from bftrain.values.ordered_nodes import OrderedNodes


def free(*names: str) -> OrderedNodes:
    return OrderedNodes(position, names)


def taken(held: str, names: str, count: int) -> list[str]:
    return list(neighbours.take_ordered(dict.fromkeys(held.split(), 0), free(*names.split()), count))


def test_it_is_a_placement_that_orders_nodes() -> None:
    assert isinstance(neighbours, OrderedPlacement)
    check_placement(neighbours)


@pytest.mark.parametrize(
    "names",
    [
        "nid00009 nid00010 nid00100",
        "a01n17 a01n18 a02n01 a11n01",
        "r1i0n9 r1i0n10 r1i1n0 r2i0n0",
        "x1000c0s7b1n0 x1000c0s7b1n1 x1000c0s7b2n0",
    ],
)
def test_the_order_is_that_of_the_numbers_in_a_name(names: str) -> None:
    assert sorted(set(names.split()), key=position) == names.split()


def test_names_of_other_letters_lie_far_away() -> None:
    assert abs(position("gpu001") - position("cpu001")) > 10**8
    assert abs(position("a01n01") - position("b01n01")) > 10**8
    assert abs(position("login") - position("n1")) > 10**8
    assert position("n" * 5000 + "9" * 5000) < 2**63


def test_a_start_takes_those_that_lie_closest_together() -> None:
    assert taken("", "n1 n4 n7 n8 n9 n20 n21", 3) == ["n7", "n8", "n9"]
    assert taken("", "n1 n4 n7 n20 n21", 2) == ["n20", "n21"]
    assert taken("", "n3 n1 n2", 3) == ["n1", "n2", "n3"]


def gpus(**free: str) -> str:
    """Name the free GPUs of nodes by the letters of their numbers."""
    return " ".join(f"{node}/gpu{number}" for node, numbers in free.items() for number in numbers)


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (1, gpus(n4="5")),
        (2, gpus(n3="07")),  # however far apart on it
        (3, gpus(n2="345")),
        (5, gpus(n1="01234")),
        (9, gpus(n1="01234567", n2="3")),
    ],
)
def test_a_start_on_gpus_takes_the_node_with_the_fewest_that_suffice(count: int, found: str) -> None:
    free_gpus = gpus(n1="01234567", n2="3456", n3="07", n4="5")
    assert taken("", free_gpus, count) == found.split()


def test_growth_on_gpus_stays_on_the_node_and_shrinking_goes_back_to_it() -> None:
    assert taken(gpus(n2="12"), gpus(n1="01", n2="07", n3="0"), 2) == gpus(n2="07").split()
    assert taken(gpus(n2="12"), gpus(n1="0", n2="7", n9="012345"), 2) == gpus(n1="0", n2="7").split()
    held = dict.fromkeys(gpus(n1="7", n2="0123", n3="0").split(), 0)
    assert set(neighbours.give_up(held, 2)) == {"n1/gpu7", "n3/gpu0"}


def test_growth_takes_those_nearest_to_the_middle_of_what_is_held() -> None:
    assert taken("n10 n11 n12", "n1 n2 n8 n9 n15 n30 n31", 2) == ["n8", "n9"]
    assert taken("n10", "n30 n31 n32", 2) == ["n30", "n31"]


def test_shrinking_gives_up_those_farthest_from_the_middle() -> None:
    held = dict.fromkeys(("n10", "n11", "n12", "n30", "n1"), 0)
    assert list(neighbours.give_up(held, 2)) == ["n30", "n1"]


def test_nodes_in_groups_are_chosen_as_nodes_in_order() -> None:
    groups = {3: dict.fromkeys(("n9", "n1")), 5: dict.fromkeys(("n8", "n4"))}
    assert list(neighbours.take({}, groups, 2)) == taken("", "n9 n1 n8 n4", 2) == ["n8", "n9"]


names = st.sampled_from([f"{row}{number}" for row in "ab" for number in range(60)])


@given(steps=st.lists(st.tuples(st.booleans(), st.sets(names, max_size=50)), max_size=12))
def test_what_is_put_in_and_taken_out_leaves_the_order_of_what_remains(steps: list[tuple[bool, set[str]]]) -> None:
    ordered, there = free(), set[str]()
    for adds, some in steps:
        if adds:
            ordered.add(some - there)
            there |= some
        else:
            ordered.remove(some & there)
            there -= some
        expected = sorted(there, key=lambda node: (position(node), node))
        assert ordered.between(0, len(ordered)) == expected
        assert ordered.places.tolist() == [position(node) for node in expected]


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.sets(names, min_size=1, max_size=40)), max_size=15))
def test_a_pool_with_positions_has_the_same_free_nodes_in_their_order(steps: list[tuple[int, set[str]]]) -> None:
    pool, by_group = NodePool(position), NodePool()
    for what, some in steps:
        free_now = [node for node in sorted(some) if by_group.is_free(node)]
        assert free_now == [node for node in sorted(some) if pool.is_free(node)]
        for each in (pool, by_group):
            if what == 0:
                each.join(sorted(some))
            elif what == 1:
                each.leave(some)
            elif what == 2:
                each.take(free_now)
            else:
                each.give_back([node for node in sorted(some) if node in each and node not in free_now])
        unheld = {node for group in by_group.free.values() for node in group}
        assert {group: set(nodes) for group, nodes in by_group.free.items()} == {
            group: set(nodes) for group, nodes in pool.free.items()
        }
        assert list(pool.free) == sorted(pool.free)
        ordered = pool.ordered_of("")
        assert ordered.between(0, len(ordered)) == sorted(unheld, key=lambda node: (position(node), node))
