"""Errors: they survive a process boundary, and those of a user's own file name its line."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import bftrain
from bftrain import BadConfig, BadInput, BadValue, BftrainError, BrokenPlugin, NotAvailable, UnknownName, UsageError

EXIT_CODES = {
    BftrainError: 5,
    UsageError: 2,
    BadInput: 3,
    BadValue: 3,
    BadConfig: 3,
    UnknownName: 3,
    NotAvailable: 4,
    BrokenPlugin: 3,
}
PROBLEM = {
    "pool": 1,
    "horizon_s": 1.0,
    "tasks": [{"name": "a", "max_nodes": 1, "curve": {"nodes": [1], "rate": [1.0]}}],
}


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_errors_have_their_exit_code_and_survive_pickling_and_copying(kind: type[BftrainError]) -> None:
    error = kind("is wrong", where="f.toml:3", fix="mend it")
    assert error.exit_code == EXIT_CODES[kind]
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301 - our own bytes
        assert type(again) is kind
        assert (again.what, again.where, again.fix) == ("is wrong", "f.toml:3", "mend it")
        assert str(again) == "f.toml:3: is wrong (mend it)"


def test_a_bad_value_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="threads"):
        bftrain.Limits(threads=0)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("def mine(task, sizes):\n    return part(0)\n\ndef part(by):\n    return 1 / by\n", "ZeroDivisionError", 5),
        ("import json\ndef mine(task, sizes):\n    return json.loads('no')\n", "JSONDecodeError", 3),
        ("def mine(:\n", "SyntaxError", 1),
        ("x = 1\nx.no\n", "AttributeError", 2),
        ("import nowhere\n", "ModuleNotFoundError", 1),
    ],
)
def test_the_innermost_line_of_the_own_file_is_named(tmp_path: Path, text: str, words: str, line: int) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=words) as found:
        bftrain.solve(PROBLEM, objective=f"{path}:mine")
    assert f"at {path}:{line}: {text.splitlines()[line - 1].strip()}" in str(found.value)


def test_the_error_of_a_file_that_imports_a_module_alongside_names_the_path_to_set(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import prices_beside\n")
    (tmp_path / "prices_beside.py").touch()
    with pytest.raises(BadInput, match=f"PYTHONPATH={tmp_path}"):
        bftrain.solve(PROBLEM, objective=f"{path}:mine")
