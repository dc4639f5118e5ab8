"""From a newcomer's own sacct dump to the page, in two commands; the table of assumptions takes longer."""

from __future__ import annotations

import resource
from pathlib import Path
from time import perf_counter

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import bftrain
from tests.perf.test_bench_import import sacct_rows

pytestmark = pytest.mark.bench

ROWS = 300_000
MOST_S = 180.0
CORES = 2


def test_a_dump_becomes_a_page_in_two_commands(figures: Figures, tmp_path: Path) -> None:
    sacct_rows(tmp_path / "sacct.txt", ROWS, 4_000)
    core_s = 0.0
    for words in (("import", "sacct.txt", "-o", "log.npz"), ("assess", "log.npz", "-o", "page", "--quick")):
        begin, before = perf_counter(), _children_s()
        ended = bftrain(*words, cwd=tmp_path)
        assert ended.code == 0, ended.err
        core_s += _children_s() - before
        figures.add(f"{ROWS:,} rows of sacct: {words[0]}", perf_counter() - begin, "s")
    figures.add(f"{ROWS:,} rows of sacct to the page", core_s, "core-s")
    assert (tmp_path / "page" / "assess.html").is_file()
    assert core_s < CORES * MOST_S  # processor time: other programs of the machine do not count


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
