"""Cells of tables as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.job_tables.cell_values import read_counts


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        ("16", 16), ("16.0", 16), (16, 16), ("0.5", 1), ("1,024", 1024), (" 345,678 ", 345_678),
        ("1,02", 0), ("1,024.5", 0), ("n1,n2", 0), ("", 0), (None, 0), ([4], 0), ("-3", -1), ("1e400", MOST_NODES + 1),
    ],
)  # fmt: skip
def test_counts_are_read_with_commas_between_thousands(cell: object, count: int) -> None:
    assert read_counts([cell]).tolist() == [count]


def test_counts_of_a_column_of_numbers_are_rounded_up() -> None:
    assert read_counts(np.array([0.5, 2.0, 2.0000000001, np.nan, -1.0])).tolist() == [1, 2, 2, 0, -1]
