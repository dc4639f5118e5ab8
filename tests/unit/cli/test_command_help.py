"""Help pages of all commands: options under headings, and an example that the command itself accepts."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from bftrain.cli.command_help import COMMON, OWN, DocumentedCommand, heading
from bftrain.cli.main import main
from tests.helpers.every_command import commands_that_do_something, context_of

PLAIN = 78  # columns that a plain terminal has for a line of the help
MANY = 10  # options that are hard to read without headings


ALL = commands_that_do_something()


@pytest.mark.parametrize("path", ALL)
def test_the_example_of_a_command_calls_it_with_options_that_it_has(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, DocumentedCommand)
    assert command.example
    for line in command.example.splitlines():
        assert len(line) <= PLAIN, "it fits a plain terminal"
        called = ["bftrain", *path.split()]
        words = shlex.split(line.partition(" > ")[0])
        assert words[: len(called)] == called
        parser = command.make_parser(context_of(command))  # it does not ask whether files exist
        given, _, order = parser.parse_args(words[len(called) :])
        required = {item.name for item in command.params if item.required}
        assert required <= given.keys() | {item.name for item in order}, line
        assert all(given[item.name] is not None for item in command.params if item.name in required)


@pytest.mark.parametrize("path", [path for path, command in ALL.items() if len(command.params) > MANY])
def test_many_options_are_grouped_under_headings(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, DocumentedCommand)
    groups = command.options_by_heading(context_of(command))
    own = [title for title in groups if title not in {COMMON, "Live run"}]
    assert len(own) > 1, f"{path} has all its options under {own}"
    assert list(groups)[-1] == COMMON


def test_a_heading_marks_the_options_below_it_down_to_the_next() -> None:
    @click.command(cls=DocumentedCommand, example="try --a")
    @click.option("--before")
    @heading("First")
    @click.option("--a", is_flag=True, help="The one.")
    @click.option("--b", help="The other.")
    @heading("Second")
    @click.option("--c", help="The last.")
    @click.option("--secret", hidden=True)
    def command() -> None:
        """Try it."""

    groups = command.options_by_heading(click.Context(command))
    names = {title: [option.opts[-1] for option in options] for title, options in groups.items()}
    assert names == {OWN: ["--before"], "First": ["--a", "--b"], "Second": ["--c"], COMMON: ["--help"]}
    page = CliRunner().invoke(command, ["--help"]).output
    assert page.index("Example:\n  try --a\n") < page.index("First:\n  --a ") < page.index("Second:\n  --c TEXT")
    assert "--secret" not in page


def test_a_long_example_stays_one_line() -> None:
    line = "try " + " ".join(f"--number {i}" for i in range(40))

    @click.command(cls=DocumentedCommand, example=line)
    def command() -> None:
        """Try it."""

    assert f"  {line}\n" in CliRunner().invoke(command, ["--help"]).output


def test_what_a_replay_needs_is_on_the_first_screen() -> None:
    page = CliRunner().invoke(main, ["replay", "--help"], prog_name="bftrain", terminal_width=80).output
    screen = page.splitlines()[:24]
    assert sum(line.startswith("  bftrain replay log.npz ") for line in screen) == 2
    assert all(any(line.startswith(f"  {option}") for line in screen) for option in ("-o, --output", "--tasks"))


@pytest.mark.parametrize(
    "path", ["import", "tasks generate", "assess", "replay", "compare", "report", "sweep", "solve"]
)
def test_commands_that_are_used_most_show_two_examples(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, DocumentedCommand)
    assert len(command.example.splitlines()) == 2


@pytest.mark.parametrize("path", ALL)
def test_options_that_take_seconds_take_lengths_of_time(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, DocumentedCommand)
    plain = [
        option.opts[-1]
        for option in command.params
        if isinstance(option, click.Option)
        and (option.name or "").endswith("_s")
        and option.name not in {"start_s", "begin_s"}  # moments
        and "DURATION" not in option.type.name
    ]
    assert plain == []
    assert (
        "DURATION is seconds, or such as" in CliRunner().invoke(command, ["--help"]).output
    ) == command.takes_durations
