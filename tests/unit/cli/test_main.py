"""How a command's end becomes an exit code and a line of words."""

from __future__ import annotations

import errno
import io
import runpy
import sys
from unittest.mock import Mock

import click
import pytest

from bftrain import __version__, errors
from bftrain.cli import main as frame
from bftrain.cli.main import exit_code
from tests.helpers.in_process import CommandLine


def no_space(name: str | None) -> OSError:
    error = OSError(errno.ENOSPC, "No space left on device")
    error.filename = name
    return error


FAILURES: list[tuple[BaseException, int, str]] = [
    (click.UsageError("no such option"), 2, "Error: no such option\n"),
    (errors.UsageError("cannot be", fix="leave it"), 2, "bftrain: cannot be (leave it)\n"),
    (errors.BadInput("is odd", where="file.csv:3"), 3, "bftrain: file.csv:3: is odd\n"),
    (errors.NotAvailable("no licence", fix="buy one"), 4, "bftrain: no licence (buy one)\n"),
    (errors.Fault("two tasks on one node"), 5, "bftrain: two tasks on one node\n"),
    (errors.Interrupted("half is kept"), 130, "bftrain: half is kept\n"),
    (KeyboardInterrupt(), 130, "bftrain: interrupted\n"),
    (click.Abort(), 130, "bftrain: interrupted\n"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "log.npz"), 3, "bftrain: log.npz: No such file"),
    (PermissionError(errno.EACCES, "Permission denied", "f.toml"), 3, "bftrain: f.toml: Permission denied\n"),
    (ZeroDivisionError("what"), 5, "bftrain: a fault of ours: ZeroDivisionError: what. Please report it, with what"),
    (OSError("what"), 5, "bftrain: a fault of ours: OSError: what."),
    (OSError(errno.EIO, "Input/output error"), 5, "bftrain: a fault of ours: OSError: "),
]


@pytest.mark.parametrize(("error", "code", "words"), FAILURES)
def test_every_end_of_a_command_becomes_words_and_a_code(
    error: BaseException, code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(error) == code
    said = capfd.readouterr()
    assert said.err.startswith(words)
    assert said.out == ""
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BrokenPipeError(), 0, ""),
        (no_space("/dev/full"), 4, "bftrain: /dev/full: No space left on device\n"),
        (no_space(None), 4, "bftrain: writing: No space left on device\n"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out.csv"), 4, "bftrain: out.csv: Disk quota exceeded\n"),
    ],
)
def test_stdout_is_given_up_when_nothing_can_be_written(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    muted: list[int] = []
    monkeypatch.setattr(frame.os, "dup2", lambda _new, old: muted.append(old))
    assert exit_code(error) == code
    assert capfd.readouterr().err == words
    # A pipe that is gone may be either of them; of a full disk stderr can still tell
    pipe = isinstance(error, BrokenPipeError)
    assert muted == [sys.stdout.fileno(), *([sys.stderr.fileno()] if pipe else [])]


def test_a_fault_shows_where_it_is_to_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments, shown in (["bftrain", "doctor"], False), (["bftrain", "doctor", "-v"], True):
        monkeypatch.setattr(sys, "argv", arguments)
        assert exit_code(ZeroDivisionError("oh")) == 5
        said = capfd.readouterr()
        assert ("ZeroDivisionError: oh\nbftrain: a fault of ours" in said.err) is shown
        assert said.out == ""


def test_version_and_help(bftrain: CommandLine) -> None:
    assert bftrain("--version").out == f"bftrain {__version__}\n"
    output = bftrain("--help")
    assert output.code == 0
    positions = [output.out.index(f"\n  {name} ") for name in frame.COMMANDS]
    assert positions == sorted(positions)


def test_help_and_completion_import_no_command(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "import_module", None)  # any call of it fails
    assert bftrain("--help").code == 0
    context = click.Context(frame.main)
    assert [item.value for item in frame.main.shell_complete(context, "d")] == ["demo", "doctor", "decide", "drain"]
    assert [item.value for item in frame.main.shell_complete(context, "--v")] == ["--version"]


def test_no_command_is_a_matter_of_usage(bftrain: CommandLine) -> None:
    assert bftrain().code == 2


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("decied", "No such command 'decied': did you mean 'decide'?"),
        ("docter", "No such command 'docter': did you mean 'doctor'?"),
        ("xyzzy", "No such command 'xyzzy': known: anonymise, api, assess, cancel, check"),
    ],
)
def test_an_unknown_command_is_answered_with_known_ones(bftrain: CommandLine, wrong: str, meant: str) -> None:
    ended = bftrain(wrong)
    assert ended.code == 2
    assert meant in ended.err
    assert frame.main.get_command(click.Context(frame.main), wrong) is None


def test_an_unknown_option_is_a_matter_of_usage(bftrain: CommandLine) -> None:
    assert bftrain("--verson").code == 2
    assert bftrain("completion", "tcsh").code == 2


class _AtOnce(Exception):
    pass


def test_the_demo_frees_no_objects_at_its_end_unless_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = Mock(side_effect=_AtOnce)
    monkeypatch.setattr(frame.os, "_exit", at_once)
    monkeypatch.setattr(frame, "atexit", Mock())
    monkeypatch.setattr(frame.threading, "active_count", lambda: threads)
    monkeypatch.setattr(sys, "argv", ["bftrain", "demo", "--no-such"])
    threads = 1
    with pytest.raises(_AtOnce):
        frame.run()
    at_once.assert_called_once_with(2)
    threads = 2
    with pytest.raises(SystemExit):
        frame.run()


def test_python_dash_m(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrain", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bftrain", run_name="__main__")
    assert ended.value.code == 0
    assert capfd.readouterr().out == f"bftrain {__version__}\n"


def test_an_early_leaving_reader_is_no_error(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def fileno(self) -> int:
            return 1

    muted: list[int] = []
    monkeypatch.setattr(frame.os, "dup2", lambda _new, old: muted.append(old))
    for number, arguments in enumerate((("--version",), ("--help",), ("completion", "bash")), start=1):
        monkeypatch.setattr(sys, "stdout", Gone())
        ended = bftrain(*arguments)
        assert (ended.code, ended.err) == (0, "")
        assert muted == [1, sys.stderr.fileno()] * number


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
    assert "bftrain" in ended.out


def test_completing_names_commands_and_options(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    for words, position, completed in (
        ("bftrain de", "1", "plain,demo\nplain,decide\n"),
        ("bftrain jo", "1", "plain,journal\n"),
        ("bftrain --v", "1", "--version"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", position)
        ended = bftrain()
        assert completed in ended.out
        assert (ended.code, ended.err) == (0, "")


def test_a_code_that_a_command_chose_is_kept(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def leaving(context: click.Context) -> None:
        context.exit(4)

    stand_in(monkeypatch, leaving)
    assert bftrain("doctor").code == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError(), BrokenPipeError(errno.EPIPE, "gone")])
def test_what_a_command_raises_is_caught(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    @click.command()
    def raising() -> None:
        raise error

    stand_in(monkeypatch, raising)
    monkeypatch.setattr(frame.os, "dup2", lambda *_: None)
    wanted = {KeyboardInterrupt: 130, ZeroDivisionError: 5, BrokenPipeError: 0}[type(error)]
    assert bftrain("doctor").code == wanted


def stand_in(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    monkeypatch.setattr(frame.main, "get_command", lambda context, name: command)  # noqa: ARG005 - click's signature
