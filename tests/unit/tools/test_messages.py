"""``make messages`` lists what users read."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tools.messages import messages

TOOL = Path(__file__).parents[3] / "tools" / "messages.py"
MODULE = '''
"""The docstring of a module is no message."""

@click.command(name="go")
def go(path):
    """Read the file again."""
    if not path:
        raise BadInput(f"{path} is no " "file", fix="name " + path + " with its folder")
    print("done", "a key")
'''


def test_texts_of_three_words_and_docstrings_of_commands_are_messages() -> None:
    assert sorted(messages(ast.parse(MODULE))) == [
        (6, "Read the file again."),
        (8, "name {} with its folder"),
        (8, "{} is no file"),
    ]


def test_each_message_is_listed_with_its_place() -> None:
    listed = subprocess.run([sys.executable, TOOL, "solvers"], capture_output=True, text=True, check=True).stdout
    places = [line.split(":", 2) for line in listed.splitlines()]
    assert len(places) > 50
    name, number, text = places[0]
    source = (TOOL.parents[1] / name).read_text().splitlines()[int(number) - 1]
    assert any(part in source for part in text.strip().split("{}") if part)
