"""What a job held of each node, as readers write it down."""

from __future__ import annotations

import pytest

from bftrain_datasets.importing.unit_sets import shares_of, total_of


@pytest.mark.parametrize(
    ("units", "total", "shares"),
    [
        ("5", 5, [("a", 2), ("b", 2), ("c", 1)]),
        ("2", 2, [("a", 1), ("b", 1)]),
        ("4*n[1-2]", 8, [("n1", 4), ("n2", 4)]),
        ("0-1,5:n3\n1*n4\n0*n5", 4, [("n3", -1), ("n3", -2), ("n3", -6), ("n4", 1)]),
        ("2:n1\n2:n1", 1, [("n1", -3)]),
    ],
)
def test_sums_are_divided_and_lists_are_taken_as_they_are(
    units: str, total: int, shares: list[tuple[str, int]]
) -> None:
    assert total_of(units) == total
    assert shares_of(("a", "b", "c"), units) == shares


@pytest.mark.parametrize("units", ["x", "3-1:n1", "99999:n1", "4*a!b", "1,:n1", "-1*n1"])
def test_what_cannot_be_read_is_refused(units: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        total_of(units)


def test_nothing_is_none() -> None:
    assert total_of("") == total_of("0") == 0
