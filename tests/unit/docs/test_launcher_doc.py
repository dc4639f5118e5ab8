"""The page on launchers names every call there is, as it is."""

from __future__ import annotations

import inspect
import re

import pytest

from bftrain.ports import Launcher
from bftrain.registry import BUILT_IN
from bftrain_elastic.manager.task_lifecycles import TaskContext, TaskLifecycle
from tests.helpers.pages import ROOT

PAGE = (ROOT / "docs" / "adding" / "launcher.md").read_text(encoding="utf-8")


def table(first_words: str) -> str:
    """Return the table whose header begins so."""
    return PAGE.split(f"| {first_words} |")[1].split("\n\n")[0]


def call(name: str, function: object) -> str:
    """Write a method as the page does: its name and what it takes, without types and defaults."""
    assert callable(function)
    taken = list(inspect.signature(function).parameters.values())[1:]
    words = [item.name for item in taken]
    named = [place for place, item in enumerate(taken) if item.kind is item.KEYWORD_ONLY]
    if named:
        words.insert(named[0], "*")
    return f"{name}({', '.join(words)})"


@pytest.mark.parametrize(
    ("port", "first_words"),
    [(Launcher, "a launcher has"), (TaskLifecycle, "a lifecycle receives"), (TaskContext, "its task context offers")],
)
def test_every_call_is_documented_as_it_is(port: type, first_words: str) -> None:
    expected = [call(name, found) for name, found in vars(port).items() if inspect.isfunction(found) and name[0] != "_"]
    assert expected
    assert (
        re.findall(r"`(\w+\([^`]*\))`", re.sub(r"\|[^|]*\|$", "|", table(first_words), flags=re.MULTILINE)) == expected
    )


def test_every_launcher_is_named() -> None:
    (names,) = re.findall(r"^\| `name` \| (.*) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", names)) == set(BUILT_IN["launcher"])
