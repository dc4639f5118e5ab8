"""How long the quick form of Gavel's figures takes: all of them, and as a multiple of one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import children_core_s, start

pytestmark = pytest.mark.bench

_PATIENCE_S = 1800.0


def core_s(folder: Path, *figures: str) -> float:
    """Return the CPU time of the command, without cached results."""
    before = children_core_s()
    words = ("reproduce", "gavel", *figures, "--quick", "-o", str(folder / "out"), "-q")
    running = start(*words, XDG_CACHE_HOME=str(folder))
    running.communicate(timeout=_PATIENCE_S)
    assert running.returncode == 0
    return children_core_s() - before


def test_gavel_quick(figures: Figures, tmp_path: Path) -> None:
    one, every = core_s(tmp_path / "one", "las"), core_s(tmp_path / "every")
    figures.add("reproduce gavel --quick", every, "s")
    figures.add("as a multiple of its first figure", every / one)
    assert every < 10.0 * one  # a ratio within one run: machines differ
    assert every < 240.0  # two minutes on two cores
