"""Two ways to divide nodes over stages give the same division, ties included."""

from __future__ import annotations

import random

import pytest

from bftrain_solvers.knapsack.stages import SearchBounds, Stage, best_division, quick_division


def drawn(chance: random.Random) -> tuple[list[Stage], SearchBounds]:
    """Draw a few stages, some of them alike, and few different losses, so that there are many ties."""
    stages: list[Stage] = []
    for _ in range(chance.randint(1, 4)):
        sizes = [0, *sorted(chance.sample(range(1, 8), chance.randint(1, 3)))]
        losses = [chance.choice((0, 0, 1, 3)) for _ in sizes]
        stages += [(sizes, losses)] * chance.randint(1, 2)
    cutoff = chance.choice((0, 2, 5, 50))
    return stages, SearchBounds(chance.randint(0, 25), chance.choice((1, 2, 7)), cutoff, stop_at=float("inf"))


@pytest.mark.parametrize("seed", range(10))
def test_sums_and_tables_give_the_same_division(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same problems every time
    found = 0
    for _ in range(40):
        stages, room = drawn(chance)
        quick = quick_division(stages, room)
        if quick is not None:
            assert quick == best_division(stages, room)
            found += 1
    assert found > 10


def test_no_division_within_the_cutoff_is_none() -> None:
    stages: list[Stage] = [([0, 4], [0, 9])]
    assert quick_division(stages, SearchBounds(4, 2, 7, stop_at=float("inf"))) is None
    assert quick_division(stages, SearchBounds(4, 2, 8, stop_at=float("inf"))) == (8, [0])


def test_too_many_sums_are_left_to_the_tables() -> None:
    stages: list[Stage] = [([0, place, 2 * place + 1], [0, 1, 2]) for place in range(1, 20)]
    room = SearchBounds(60, 3, 1000, stop_at=float("inf"))
    assert quick_division(stages, room) is None
    assert best_division(stages, room) is not None
