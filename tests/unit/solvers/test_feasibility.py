"""Whether all find room: whichever way it is found out, the answer is that of all choices tried."""

from __future__ import annotations

from itertools import count, product
from time import perf_counter

import numpy as np
import pytest

from bftrain_solvers.max_min import feasibility
from bftrain_solvers.max_min.feasibility import (
    NEVER,
    CountTooLarge,
    FeasibilityUnknown,
    FeasibleOptions,
    ResourceDemands,
    enumerated_options,
    relaxed,
    tightest_prices,
    useful_options,
    whole,
)

MANY = 10**9


def needs(seed: int) -> ResourceDemands:
    """Return scarce demands of a few tasks with a few options each; one choice fits for certain."""
    rng = np.random.default_rng(seed)
    people, options, resources = int(rng.integers(1, 6)), 3, int(rng.integers(2, 4))
    uses = rng.integers(0, 5, (people, options, resources))
    uses[rng.random((people, options)) < 0.2] = NEVER
    limits = rng.integers(1, 3 + 2 * people, resources)
    uses[:, 0] = np.minimum(uses[:, 0], limits)
    return ResourceDemands(uses, limits)


def fits(asked: ResourceDemands) -> bool:
    people, options, _ = asked.uses.shape
    return any((asked.over(np.array(chosen)) <= 0).all() for chosen in product(range(options), repeat=people))


def begun(asked: ResourceDemands) -> FeasibleOptions:
    people = len(asked.uses)
    return FeasibleOptions(
        ResourceDemands(np.zeros_like(asked.uses), asked.limits), np.zeros(people, dtype=np.int64), np.inf
    )


@pytest.mark.parametrize("way", ["as it comes", "counted", "in whole numbers"])
def test_the_answer_is_that_of_all_choices_tried(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way != "as it comes":
        monkeypatch.setattr(feasibility, "_improved_by_single_changes", lambda _, chosen, __: chosen)
        monkeypatch.setattr(feasibility, "_fitting_after_two_changes", lambda *_: None)
    if way == "in whole numbers":
        monkeypatch.setattr(feasibility, "_SOON", 0)
        monkeypatch.setattr(feasibility, "_LARGEST", 0)
    answers = set()
    for seed in range(60):
        asked = needs(seed)
        all_of_them = begun(asked)
        answer = all_of_them.ask(asked)
        assert answer == fits(asked)
        assert not answer or (asked.over(all_of_them.chosen) <= 0).all()
        answers.add(answer)
    assert answers == {True, False}


def test_what_prices_exclude_does_not_fit() -> None:
    excluded = 0
    for seed in range(60):
        asked = needs(seed)
        prices, _ = relaxed(asked)
        if asked.priced_out([prices]):
            excluded += 1
            assert not fits(asked)
        assert tightest_prices(asked, [prices, np.ones(9)]) is prices
        found = enumerated_options(asked, useful_options(asked, prices), MANY)
        assert (found is not None) == fits(asked)
    assert excluded > 10
    assert tightest_prices(asked, []) is None


def test_too_much_to_count_and_no_time_are_said() -> None:
    asked = ResourceDemands(np.full((2, 2, 2), 1, dtype=np.int64), np.array([2, 2]))
    everything = np.ones((2, 2), dtype=np.bool_)
    with pytest.raises(CountTooLarge):
        enumerated_options(asked, everything, 0)
    with pytest.raises(FeasibilityUnknown):
        whole(asked, everything, perf_counter() - 1.0)
    late = begun(asked)
    late.stop_at = perf_counter() - 1.0
    with pytest.raises(FeasibilityUnknown):
        late.ask(asked)


def test_one_without_any_option_finds_no_room() -> None:
    asked = ResourceDemands(np.array([[[NEVER, 0], [0, NEVER]], [[0, 0], [0, 0]]]), np.array([5, 5]))
    assert not begun(asked).ask(asked)


def test_changing_option_by_option_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    people = 60  # each either takes two of what there are 60 of, or nothing: thirty changes
    asked = ResourceDemands(np.tile(np.array([[[2, 0], [0, 1]]]), (people, 1, 1)), np.array([people, people]))
    clock = count(0)
    monkeypatch.setattr(feasibility, "perf_counter", lambda: float(next(clock)))
    options = FeasibleOptions(asked, np.zeros(people, dtype=np.int64), stop_at=5.0)
    with pytest.raises(FeasibilityUnknown):
        options.ask(asked)
    assert next(clock) == 7  # it looked at no more than one time after the deadline
    options.stop_at = 500.0
    assert options.ask(asked)
