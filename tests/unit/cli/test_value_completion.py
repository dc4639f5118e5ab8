"""The Tab key offers what an option takes: names of parts as the registry has them, and files that end as they must."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from bftrain import registry
from bftrain.cli.main import main
from bftrain.registry import Port


def offered(*words: str) -> list[tuple[str, str]]:
    """Return type and value of what is offered for the last word."""
    shell = ShellComplete(main, {}, "bftrain", "_BFTRAIN_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]


def values(*words: str) -> set[str]:
    return {value for kind, value in offered(*words) if kind == "plain"}


@pytest.mark.parametrize(
    ("words", "ports", "more"),
    [
        (("replay", "--solver"), ("solver",), set()),
        (("replay", "--baseline"), ("solver",), set()),
        (("replay", "--objective"), ("objective",), set()),
        (("replay", "--placement"), ("placement",), {"auto"}),
        (("replay", "--policy"), ("rounds", "sharing"), set()),
        (("schedule", "--policy"), ("queue_policy",), set()),
        (("decide", "--admission"), ("admission",), set()),
        (("solve", "--solver"), ("solver",), {"all"}),
        (("import", "--format"), ("reader",), set()),
    ],
)
def test_names_of_parts_are_those_of_the_registry(
    words: tuple[str, ...], ports: tuple[Port, ...], more: set[str]
) -> None:
    known = {name for port in ports for name, part in registry.parts(port).items() if not part.problem}
    assert values(*words, "") == known | more
    assert values(*words, "MA") == {name for name in known if name.startswith("ma")}


def test_words_of_an_option_are_offered() -> None:
    assert values("replay", "--horizon", "a") == {"auto"}
    assert "memory" in values("assess", "--progress", "")


def test_of_names_with_commas_between_the_last_is_completed() -> None:
    assert values("replay", "--metrics", "x,camp") == {"x,campaigns"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "logs").mkdir()
    for name in ("log.npz", "tasks.toml", "notes.txt", "mine.py", "logs/other.csv", "logs/x.log"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_files_are_those_that_the_option_can_read() -> None:
    assert values("replay", "") == {"log.npz"}
    assert values("replay", "logs/") == {"logs/other.csv"}
    assert values("replay", f"{os.curdir}/l") == {"./log.npz"}
    assert values("replay", "log.npz", "--tasks", "") == {"tasks.toml"}
    assert values("replay", "--config", "t") == {"tasks.toml"}
    assert values("replay", "--objective", "mi") == {"mine.py"}


def test_names_in_a_file_of_ones_own_are_offered_without_running_it(folder: Path) -> None:
    (folder / "mine.py").write_text("raise SystemExit\ndef thrifty(): ...\nclass Tidy: ...\ndef _own(): ...\n")
    assert values("replay", "--objective", "mine.py:") == {"mine.py:thrifty", "mine.py:Tidy"}
    assert values("replay", "--metrics", "campaigns,mine.py:th") == {"campaigns,mine.py:thrifty"}
    (folder / "mine.py").write_text("def (")
    assert values("replay", "--objective", "mine.py:") == set()
    assert values("replay", "--objective", "none.py:x") == set()


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        (("mine.py", ":"), ["plain,thrifty", "plain,Tidy"]),
        (("mine.py", ":", "th"), ["plain,thrifty"]),
        (("mi",), ["dir,mi", "plain,mine.py"]),
    ],
)
def test_bash_cuts_words_at_colons_and_gets_what_comes_after(
    folder: Path, typed: tuple[str, ...], lines: list[str]
) -> None:
    (folder / "mine.py").write_text("def thrifty(): ...\nclass Tidy: ...\n")
    words = ("bftrain", "replay", "--objective", *typed)
    asked = {"_BFTRAIN_COMPLETE": "bash_complete", "COMP_WORDS": "\n".join(words), "COMP_CWORD": f"{len(words) - 1}"}
    ended = CliRunner().invoke(main, [], prog_name="bftrain", env=asked)
    assert ended.output.splitlines() == lines


@pytest.mark.usefixtures("folder")
def test_folders_are_left_to_the_shell_and_stand_first() -> None:
    assert offered("replay", "logs")[0] == ("dir", "logs")
    assert offered("replay", "nowhere/x") == [("dir", "nowhere/x")]
