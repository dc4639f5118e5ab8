"""What a prefork server imports for all workers: as a script would, which sees no folders of the working directory."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from bftrain_elastic.agent.prefork_server import begin_random_numbers, import_modules


def test_the_working_directory_holds_no_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    (tmp_path / "datasets_here").mkdir()  # as `datasets`, for which Transformers looks
    monkeypatch.syspath_prepend(tmp_path)  # where `python -m` puts the working directory
    before = list(sys.path)
    assert import_modules(["json", "datasets_here"]) == ["datasets_here: No module named 'datasets_here'"]
    assert sys.path == before


@pytest.mark.torch
def test_forked_workers_draw_random_numbers_of_their_own() -> None:
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")

    def drawn() -> tuple[float, float]:
        torch.manual_seed(1)  # as all have it from the process that imported
        numpy.random.seed(1)
        begin_random_numbers()
        return float(torch.rand(())), float(numpy.random.rand())

    first, second = drawn(), drawn()
    assert first[0] != second[0]
    assert first[1] != second[1]
