"""Plug-in files: an edited module that an objective imports makes another replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.replay.sweeping.sweep_case import counted, small

FILES = {
    "mine.py": "import numpy as np\nfrom prices import PRICE\n\ndef thrifty(task, sizes):\n    return sizes * PRICE\n",
    "prices.py": "import shop.rates\n\nPRICE = shop.rates.HIGH\n",
    "shop/__init__.py": "",
    "shop/rates.py": "import prices\n\nHIGH = 0.8\n",  # in a circle
}


@pytest.mark.parametrize("edited", FILES)
def test_a_sweep_computes_again_what_an_edited_module_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    spec = small(fixed={"objective": f"{tmp_path}/mine.py:thrifty"}, yardsticks=False)
    assert [counted(spec, tmp_path / "out")[0] for _ in range(2)] == [1, 0]
    (tmp_path / edited).write_text(FILES[edited] + "# edited\n")
    assert [counted(spec, tmp_path / "out")[0] for _ in range(2)] == [1, 0]


def test_a_file_that_cannot_be_read_as_python_counts_alone(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for number, text in enumerate(("import json, nowhere\nfrom . import x\n", "def thrifty(:\n")):
        file.write_text(text)
        spec = small(fixed={"objective": f"{file}:thrifty"}, yardsticks=False)
        count, found = counted(spec, tmp_path / f"out {number}")
        assert (count, [row.state for row in found.rows]) == (1, ["failed"])
