"""``bftrain solve`` shows the batch that goes with a size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.in_process import CommandLine

BATCHES = Path(__file__).parents[3] / "examples" / "problems" / "batches.json"


@pytest.mark.parametrize("solver", ["exact", "all"])
def test_the_best_batch_stands_beside_the_size(bftrain: CommandLine, solver: str) -> None:
    ended = bftrain("solve", BATCHES, "--solver", solver)
    assert ended.code == 0, ended.err
    shown = {row.split()[0]: " ".join(row.split()[1:]) for row in ended.out.splitlines() if row.strip()}
    # 3 nodes exchange as long as they compute 3 * 128 * (3 * 500 / 1300 - 1) = 59.1 samples, 13 as long as 1494:
    # sqrt(300 * 59.1) = 133, sqrt(20,000 * 1494) = 5466
    assert shown["early"].startswith("3, batch 133")
    assert shown["late"].startswith("13, batch 5,466")


def test_under_other_objectives_there_is_none(bftrain: CommandLine) -> None:
    assert "batch" not in bftrain("solve", BATCHES, "--objective", "throughput").out
