"""Public functions have examples that run, and document their parameters and errors."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import bftrain
import bftrain_elastic
from bftrain import ports
from bftrain_elastic.worker import progress_report

PUBLIC = {f"{home.__name__}.{name}": home for home in (bftrain, bftrain_elastic) for name in home.__all__}
FUNCTIONS = [name for name, home in PUBLIC.items() if re.search(r"\.[a-z]\w*$", name)]
SACCT = """\
JobID|Partition|Submit|Start|End|State|NNodes|NodeList
1|batch|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|COMPLETED|2|n[1-2]
2|batch|2026-01-01T00:10:00|2026-01-01T01:30:00|2026-01-01T03:00:00|COMPLETED|3|n[1-3]
3|batch|2026-01-01T00:20:00|2026-01-01T00:30:00|2026-01-01T02:30:00|COMPLETED|1|n4
"""
SWF = """\
; MaxNodes: 4
; UnixStartTime: 1700000000
1 0 0 3600 2 -1 -1 2 7200 -1 1 1 1 1 1 -1 -1 -1
2 60 0 1800 2 -1 -1 2 3600 -1 1 2 1 1 1 -1 -1 -1
3 120 0 7200 1 -1 -1 1 7200 -1 1 1 1 1 1 -1 -1 -1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder with the files that the examples name, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress_report, "_current", None)  # the destination that a process found first
    Path("sacct.txt").write_text(SACCT)
    Path("jobs.swf").write_text(SWF)
    bftrain.save_log(bftrain.import_logs("sacct.txt").log, "log.npz")
    curve = bftrain.SpeedCurve(nodes=(1, 2, 3), rate=(10.0, 18.0, 24.0))
    bftrain.save_tasks([bftrain.TaskSpec(name="a", max_nodes=3, curve=curve)], "tasks.toml")
    return tmp_path


def public(name: str) -> Any:  # noqa: ANN401 - a function or class
    """Return an object of the public interface; those of training scripts need PyTorch."""
    if PUBLIC[name] is bftrain_elastic:
        pytest.importorskip("torch")
    return getattr(PUBLIC[name], name.rpartition(".")[2])


def unnamed_parameters(function: Any, words: str) -> list[str]:  # noqa: ANN401 - a function or method
    """Return the parameters that a docstring does not name."""
    parameters = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]
    return [name for name in parameters if not re.search(rf"``{name}\b", words)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function_runs(name: str, folder: Path) -> None:
    assert folder == Path.cwd()
    (found,) = doctest.DocTestFinder(recurse=False).find(public(name), name)
    assert found.examples, f"{name} has no example"
    assert not any(doctest.SKIP in example.options for example in found.examples)
    printed: list[str] = []
    failed = doctest.DocTestRunner().run(found, out=printed.append).failed
    assert not failed, "".join(printed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_its_parameters_and_errors(name: str) -> None:
    function = public(name)
    words = inspect.getdoc(function) or ""
    assert unnamed_parameters(function, words) == []
    raises = {*inspect.signature(function).parameters} - {
        "plan",
        "actions",
    }  # apply_actions and sample_log raise nothing
    assert re.search(r"\b[Rr]aises\s", words) or not raises


CLASSES = {
    **{name: home for name, home in PUBLIC.items() if name.rpartition(".")[2][0].isupper()},
    **{f"bftrain.ports.{name}": ports for name, kind in vars(ports).items() if inspect.isclass(kind)},
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_method_documents_its_parameters(name: str) -> None:
    kind = public(name) if name in PUBLIC else getattr(ports, name.rpartition(".")[2])
    if not kind.__module__.startswith("bftrain"):
        return
    for method, member in vars(kind).items():
        function = getattr(member, "__func__", member)  # class methods have one
        if inspect.isfunction(function) and not method.startswith("_"):
            words = inspect.getdoc(function)
            assert words, f"{name}.{method} has no docstring"
            assert unnamed_parameters(function, f"{words} {kind.__doc__}") == [], f"{name}.{method}"
