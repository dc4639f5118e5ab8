"""What is tried on this machine leaves nothing behind, also if it cannot begin."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager import launchers
from bftrain_elastic.tryout.local_stage import LocalStage
from bftrain_elastic.tryout.try_script import ScriptTrial


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(threading.enumerate())
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield
    assert list((tmp_path / "tmp").iterdir()) == []
    assert set(threading.enumerate()) <= before


def test_a_script_that_its_launcher_refuses(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.touch()
    trying = ScriptTrial(launchers.torchrun, [str(script)], nodes=1)
    with pytest.raises(BadJob, match="torchrun starts Python scripts"), trying:
        pass


def test_a_stage_whose_launcher_cannot_be_made() -> None:
    def cannot(*_: object) -> NoReturn:
        raise ValueError("no such launcher")

    with pytest.raises(ValueError, match="no such launcher"), LocalStage(cannot, nodes=("n1",)):
        pass
