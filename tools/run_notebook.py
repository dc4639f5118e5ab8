"""Run the cells of a notebook without Jupyter, and write their output into it.

Usage: ``run_notebook.py FILE.ipynb``.

Tests also run it, and compare. A line that starts with ``!`` is a command; unlike in Jupyter, it is not passed to a
shell.
"""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run from top to bottom in one namespace, in ``folder``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    with chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            count += 1
            cells.append({**cell, "execution_count": count, "outputs": _run("".join(cell["source"]), names, count)})
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    printed = StringIO()
    with redirect_stdout(printed):
        shown = _evaluated(source, names, printed)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if shown is not None:
        data = {"text/plain": _lines(repr(shown))}
        for form, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
            if hasattr(shown, method):
                data[form] = _lines(getattr(shown, method)())
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _evaluated(source: str, names: dict[str, Any], printed: StringIO) -> object:
    """Run the lines of a cell, and return the value of its last expression."""
    lines = source.splitlines(keepends=True)
    for line in lines:
        if line.startswith("!"):
            done = subprocess.run(shlex.split(line[1:]), check=True, capture_output=True, text=True)
            printed.write(done.stdout)
    body = ast.parse("".join(line for line in lines if not line.startswith("!"))).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, type_ignores=[]), "cell", "exec"), names)  # noqa: S102 - our own notebook
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - as above


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    with tempfile.TemporaryDirectory() as folder:
        done = executed(json.loads(path.read_text(encoding="utf-8")), Path(folder))
    path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
