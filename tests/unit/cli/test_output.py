"""How commands print: words or JSON, quiet or verbose, on a terminal or in a pipe."""

from __future__ import annotations

import json
import sys

import click
import pytest

from bftrain.cli.output import Output, prints_results, show, table
from tests.helpers.program import ANSI


@click.command()
@prints_results
def speaking(out: Output) -> None:
    out.say("said")
    out.detail("detailed")
    out.warn("warned")
    out.result({"level": out.level}, lambda: f"level {out.level}")


@pytest.mark.parametrize(
    ("options", "printed", "heard"),
    [
        ([], "level 0\n", "said\nwarning: warned\n"),
        (["-q"], "level -1\n", "warning: warned\n"),
        (["-v"], "level 1\n", "said\ndetailed\nwarning: warned\n"),
        (["--json"], '{"level":0}\n', "said\nwarning: warned\n"),
        (["--json", "-q"], '{"level":-1}\n', "warning: warned\n"),
        (["--json", "--quiet"], '{"level":-1}\n', "warning: warned\n"),
        (["--json", "--verbose"], '{"level":1}\n', "said\ndetailed\nwarning: warned\n"),
    ],
)
def test_results_go_to_stdout_and_all_else_to_stderr(
    options: list[str], printed: str, heard: str, capfd: pytest.CaptureFixture[str]
) -> None:
    speaking.main(options, standalone_mode=False)
    assert capfd.readouterr() == (printed, heard)


def test_quiet_and_verbose_contradict_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.UsageError, match="-q and -v contradict each other") as refused:
        speaking.main(["-q", "-v"], standalone_mode=False)
    assert refused.value.exit_code == 2
    assert capfd.readouterr().out == ""


def test_a_result_is_words_or_json(capfd: pytest.CaptureFixture[str]) -> None:
    Output(json=False, level=0).result({"nodes": 3}, lambda: "three nodes")
    assert capfd.readouterr().out == "three nodes\n"
    Output(json=True, level=0).result({"nodes": 3}, lambda: pytest.fail("words were not asked for"))
    assert json.loads(capfd.readouterr().out) == {"nodes": 3}


def test_names_are_never_markup(capfd: pytest.CaptureFixture[str]) -> None:
    show(table("log [red].csv :bug:", ("task", "size"), [("[bold]a[/bold]", 3)]))
    said = capfd.readouterr().out
    assert said.splitlines()[0] == "log [red].csv :bug:"
    assert any(line.split() == ["[bold]a[/bold]", "3"] for line in said.splitlines())


def test_a_table_in_a_pipe_is_plain_and_wide(capfd: pytest.CaptureFixture[str]) -> None:
    show(table("", ("name", "what"), [("x" * 60, "y" * 60), (":bug:" * 20, 12345), ("short", "1")]))
    lines = capfd.readouterr().out.splitlines()
    assert any("x" * 60 in line and "y" * 60 in line for line in lines)
    assert any(line.split() == [":bug:" * 20, "12345"] for line in lines)
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


def test_figures_stand_to_the_right_and_words_to_the_left(capfd: pytest.CaptureFixture[str]) -> None:
    show(table("", ("name", "figure"), [("a", 3), ("bbb", 12345)]))
    rows = capfd.readouterr().out.splitlines()[-3:]
    assert next(row for row in rows if row).split("a", 1)[1].endswith("    3")


def test_a_terminal_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    show(table("", ("name", "what"), [("x" * 30, "y" * 30)]))
    seen = ANSI.sub("", capsys.readouterr().out)
    assert max(map(len, seen.splitlines())) <= 30
    assert len(seen.splitlines()) > 4
    assert seen.count("x") == seen.count("y") == 30  # folded, not cut off: half a command is of no use


def test_progress_shows_nothing_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with Output(json=False, level=0).progress() as bars:
        bars.advance(bars.add_task("replaying", total=2))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("width", [30, 40, 59, 60, 80, 109, 110, 200])
def test_progress_cuts_words_and_no_figures(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    bars = Output(json=False, level=0).progress()
    bars.add_task("equal-share, hours replayed, 1,151 decisions/s", total=360, completed=311)
    with bars.console.capture() as capture:
        bars.console.print(bars.get_renderable())
    (line,) = ANSI.sub("", capture.get()).splitlines()
    assert len(line.rstrip()) <= width
    assert "311/360 -:--:--" in line
    assert line.startswith("equal-sh")


def test_progress_is_shown_to_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Output(json=False, level=0).progress().disable
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert not Output(json=False, level=0).progress().disable
    assert Output(json=False, level=-1).progress().disable
