"""More than a gigabyte through a pipe, into a program that may have 400 MB."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.helpers.flood import ROWS_A_BLOCK, block_that_counts_for_nothing, flooded

pytestmark = pytest.mark.bench


def test_a_file_that_never_seems_to_end(figures: Figures, tmp_path: Path) -> None:
    blocks = 1500
    begin = time.perf_counter()
    flooded(blocks, 400, tmp_path / "log.npz")
    took_s = time.perf_counter() - begin
    size_mb = blocks * len(block_that_counts_for_nothing()) / 1e6
    figures.add(f"{size_mb:,.0f} MB of sacct rows set aside, with 400 MB of memory", took_s, "s")
    figures.add("rows a second", blocks * ROWS_A_BLOCK / took_s, "/s")
    assert took_s < 300
