"""How a command's end becomes an exit code and a line of words."""

from __future__ import annotations

import errno
import runpy
import sys
from typing import TYPE_CHECKING

import click
import pytest

from bftrain import __version__, errors
from bftrain.cli import main as frame
from bftrain.cli.main import exit_code

if TYPE_CHECKING:
    from tests.helpers.in_process import CommandLine


def no_space(name: str | None) -> OSError:
    error = OSError(errno.ENOSPC, "No space left on device")
    error.filename = name
    return error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (click.UsageError("no such option"), 2, "no such option"),
        (errors.UsageError("cannot be"), 2, "cannot be"),
        (errors.BadInput("is odd", where="file.csv:3"), 3, "bftrain: file.csv:3: is odd"),
        (errors.NotAvailable("no licence", fix="buy one"), 4, "bftrain: no licence (buy one)"),
        (errors.Fault("two tasks on one node"), 5, "two tasks on one node"),
        (KeyboardInterrupt(), 130, "bftrain: interrupted"),
        (click.Abort(), 130, "bftrain: interrupted"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "log.npz"), 3, "log.npz: No such file"),
        (ZeroDivisionError("division by zero"), 5, "a fault of ours: ZeroDivisionError: division by zero"),
        (OSError(errno.EIO, "Input/output error"), 5, "a fault of ours"),
    ],
)
def test_what_ended_it_decides_the_code(
    error: BaseException, code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(error) == code
    said = capfd.readouterr()
    assert words in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BrokenPipeError(), 0, ""),
        (no_space("/dev/full"), 4, "bftrain: /dev/full: No space left on device\n"),
        (no_space(None), 4, "bftrain: writing: No space left on device\n"),
    ],
)
def test_stdout_is_given_up_when_nothing_can_be_written(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    muted: list[int] = []
    monkeypatch.setattr(frame.os, "dup2", lambda _new, old: muted.append(old))
    assert exit_code(error) == code
    assert capfd.readouterr().err == words
    assert muted == [sys.stdout.fileno()]


def test_a_fault_shows_where_it_is_to_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments, shown in (["bftrain", "doctor"], False), (["bftrain", "doctor", "-v"], True):
        monkeypatch.setattr(sys, "argv", arguments)
        assert exit_code(ZeroDivisionError("oh")) == 5
        assert ("ZeroDivisionError: oh\nbftrain:" in capfd.readouterr().err) is shown


def test_version_and_help(bftrain: CommandLine) -> None:
    assert bftrain("--version").out == f"bftrain {__version__}\n"
    told = bftrain("--help")
    assert told.code == 0
    for name in frame.COMMANDS:
        assert f"\n  {name} " in told.out


def test_no_command_is_a_matter_of_usage(bftrain: CommandLine) -> None:
    assert bftrain().code == 2


@pytest.mark.parametrize(
    ("wrong", "meant"), [("decied", "did you mean 'decide'?"), ("xyzzy", "known: completion, decide")]
)
def test_an_unknown_command_is_answered_with_known_ones(bftrain: CommandLine, wrong: str, meant: str) -> None:
    ended = bftrain(wrong)
    assert ended.code == 2
    assert meant in ended.err


def test_python_dash_m(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrain", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bftrain", run_name="__main__")
    assert ended.value.code == 0
    assert capfd.readouterr().out == f"bftrain {__version__}\n"


def test_an_early_leaving_reader_is_no_error(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(frame.os, "dup2", lambda *_: None)
    monkeypatch.setattr(click, "echo", gone)
    for arguments in (("--version",), ("completion", "bash")):
        ended = bftrain(*arguments)
        assert (ended.code, ended.err) == (0, "")


def test_closed_streams_are_replaced(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        ended = bftrain("no-such-command")
        sys.stderr.close()
    assert (ended.code, ended.err) == (2, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(bftrain: CommandLine, shell: str) -> None:
    ended = bftrain("completion", shell)
    assert ended.code == 0
    assert "_BFTRAIN_COMPLETE" in ended.out


def test_completing_names_commands_and_options(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    for words, position, completed in (
        ("bftrain de", "1", "plain,demo\nplain,decide\n"),
        ("bftrain --v", "1", "--version"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", position)
        assert completed in bftrain().out
