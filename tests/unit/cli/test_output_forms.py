"""How commands print: words or JSON, quiet or verbose, on a terminal or in a pipe."""

from __future__ import annotations

import json
import sys

import click
import msgspec
import pytest

from bftrain.cli.output import Output, prints_results, show, table
from bftrain.errors import UsageError
from tests.helpers.program import ANSI


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (-1, ["warning: careful"]),
        (0, ["going on", "warning: careful"]),
        (1, ["going on", "in detail", "warning: careful"]),
    ],
)
def test_how_much_is_said(level: int, heard: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    out = Output(json=False, level=level)
    out.say("going on")
    out.detail("in detail")
    out.warn("careful")
    said = capfd.readouterr()
    assert said.err.splitlines() == heard
    assert said.out == ""


def test_a_result_is_words_or_json(capfd: pytest.CaptureFixture[str]) -> None:
    Output(json=False, level=0).result({"nodes": 3}, lambda: "three nodes")
    assert capfd.readouterr().out == "three nodes\n"
    Output(json=True, level=0).result({"nodes": 3}, lambda: pytest.fail("words were not asked for"))
    assert json.loads(capfd.readouterr().out) == {"nodes": 3}


def test_names_are_never_markup(capfd: pytest.CaptureFixture[str]) -> None:
    show(table("log [red].csv :bug:", ("task", "size"), [("[bold]a[/bold]", 3)]))
    said = capfd.readouterr().out
    assert "log [red].csv :bug:" in said
    assert "[bold]a[/bold]" in said


def test_a_table_in_a_pipe_is_plain_and_wide(capfd: pytest.CaptureFixture[str]) -> None:
    show(table("", ("name", "what"), [("x" * 60, "y" * 60), ("short", "1")]))
    lines = capfd.readouterr().out.splitlines()
    assert any("x" * 60 in line and "y" * 60 in line for line in lines)
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_terminal_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    show(table("", ("name", "what"), [("x" * 30, "y" * 30)]))
    seen = ANSI.sub("", capsys.readouterr().out)
    assert max(map(len, seen.splitlines())) <= 30
    assert seen.count("x") == seen.count("y") == 30  # folded, not cut off: half a command helps nobody


def test_progress_shows_nothing_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with Output(json=False, level=0).progress() as bars:
        bars.advance(bars.add_task("replaying", total=2))
    assert capfd.readouterr().err == ""


def command() -> click.Command:
    @click.command()
    @prints_results
    def shout(out: Output) -> None:
        out.result(msgspec.structs.asdict(Loud(level=out.level)), lambda: f"level {out.level}")

    return shout


class Loud(msgspec.Struct, frozen=True):
    level: int


@pytest.mark.parametrize(
    ("options", "printed"),
    [([], "level 0\n"), (["-q"], "level -1\n"), (["-v"], "level 1\n"), (["--json", "-q"], '{"level":-1}\n')],
)
def test_every_command_has_the_same_options(
    options: list[str], printed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command().main(options, standalone_mode=False)
    assert capfd.readouterr().out == printed


def test_quiet_and_verbose_contradict_each_other() -> None:
    with pytest.raises((click.UsageError, UsageError), match="contradict"):
        command().main(["-q", "-v"], standalone_mode=False)
