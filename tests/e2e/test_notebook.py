"""The notebooks of the documentation run from their first cell to their last, and show what is written in them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import ROOT
from tools.run_notebook import executed

pytestmark = pytest.mark.apart
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_in_order_and_show_what_the_notebook_holds(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert shown(executed(notebook, tmp_path)) == shown(notebook), "write it again: python tools/run_notebook.py FILE"


def shown(notebook: dict[str, Any]) -> list[list[str]]:
    """Return the texts that each cell shows, those in its pictures included."""
    return [
        [text for output in cell["outputs"] for text in _texts(output)]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def _texts(output: dict[str, Any]) -> list[str]:
    data = {form: "".join(lines) for form, lines in output.get("data", {"": output.get("text", "")}).items()}
    drawn = re.findall(r">([^<>]+)</text>", data.pop("image/svg+xml", ""))
    return [*data.values(), *drawn]
