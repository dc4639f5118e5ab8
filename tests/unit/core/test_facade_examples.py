"""The examples of the functions that ``import bftrain`` offers run."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import bftrain

FUNCTIONS = [name for name in bftrain.__all__ if inspect.isfunction(getattr(bftrain, name))]
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
    Path("sacct.txt").write_text(SACCT)
    Path("jobs.swf").write_text(SWF)
    bftrain.save_log(bftrain.import_logs("sacct.txt").log, "log.npz")
    curve = bftrain.SpeedCurve(nodes=(1, 2, 3), rate=(10.0, 18.0, 24.0))
    bftrain.save_tasks([bftrain.TaskSpec(name="a", max_nodes=3, curve=curve)], "tasks.toml")
    return tmp_path


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function_runs(name: str, folder: Path) -> None:
    assert folder == Path.cwd()
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(bftrain, name), name)
    assert found.examples, f"bftrain.{name} has no example"
    assert not any(doctest.SKIP in example.options for example in found.examples)
    printed: list[str] = []
    failed = doctest.DocTestRunner().run(found, out=printed.append).failed
    assert not failed, "".join(printed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_its_parameters_and_errors(name: str) -> None:
    function = getattr(bftrain, name)
    words = inspect.getdoc(function) or ""
    parameters = inspect.signature(function).parameters
    assert [
        parameter for parameter in parameters if f"``{parameter}``" not in words and f"``{parameter}(" not in words
    ] == []
    raises = {*parameters} - {"plan", "actions"}  # apply_actions and sample_log raise nothing
    assert re.search(r"\b[Rr]aises\s", words) or not raises
