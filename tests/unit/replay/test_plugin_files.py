"""Plug-in files: what a replay is made from includes the modules of users that these files import."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bftrain import ReplaySettings
from bftrain_replay import plugin_files

FILES = {
    "mine.py": "import numpy as np\nfrom prices import PRICE\n\ndef thrifty(task, sizes):\n    return sizes * PRICE\n",
    "prices.py": "import shop.rates\n\nPRICE = shop.rates.HIGH\n",
    "shop/__init__.py": "",
    "shop/rates.py": "import prices\n\nHIGH = 0.8\n",  # in a circle
}


@pytest.mark.parametrize("edited", FILES)
def test_an_edited_module_that_an_objective_imports_makes_another_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    settings = ReplaySettings(objective=f"{tmp_path / 'mine.py'}:thrifty")
    before = plugin_files.sha256(settings)
    assert plugin_files.sha256(settings) == before
    (tmp_path / edited).write_text(FILES[edited] + "# edited\n")
    assert plugin_files.sha256(settings) != before


def test_a_file_that_imports_installed_modules_only_or_cannot_be_read_as_python_counts_alone(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    settings = ReplaySettings(objective=f"{file}:thrifty")
    for text in ("import json, numpy, bftrain, nowhere\nfrom . import x\n", "def thrifty(:\n"):
        file.write_text(text)
        assert plugin_files.sha256(settings) == hashlib.sha256(text.encode()).hexdigest()
