"""List the texts that users read: messages, help texts, page texts and log lines, one per line with its place.

``python tools/messages.py [FOLDER...]`` covers these folders, or all of bftrain. Docstrings of commands are help texts;
other docstrings are no messages. Values in a text appear as ``{}``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("bftrain", "solvers", "replay", "datasets", "elastic")
LEAST_WORDS: Final = 3  # texts with fewer words are names, keys and labels
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def text_of(node: ast.expr) -> str | None:
    """Return the text of a string, an f-string, or a sum of both.

    >>> text_of(ast.parse("f'{count} nodes' ' left'", mode="eval").body)
    '{} nodes left'
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = text_of(left), text_of(right)
            return None if both == (None, None) else "".join("{}" if part is None else part for part in both)
    return None


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each message in a module."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
        if not any("command" in ast.unparse(one) for one in getattr(node, "decorator_list", ()))
    }
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if id(node) in docs:
            continue
        text = text_of(node) if isinstance(node, ast.expr) else None
        if text is None:
            todo += ast.iter_child_nodes(node)
            continue
        words = [word for word in text.split() if any(letter.isalpha() for letter in word)]
        if len(words) >= LEAST_WORDS:
            yield getattr(node, "lineno", 0), " ".join(text.split())


def main(*folders: str) -> None:
    """Print all messages of some folders."""
    patterns = [f"{folder}/*.py" for folder in folders or FOLDERS]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    for name in sorted({*listed.split()}):
        for line, text in sorted(messages(ast.parse((ROOT / name).read_text(encoding="utf-8")))):
            sys.stdout.write(f"{name}:{line}: {text}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
