"""``bftrain solve`` shows the batch that goes with a size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine

BATCHES = Path(__file__).parents[3] / "examples" / "problems" / "batches.json"


@pytest.mark.parametrize("solver", ["exact", "all"])
def test_the_best_batch_stands_beside_the_size(bftrain: CommandLine, solver: str) -> None:
    ended = bftrain("solve", BATCHES, "--solver", solver)
    assert ended.code == 0, ended.err
    shown = {row.split()[0]: " ".join(row.split()[1:]) for row in ended.out.splitlines() if row.strip()}
    # 4 nodes exchange as long as they compute 4 * 128 * (4 * 500 / 1700 - 1) = 90.4 samples, 12 as long as 1314:
    # sqrt(300 * 90.4) = 165, sqrt(20,000 * 1314) = 5127
    assert shown["early"].startswith("4, batch 165")
    assert shown["late"].startswith("12, batch 5,127")


def test_under_other_objectives_there_is_none(bftrain: CommandLine) -> None:
    assert "batch" not in bftrain("solve", BATCHES, "--objective", "throughput").out
