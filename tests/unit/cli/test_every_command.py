"""What all commands have in common: help, JSON, quiet, pipes, narrow terminals, and files of something else."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from tests.helpers.every_command import (
    CALLS,
    LONG,
    SHORT,
    commands_that_do_something,
    context_of,
    every_command,
    prepare,
    words_of,
)
from tests.helpers.in_process import CommandLine, Ended
from tests.helpers.program import check_help

EXAMPLES = Path(__file__).parents[3] / "examples"
PLAIN = 78  # columns that a plain terminal has for a line of the help
MANY = 10  # options that are hard to read without headings
MOST_ROWS, MOST_COMMANDS = 270, 26
COMMANDS = [path for path, _ in every_command()]
ALL: dict[str, Any] = commands_that_do_something()  # each with an example, and options under headings
short = pytest.mark.parametrize("name", SHORT)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every") / LONG
    folder.mkdir()
    prepare(folder)
    return folder


@pytest.fixture
def folder(prepared: Path, bftrain: CommandLine) -> Path:
    journal = prepared / "journal.db"
    if not journal.exists():
        assert bftrain("decide", prepared / "events.jsonl", "--journal", journal).code == 0
    (prepared / "repaired.db").unlink(missing_ok=True)  # which is never replaced
    return prepared


def test_no_command_is_forgotten() -> None:
    """A new command gets a row in tests/helpers/every_command.py that says how it is called."""
    assert sorted(CALLS) == sorted(ALL)


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help_fits_a_plain_terminal(
    bftrain: CommandLine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    check_help(bftrain, command)


@pytest.mark.parametrize("path", ALL)
def test_the_example_of_a_command_calls_it_with_options_that_it_has(path: str) -> None:
    command = ALL[path]
    examples = command.example.splitlines()
    assert len(examples) == 2
    for line in examples:
        assert len(line) <= PLAIN
        called = ["bftrain", *path.split()]
        words = shlex.split(line.partition(" > ")[0])
        assert words[: len(called)] == called
        parser = command.make_parser(context_of(command))  # it does not ask whether files exist
        given, _, order = parser.parse_args(words[len(called) :])
        required = {item.name for item in command.params if item.required}
        assert required <= given.keys() | {item.name for item in order}, line


@pytest.mark.parametrize("path", ALL)
def test_options_are_grouped_take_lengths_of_time_and_are_those_of_all(path: str) -> None:
    command = ALL[path]
    assert {"--json", "-q", "-v"} <= {option for parameter in command.params for option in parameter.opts}
    assert len(command.records_by_heading(context_of(command))) > 2 or len(command.params) <= MANY
    for option in command.params:
        if isinstance(option, click.Option) and (option.name or "").endswith("_s"):
            assert "DURATION" in option.type.name or option.name in {"start_s", "begin_s"}, option.opts  # moments


def test_the_number_of_option_rows_does_not_grow() -> None:
    """Move rarely used settings to the configuration file or to --set before you raise these numbers."""
    records = [ALL[path].records_by_heading(context_of(ALL[path])) for path in ALL]
    rows = [record for groups in records for group in groups.values() for record in group]
    common = [names for names, _ in rows if names == "--json, -q, -v, -h"]
    assert len(common) == len(ALL)  # one row a command
    assert len(rows) - len(common) <= MOST_ROWS
    assert len([path for path in COMMANDS if len(path) == 1]) <= MOST_COMMANDS


@pytest.mark.parametrize("name", ["replay", "assess", "submit"])
def test_the_first_screen_has_two_examples_and_what_is_required(bftrain: CommandLine, name: str) -> None:
    screen = bftrain(name, "--help").out.splitlines()[:24]
    assert sum(line.startswith(f"  bftrain {name} ") for line in screen) == 2
    required = {"replay": "-o, --output DIR", "submit": "--nodes MIN:MAX", "assess": "FILES..."}[name]
    assert any(required in line for line in screen)
    assert name == "assess" or screen.index("Required:") < 14


@pytest.mark.parametrize("path", [path for path in COMMANDS if len(path) > 1], ids=" ".join)
def test_the_help_of_a_group_is_not_truncated(bftrain: CommandLine, path: tuple[str, ...]) -> None:
    page = bftrain(*path[:-1], "--help").out
    listed = page.partition("\nCommands:\n")[2]
    assert re.search(rf"^  {path[-1]} ", listed, re.MULTILINE)
    assert not re.search(r"\.\.\.$", listed, re.MULTILINE)


@pytest.mark.parametrize(
    ("former", "present", "hint"),
    [
        ("decide e.jsonl --turn 5", "decide e.jsonl --set turn=5", "--turn is now --set turn=VALUE"),
        ("decide e.jsonl --turn=5", "decide e.jsonl --set=turn_s=5", "--turn is now --set turn=VALUE"),
        ("solve p.json --gap 0.1", "solve p.json --set solver-gap=0.1", "--gap is now --set solver-gap=VALUE"),
        (
            "solve p.json --deadline 9",
            "solve p.json --set solver-deadline=9",
            "--deadline is now --set solver-deadline=VALUE",
        ),
    ],
)
def test_a_former_spelling_of_an_option_works_with_a_hint(
    bftrain: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch, former: str, present: str, hint: str
) -> None:
    monkeypatch.chdir(folder)
    for long, short in (("events.jsonl", "e.jsonl"), ("problem.json", "p.json")):
        former, present = former.replace(short, long), present.replace(short, long)
    before, now = bftrain(*former.split()), bftrain(*present.split())
    assert (before.code, before.err) == (0, f"hint: {hint}; the old spelling will be removed\n")
    assert (now.code, now.err) == (0, "")
    assert before.out.partition("wall ms")[0] == now.out.partition("wall ms")[0] != bftrain(former.split()[0]).out


def test_an_unknown_name_is_rejected_with_the_known_ones(bftrain: CommandLine) -> None:
    ended = bftrain("decide", "--set", "trun=5", "-")
    assert (ended.code, "'trun=5' is none of fallback=VALUE, turn=VALUE, " in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("decide --set trun=5 -", "did you mean 'turn'?"),
        ("decide --set turn -", "'turn' has no value: --set turn=VALUE"),
        ("decide --set turn=abc -", "Invalid value for '--set turn'"),
        ("decide --set turn=3 --set turn=4 -", "'turn' is set twice"),
        ("decide --tur 3 -", "'--set turn=VALUE'?)"),
        ("replay --set horizon=30 x", "'horizon' has an option of its own: --horizon 30"),
        ("task foo", "No such command 'foo': known: "),
        ("generate taks", "did you mean 'tasks'?"),
        ("import --dry-run /dev/null -o y.npz", "--dry-run: writes nothing (omit -o)"),
        ("import --dry-run --explain /dev/null", "--dry-run: cannot be used with --explain"),
        ("live --for 3", "--for: is for the demo only"),
        ("doctor --completion", "requires an argument, [bash|zsh|fish]."),
    ],
)
def test_a_rejected_option_names_what_to_type(bftrain: CommandLine, words: str, reason: str) -> None:
    ended = bftrain(*words.split())
    assert (ended.code, reason in ended.err) == (2, True), ended.err


def values(ended: Ended, name: str) -> list[object]:
    """Read what was printed as JSON: one value on one line, or lines of them; nothing where no live run answers."""
    if CALLS[name].nothing:
        assert ended.out == ""
        assert ended.err.startswith("bftrain: ")
        return []
    lines = ended.out.splitlines()
    assert ended.out.endswith("\n")
    assert CALLS[name].lines or len(lines) == 1
    return [json.loads(line) for line in lines]


@short
def test_json_is_all_there_is_on_stdout(name: str, bftrain: CommandLine, folder: Path) -> None:
    ended = bftrain(*words_of(name, folder, "--json", "-v"))
    assert ended.code == CALLS[name].code, ended.err
    assert all(isinstance(value, dict | list) for value in values(ended, name))
    assert not [line for line in ended.err.splitlines() if line.startswith(("{", "["))]


@short
def test_quiet_and_in_a_pipe_the_result_is_plain_and_whole(name: str, bftrain: CommandLine, folder: Path) -> None:
    loud = bftrain(*words_of(name, folder))
    for text in (loud.out, loud.err):
        assert not re.search(r"\x1b|\r|[ \t]$", text, re.MULTILINE)
        assert not text or text.endswith("\n")
        together = "".join(line.strip() for line in text.splitlines())
        assert text.count(LONG) == together.count(LONG)  # a name that was broken into lines is found together only
    (folder / "repaired.db").unlink(missing_ok=True)
    quiet = bftrain(*words_of(name, folder, "-q"))
    assert quiet.code == CALLS[name].code
    assert bool(quiet.out) is not CALLS[name].nothing
    errors = [line for line in quiet.err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == (1 if CALLS[name].nothing else 0)
    kept = 4 if name == "import" else len(loud.out.splitlines())  # its findings are no part of the result
    assert len(quiet.out.splitlines()) == kept


@pytest.mark.parametrize(
    "command",
    [
        "import jobs.sacct --explain",
        "import --dry-run log.npz",
        "report one",
        "compare one two --label a --label b -o both.html",
        "journal replay journal.db",
        "replay log.npz -o trials --overwrite",
        "solve problem.json --solver highs",
        f"solve {EXAMPLES}/problems/kinds.json --policy water-filling",
        "sweep sweep.toml -o new --dry-run",
        "live --example slurm",
        "live --example openapi",
    ],
)
def test_quiet_there_is_nothing_beside_the_result(
    bftrain: CommandLine, folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ended = bftrain(*command.split(), "-q")
    assert (ended.code, ended.err, bool(ended.out)) == (0, "", True)


@short
def test_wrong_options_and_missing_files_are_named(name: str, bftrain: CommandLine, folder: Path) -> None:
    ended = bftrain(*words_of(name, folder, "--json", "--no-such-option"))
    assert (ended.code, ended.out) == (2, "")
    assert "--no-such-option" in ended.err
    words = words_of(name, folder)
    read = [word for before, word in pairwise(words) if before not in {"-o", "--to"} and (folder / word).is_file()]
    for file in () if CALLS[name].nothing else read:
        ended = bftrain(*(f"{folder}/no such file" if word == file else word for word in words), "--json")
        assert ended.code in {2, 3, 4}
        assert (ended.out, "no such file" in ended.err, "Traceback" in ended.err) == ("", True, False)


READERS = (
    "decide FILE",
    "decide {}/events.jsonl --config FILE",
    "journal show FILE",
    "inspect FILE",
    "slice FILE -o out.npz --nodes 0:1",
    "slice --anonymise FILE -o out.npz",
    "generate from-trace FILE FILE -o out.toml",
    "replay FILE --tasks {}/tasks.toml -o out",
    "replay {}/log.npz --tasks FILE -o out",
    "solve FILE",
)


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n\0\0" + bytes(range(256)), b"\xff\xfe\0" * 500, b"{" * 5000, b"", None],
    ids=["picture", "not UTF-8", "brackets", "empty", "folder"],
)  # fmt: skip
@pytest.mark.parametrize("command", READERS)
def test_a_file_of_something_else_is_rejected_by_name(
    bftrain: CommandLine, command: str, content: bytes | None, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "other.bin"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    words = [word.replace("{}", str(folder)).replace("FILE", str(file)) for word in command.split()]
    ended = bftrain(*words, "--json")
    if content == b"" and words[0] == "decide":  # no events, or no settings
        assert ended.code == 0
        return
    assert ended.code in ({3} if content is not None else {2, 3})
    assert len(ended.err) < 1000  # the reason, not the file
    assert (ended.out, "other.bin" in ended.err, "Traceback" in ended.err) == ("", True, False)


KINDS = "{ nodes = [1], rate = [4.0] }"
TASK = '[[task]]\nname = "t{}"\nmax_nodes = 1\nwork_samples = {}\nsubmit_s = {}\ncurves = {{ v100 = {}, k80 = {} }}\n'


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "command",
    [
        "rounds --cluster v100=2,k80=1 --round 360 --policy max-min --tasks gangs.toml",
        "replay log.npz --tasks tasks.toml -o new --overwrite --quick",
        "compare one two --difference --label the-first-of-both --label second",
        "solve {}/problems/kinds.json",
        "solve {}/problems/quickstart.json",
        "solve {}/problems/quickstart.json --solver all",
    ],
    ids=["rounds", "replay", "compare", "kinds", "one solver", "all solvers"],
)
def test_on_a_narrow_terminal_no_word_and_no_figure_is_broken(
    bftrain: CommandLine,
    prepared: Path,
    terminal: Callable[[int], None],
    command: str,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(prepared)
    tasks = [TASK.format(number, 90_000.0 + number, 100.0 * number, KINDS, KINDS) for number in range(8)]
    Path("gangs.toml").write_text("".join(tasks))
    words = command.replace("{}", str(EXAMPLES)).split()
    whole = bftrain(*words)
    terminal(width)
    narrow = bftrain(*words)
    assert (whole.code, narrow.code) == (0, 0)
    screen = re.sub(r"\x1b\[[0-9;]*m", "", narrow.out)
    assert max(map(len, screen.splitlines())) <= width
    if words[0] != "replay":  # a replay has a picture and prose
        assert words_in(whole.out) - words_in(screen) == set()
    assert not re.search(r"^\s*%", screen, re.MULTILINE)  # without its figure


def words_in(text: str) -> set[str]:
    without_times = re.sub(r"\b\d+\.\d\d\b|[\d.]+ (?:/ [\d.]+ )?m?s\b", "", text)  # they differ from run to run
    return set(re.findall(r"[A-Za-z_]+|\d[\d.,]*%?", without_times))
