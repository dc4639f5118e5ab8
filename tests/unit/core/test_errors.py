"""The tree of errors: what they say, the exit code they lead to, and that they survive a process boundary."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from bftrain import (
    BadConfig,
    BadInput,
    BadValue,
    BftrainError,
    BrokenPlugin,
    NotAvailable,
    UnknownName,
    UsageError,
    errors,
    parts,
)
from bftrain.errors import (
    BadObjective,
    Fault,
    Interrupted,
    PartlyFailed,
    described,
    is_from_own_file,
    place,
    raised,
    source_line,
    suggestion,
)

CODES = {
    BftrainError: 5,
    UsageError: 2,
    BadInput: 3,
    BadValue: 3,
    BadConfig: 3,
    BadObjective: 3,
    UnknownName: 3,
    NotAvailable: 4,
    BrokenPlugin: 3,
    PartlyFailed: 1,
    Interrupted: 130,
    Fault: 5,
}


def test_every_error_is_in_the_tree_and_has_its_exit_code() -> None:
    found = {thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, BaseException)}
    found = {kind for kind in found if not issubclass(kind, Warning)}  # these end no command
    assert {kind: kind.exit_code for kind in found} == CODES  # type: ignore[attr-defined]  # each has one


def test_the_tree() -> None:
    assert issubclass(BadValue, (BadInput, ValueError))
    assert [kind.__bases__ for kind in (BadInput, BadConfig, UnknownName)] == [
        (BftrainError,),
        (BadInput,),
        (BadInput,),
    ]
    assert [kind.__bases__ for kind in (NotAvailable, BrokenPlugin, Fault)] == [
        (BftrainError,),
        (NotAvailable,),
        (BftrainError,),
    ]


@pytest.mark.parametrize(
    ("where", "fix", "text"),
    [
        (None, None, "is wrong"),
        ("f.toml:3", None, "f.toml:3: is wrong"),
        (None, "mend it", "is wrong (mend it)"),
        ("f.toml:3", "mend it", "f.toml:3: is wrong (mend it)"),
    ],
)
def test_an_error_says_where_what_and_what_to_do(where: str | None, fix: str | None, text: str) -> None:
    error = BadInput("is wrong", where=where, fix=fix)
    assert str(error) == text
    assert (error.what, error.where, error.fix) == ("is wrong", where, fix)


@pytest.mark.parametrize("kind", CODES)
def test_errors_survive_pickling_and_copying(kind: type[BftrainError]) -> None:
    error = kind("is wrong", where="here", fix="mend it")
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301 - our own bytes
        assert type(again) is kind
        assert (again.what, again.where, again.fix) == ("is wrong", "here", "mend it")
        assert str(again) == str(error)


def test_the_nearest_name_is_suggested_else_all_are_listed() -> None:
    known = ["highs", "exact", "greedy"]
    assert suggestion("exakt", known) == "did you mean 'exact'?"
    assert suggestion("zzz", known) == "known: exact, greedy, highs"
    assert suggestion("zzz", []) == "known: none"


def test_an_unknown_name_says_of_what_kind_it_is() -> None:
    error = UnknownName.among("solver", "exakt", ["exact"], where="a.toml:2")
    assert str(error) == "a.toml:2: no solver is called 'exakt' (did you mean 'exact'?)"
    assert isinstance(error, UnknownName)


def caught(path: Path, text: str) -> Exception:
    path.write_text(text, encoding="utf-8")
    function = parts.load_from_file(path, "mine", "metric 'mine'")
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
    assert "numpy" in line.partition(": ")[0]
    with pytest.raises(json.JSONDecodeError) as broken:
        json.loads("no")
    assert source_line(broken.value.with_traceback(broken.tb.tb_next)) is None


def test_code_of_bftrain_is_not_blamed_on_others() -> None:
    with pytest.raises(BadInput) as found:
        parts.load_from_file(Path("no such file.py"), "mine", "metric")
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
        parts.load_from_file(path, "mine", "metric 'mine'")
    assert found.value.what == f"{path} {said.format(path)}"


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    error = caught(tmp_path / "mine.py", f"def mine():\n    raise ValueError('{'x' * 500}')\n")
    line = source_line(error)
    assert line is not None
    text = line.split(": ", 1)[1]
    assert (len(text), text[-3:]) == (120, "...")


def test_the_error_of_a_file_that_imports_a_module_beside_it_names_the_path_to_set(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import prices_beside\n")
    for beside, fix in ((False, None), (True, f"prices_beside lies beside it: set PYTHONPATH={tmp_path}")):
        if beside:
            (tmp_path / "prices_beside.py").touch()
        with pytest.raises(BadInput) as caught:
            parts.load_from_file(path, "mine", "metric 'mine'")
        assert caught.value.fix == fix
