"""Exceptions of other people's code name the line of their file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bftrain.errors import BadInput
from bftrain.exception_text import described, is_from_own_file, place, raised, source_line
from bftrain.parts import python_file


def caught(path: Path, text: str) -> Exception:
    path.write_text(text, encoding="utf-8")
    function = python_file.load(path, "mine", "metric 'mine'")
    with pytest.raises(Exception) as found:  # noqa: PT011 - any will do
        function()
    return found.value


def test_the_innermost_line_of_the_own_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    error = caught(path, "def mine():\n    return helper(0)\n\ndef helper(by):\n    return 1 / by  # no\n")
    assert raised(error) == f"raised ZeroDivisionError: division by zero, at {path}:5: return 1 / by  # no"
    assert is_from_own_file(error)


def test_libraries_that_it_calls_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    error = caught(path, "import json\nimport numpy as np\ndef mine():\n    return np.vstack([json.loads('no')])\n")
    assert place(error) == f", at {path}:4: return np.vstack([json.loads('no')])"
    error = caught(path, "import numpy as np\ndef mine():\n    return np.linalg.inv(np.zeros((2, 2)))\n")
    assert place(error) == f", at {path}:3: return np.linalg.inv(np.zeros((2, 2)))"


def test_an_installed_plug_in_is_better_than_nothing() -> None:
    with pytest.raises(np.linalg.LinAlgError) as found:
        np.linalg.inv(np.zeros((2, 2)))
    line = source_line(found.value.with_traceback(found.tb.tb_next))
    assert line is not None
    assert "numpy" in line.file
    with pytest.raises(json.JSONDecodeError) as broken:
        json.loads("no")
    assert source_line(broken.value.with_traceback(broken.tb.tb_next)) is None


def test_code_of_bftrain_is_not_blamed_on_others() -> None:
    with pytest.raises(BadInput) as found:
        python_file.load(Path("no such file.py"), "mine", "metric")
    inside = found.value.with_traceback(found.tb.tb_next)
    assert source_line(inside) is None
    assert described(inside) == f"BadInput: {inside}"
    assert not is_from_own_file(inside)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def mine(:\n", "raised SyntaxError: invalid syntax (mine.py, line 1), at {}:1: def mine(:"),
        ("x = 1\nx.no\n", "raised AttributeError: 'int' object has no attribute 'no', at {}:2: x.no"),
        ("import nowhere\n", "raised ModuleNotFoundError: No module named 'nowhere', at {}:1: import nowhere"),
    ],
)
def test_a_file_that_cannot_be_run(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as found:
        python_file.load(path, "mine", "metric 'mine'")
    assert found.value.what == f"{path} {said.format(path)}"


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    error = caught(tmp_path / "mine.py", f"def mine():\n    raise ValueError('{'x' * 500}')\n")
    line = source_line(error)
    assert line is not None
    assert (len(line.text), line.text[-3:]) == (120, "...")
