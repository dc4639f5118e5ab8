"""How commands end and print: exit codes and words, output streams, terminals, and the Tab key."""

from __future__ import annotations

import errno
import io
import os
import re
import runpy
import sys
from pathlib import Path

import click
import pytest

from bftrain import BadInput, BftrainError, NotAvailable, UsageError, __version__
from bftrain.cli import command_table
from bftrain.cli import main as program
from bftrain.cli.former_names import RENAMED
from tests.helpers.in_process import CommandLine

FAILURES: list[tuple[BaseException, int, str]] = [
    (click.UsageError("no such option"), 2, "Error: no such option\n"),
    (UsageError("cannot be", fix="leave it"), 2, "bftrain: cannot be (leave it)\n"),
    (BadInput("is odd", where="file.csv:3"), 3, "bftrain: file.csv:3: is odd\n"),
    (NotAvailable("no licence", fix="buy one"), 4, "bftrain: no licence (buy one)\n"),
    (BftrainError("two tasks on one node"), 5, "bftrain: two tasks on one node\n"),
    (KeyboardInterrupt(), 130, "bftrain: interrupted\n"),
    (click.Abort(), 130, "bftrain: interrupted\n"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "log.npz"), 3, "bftrain: log.npz: No such file"),
    (PermissionError(errno.EACCES, "Permission denied", "f.toml"), 3, "bftrain: f.toml: Permission denied\n"),
    (OSError(errno.EDQUOT, "Disk quota exceeded", "out.csv"), 4, "bftrain: out.csv: Disk quota exceeded\n"),
    (ZeroDivisionError("what"), 5, "bftrain: internal error: ZeroDivisionError: what."),
    (OSError(errno.EIO, "Input/output error"), 5, "bftrain: internal error: OSError: "),
    (click.exceptions.Exit(4), 4, ""),
]


def stand_in(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Have all commands raise this error."""

    @click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def raising() -> None:
        raise error

    monkeypatch.setattr(program.main, "get_command", lambda context, name: raising)  # noqa: ARG005 - click's signature


@pytest.mark.parametrize(("error", "code", "words"), FAILURES)
def test_every_end_of_a_command_becomes_words_and_a_code(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    stand_in(monkeypatch, error)
    ended = bftrain("doctor")
    assert (ended.code, ended.out, words in ended.err, "Traceback" in ended.err) == (code, "", True, False), ended.err
    if "internal error" in words:
        assert f"{type(error).__name__}: {error}\nbftrain: internal error" in bftrain("doctor", "-v").err


def test_version_and_help(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrain", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bftrain", run_name="__main__")
    assert (ended.value.code, capfd.readouterr().out) == (0, f"bftrain {__version__}\n")
    monkeypatch.setattr(command_table, "import_module", None)  # any call fails: help and completion import no command
    page = bftrain("--help").out
    positions = [page.index(f"\n  {name} ") for name in command_table.COMMANDS]
    assert positions == sorted(positions)
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    assert completed(bftrain, monkeypatch, "d") == ["plain,demo", "plain,doctor", "plain,decide"]
    assert completed(bftrain, monkeypatch, "--v") == ["plain,--version"]


def test_closed_streams_are_replaced(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        ended = bftrain("no-such-command")
        assert sys.stderr is not None
        sys.stderr.close()
    assert (ended.code, ended.err) == (2, "")


@pytest.mark.parametrize(("options", "heard"), [([], "no --tasks: "), (["--json", "-q"], "")])
def test_results_go_to_stdout_and_all_else_to_stderr(
    bftrain: CommandLine, tmp_path: Path, options: list[str], heard: str
) -> None:
    assert bftrain("generate", "log", "-o", tmp_path / "log.npz", "--nodes", 4, "--days", 0.1).code == 0
    ended = bftrain("replay", tmp_path / "log.npz", "--max-tasks", 1, "-o", tmp_path / "out", *options)
    assert (ended.code, ended.out.startswith("{")) == (0, "--json" in options), ended.err
    assert heard in ended.err
    assert heard or all(line.startswith("warning: ") for line in ended.err.splitlines())


def test_a_table_in_a_pipe_is_plain_and_wide_and_names_are_never_markup(bftrain: CommandLine, tmp_path: Path) -> None:
    names = ["x" * 60, ":bug:" * 20, "[bold]a[/bold]"]
    own = tmp_path / "own.toml"
    own.write_text("".join(f"[[profile]]\nname = '{name}'\nnodes = [1]\nrate = [7.0]\n" for name in names))
    ended = bftrain("generate", "profiles", own)
    assert all(name in ended.out for name in names)
    assert not re.search(r"\x1b|[ \t]$", ended.out, re.MULTILINE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(bftrain: CommandLine, shell: str) -> None:
    ended = bftrain("doctor", "--completion", shell)
    assert (ended.code, "_BFTRAIN_COMPLETE" in ended.out) == (0, True)


def completed(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, *typed: str) -> list[str]:
    """Return what bash is offered for the last word: TYPE,VALUE."""
    words = ["bftrain", *typed]
    for name, value in (("COMPLETE", "bash_complete"), ("WORDS", "\n".join(words)), ("CWORD", str(len(typed)))):
        monkeypatch.setenv("_BFTRAIN_COMPLETE" if name == "COMPLETE" else f"COMP_{name}", value)
    ended = bftrain()
    assert (ended.code, ended.err) == (0, "")
    return [line for line in ended.out.splitlines() if line]


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("replay --solver g", "greedy gurobi"),
        ("replay --baseline equal", "equal-share equal-share-published"),
        ("replay --objective MAX-MIN-", "max-min-now max-min-plain"),
        ("replay --placement a", "auto"),
        ("replay --placement g", "grouped"),
        ("schedule --policy eas", "easy"),
        ("decide --admission quo", "quota"),
        ("solve --solver al", "all"),
        ("import --format sac", "sacct"),
        ("replay --objective mi", ""),
    ],
)
def test_the_tab_key_offers_names_of_parts(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, typed: str, values: str
) -> None:
    offered = [line.split(",", 1) for line in completed(bftrain, monkeypatch, *typed.split(" "))]
    assert sorted(value for kind, value in offered if kind == "plain") == values.split()


def test_files_are_left_to_the_shell(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(bftrain, monkeypatch, "replay", "nowhere/x") == ["file,nowhere/x"]
    assert completed(bftrain, monkeypatch, "replay", "--objective", "mine") == ["file,mine"]
    rounds = completed(bftrain, monkeypatch, "rounds", "--policy", "")
    assert {"plain,las", "plain,max-min"} <= set(rounds)


class Gone(io.StringIO):
    """A pipe whose reader has left; it has a file number that nothing else needs."""

    def __init__(self) -> None:
        super().__init__()
        self._file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.mark.parametrize("words", ["--version", "--help", "doctor --completion bash"])
def test_an_early_leaving_reader_is_no_error(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    with monkeypatch.context() as patch, Gone() as out, Gone() as err:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        assert bftrain(*words.split()).code == 0


@pytest.mark.parametrize(
    ("words", "replacement"),
    [
        (("top",), "'top': use bftrain status --watch"),
        (("live", "measure", "--jobs", "3"), "'measure': run python examples/live/measure_waits.py"),
        (("live", "join", "socket"), "'join': each user starts a live run"),
        (("live", "members"), "'members': each user starts a live run"),
        (("journal", "repair", "live.db"), "'repair': put back a backup"),
    ],
)
def test_a_removed_command_names_its_replacement(
    words: tuple[str, ...], replacement: str, bftrain: CommandLine
) -> None:
    ended = bftrain(*words)
    assert (ended.code, f"No such command {replacement}" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize("old", RENAMED)
def test_a_former_name_runs_the_present_command_with_a_hint(bftrain: CommandLine, old: str) -> None:
    given = (*(("bash",) if old == "completion" else ()), "--help")
    ended, present = bftrain(*old.split(), *given), bftrain(*RENAMED[old].split(), *given)
    assert (ended.code, ended.out) == (0, present.out)
    new = "report DIR -o FILE.json" if old == "export" else RENAMED[old]
    assert ended.err == f"hint: bftrain {old} is now bftrain {new}; the old name will be removed\n"
    assert "hint" not in bftrain(*old.split(), *given, "-q").err


def test_settable_names_are_completed(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(bftrain, monkeypatch, "decide", "--set", "tu") == ["plain,turn="]
    assert "plain,fallback=" in completed(bftrain, monkeypatch, "decide", "--set", "")
