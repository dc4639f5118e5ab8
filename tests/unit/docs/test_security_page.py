"""docs/security.md says what is shown by tests: each that it names is there, and each table has them in every row."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from bftrain.live.api import http_connection, server, service

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROOMS: Final = ("bftrain", "solvers", "replay", "datasets", "elastic")
UNSHOWN: Final = {"workers"}  # what PyTorch and Gloo do is theirs, and the row says so


def all_names() -> set[str]:
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert named - all_names() == set()


def test_every_row_names_what_shows_it() -> None:
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| who |", "| rule |", "| what |"))
    ]
    assert len(rows) > 25
    assert {row[0] for row in rows if "`test_" not in row[-1]} == UNSHOWN
    assert [row for row in rows for other in rows if row is not other and row[0].startswith(f"{other[0]};")] == []


def test_the_bounds_are_those_of_the_code() -> None:
    bounds = {
        "heads end at 32 KiB": http_connection._LARGEST_HEAD == 32 << 10,  # noqa: SLF001 - what the page tells
        "bodies at 1 MiB or 2,048 pieces": (
            http_connection.LARGEST_BODY,
            http_connection._MOST_PIECES,  # noqa: SLF001 - as above
        )
        == (1 << 20, 2048),
        "within 20 s, an answer be taken within 30 s": (
            http_connection._HEAD_S,  # noqa: SLF001 - as above
            http_connection._SEND_S,  # noqa: SLF001 - as above
        )
        == (20.0, 30.0),
        "128 of one user or over TCP, 512 in all": (server._OF_ONE, server._CONNECTIONS) == (128, 512),  # noqa: SLF001 - as above
        "10,000 unfinished ones, of them 2,000 of one user": (service._MOST_UNFINISHED, service._MOST_OF_ONE)  # noqa: SLF001 - as above
        == (10_000, 2_000),
    }
    for words, so in bounds.items():
        assert words in PAGE
        assert so, words


def test_nothing_is_unpickled_and_no_shell_is_asked() -> None:
    """In what ships: no module that runs what it reads is imported, and nothing is started through a shell."""
    found = []
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Import(names=names):
                        imported = [one.name for one in names]
                    case ast.ImportFrom(module=str() as module):
                        imported = [module]
                    case ast.Call(func=ast.Attribute(attr=attribute), keywords=keywords):
                        imported = ["os.system"] if attribute in {"system", "popen"} else []
                        for keyword in keywords:
                            said = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                            imported += ["shell"] if keyword.arg == "shell" and not said else []
                    case _:
                        imported = []
                bad = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "os.system", "shell"}
                found += [
                    f"{path.relative_to(ROOT)}: {name}" for name in imported if name.split(".")[0] in bad or name in bad
                ]
    assert found == ["datasets/bftrain_datasets/published/unpickling.py: pickle"]  # restricted to recorded names
