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

from bftrain import BadInput, NotAvailable, UsageError, __version__, errors
from bftrain.cli import main as program
from bftrain.cli.output import Output, prints_results, show, table
from tests.helpers.in_process import CommandLine
from tests.helpers.program import ANSI

FAILURES: list[tuple[BaseException, int, str]] = [
    (click.UsageError("no such option"), 2, "Error: no such option\n"),
    (UsageError("cannot be", fix="leave it"), 2, "bftrain: cannot be (leave it)\n"),
    (BadInput("is odd", where="file.csv:3"), 3, "bftrain: file.csv:3: is odd\n"),
    (NotAvailable("no licence", fix="buy one"), 4, "bftrain: no licence (buy one)\n"),
    (errors.Fault("two tasks on one node"), 5, "bftrain: two tasks on one node\n"),
    (errors.Interrupted("half is kept"), 130, "bftrain: half is kept\n"),
    (KeyboardInterrupt(), 130, "bftrain: interrupted\n"),
    (click.Abort(), 130, "bftrain: interrupted\n"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "log.npz"), 3, "bftrain: log.npz: No such file"),
    (PermissionError(errno.EACCES, "Permission denied", "f.toml"), 3, "bftrain: f.toml: Permission denied\n"),
    (OSError(errno.EDQUOT, "Disk quota exceeded", "out.csv"), 4, "bftrain: out.csv: Disk quota exceeded\n"),
    (ZeroDivisionError("what"), 5, "bftrain: a fault of ours: ZeroDivisionError: what."),
    (OSError(errno.EIO, "Input/output error"), 5, "bftrain: a fault of ours: OSError: "),
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
    if "a fault of ours" in words:
        assert f"{type(error).__name__}: {error}\nbftrain: a fault of ours" in bftrain("doctor", "-v").err


def test_version_and_help(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrain", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bftrain", run_name="__main__")
    assert (ended.value.code, capfd.readouterr().out) == (0, f"bftrain {__version__}\n")
    monkeypatch.setattr(program, "import_module", None)  # any call fails: help and completion import no command
    page = bftrain("--help").out
    positions = [page.index(f"\n  {name} ") for name in program.COMMANDS]
    assert positions == sorted(positions)
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    assert completed(bftrain, monkeypatch, "d") == ["plain,demo", "plain,doctor", "plain,decide", "plain,drain"]
    assert completed(bftrain, monkeypatch, "--v") == ["plain,--version"]


def test_closed_streams_are_replaced(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        ended = bftrain("no-such-command")
        assert sys.stderr is not None
        sys.stderr.close()
    assert (ended.code, ended.err) == (2, "")


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
        (["--json", "--quiet"], '{"level":-1}\n', "warning: warned\n"),
    ],
)
def test_results_go_to_stdout_and_all_else_to_stderr(
    options: list[str], printed: str, heard: str, capfd: pytest.CaptureFixture[str]
) -> None:
    speaking.main(options, standalone_mode=False)
    assert capfd.readouterr() == (printed, heard)


def test_a_table_in_a_pipe_is_plain_and_wide_and_names_are_never_markup(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [("x" * 60, "y" * 60), (":bug:" * 20, 12345), ("[bold]a[/bold]", 1)]
    show(table("log [red].csv :bug:", ("name", "what"), rows))
    printed = capfd.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "log [red].csv :bug:"
    assert [str(cell) for row in rows for cell in row] == [word for line in lines[4:] for word in line.split()]
    assert not re.search(r"\x1b|[ \t]$", printed, re.MULTILINE)
    assert lines[-1].rstrip().endswith("    1") or lines[-2].rstrip().endswith("    1")  # figures stand to the right


def test_on_a_terminal_words_are_folded_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    show(table("", ("name", "what"), [("x" * 30, "y" * 30)]))
    seen = ANSI.sub("", capsys.readouterr().out)
    assert (max(map(len, seen.splitlines())) <= 30, seen.count("x"), seen.count("y")) == (True, 30, 30)


@pytest.mark.parametrize("width", [30, 59, 60, 109, 110, 200])
def test_progress_is_shown_to_people_only_and_cuts_words_and_no_figures(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Output(json=False, level=0).progress().disable
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    assert Output(json=False, level=-1).progress().disable
    bars = Output(json=False, level=0).progress()
    bars.add_task("equal-share, hours replayed, 1,151 decisions/s", total=360, completed=311)
    with bars.console.capture() as capture:
        bars.console.print(bars.get_renderable())
    (line,) = ANSI.sub("", capture.get()).splitlines()
    assert (bars.disable, len(line.rstrip()) <= width) == (False, True)
    assert "311/360 -:--:--" in line
    assert line.startswith("equal-sh")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(bftrain: CommandLine, shell: str) -> None:
    ended = bftrain("completion", shell)
    assert (ended.code, "_BFTRAIN_COMPLETE" in ended.out) == (0, True)


def completed(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, *typed: str) -> list[str]:
    """Return what bash is offered for the last word: TYPE,VALUE."""
    words = ["bftrain", *typed]
    for name, value in (("COMPLETE", "bash_complete"), ("WORDS", "\n".join(words)), ("CWORD", str(len(typed)))):
        monkeypatch.setenv("_BFTRAIN_COMPLETE" if name == "COMPLETE" else f"COMP_{name}", value)
    ended = bftrain()
    assert (ended.code, ended.err) == (0, "")
    return [line for line in ended.out.splitlines() if line]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "logs").mkdir()
    for name in ("log.npz", "tasks.toml", "notes.txt", "logs/other.csv", "logs/x.log"):
        (tmp_path / name).touch()
    code = "raise SystemExit\ndef thrifty(): ...\nclass Tidy: ...\ndef _own(): ...\n"
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("replay --solver g", "greedy gurobi"),
        ("replay --baseline equal", "equal-share equal-share-published"),
        ("replay --objective MAX-MIN-", "max-min-now max-min-plain"),
        ("replay --placement a", "auto"),
        ("replay --placement g", "grouped"),
        ("schedule --policy eas", "easy"),
        ("decide --admission camp", "campaigns"),
        ("solve --solver al", "all"),
        ("import --format sac", "sacct"),
        ("replay --horizon a", "auto"),
        ("assess --progress mem", "memory memory:"),
        ("replay --metrics x,camp", "x,campaigns"),
        ("replay lo", "log.npz"),
        ("replay logs/", "logs/other.csv"),
        ("replay ./l", "./log.npz"),
        ("replay log.npz --tasks t", "tasks.toml"),
        ("replay --config t", "tasks.toml"),
        ("replay --objective mi", "mine.py"),
        ("replay --objective mine.py :", "Tidy thrifty"),  # bash cuts words at colons
        ("replay --objective mine.py : th", "thrifty"),
        ("replay --objective none.py : x", ""),
    ],
)
def test_the_tab_key_offers_names_and_the_files_that_an_option_reads(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, typed: str, values: str
) -> None:
    offered = [line.split(",", 1) for line in completed(bftrain, monkeypatch, *typed.split(" "))]
    assert sorted(value for kind, value in offered if kind == "plain") == values.split()


@pytest.mark.usefixtures("folder")
def test_folders_are_left_to_the_shell_and_broken_files_offer_nothing(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(bftrain, monkeypatch, "replay", "nowhere/x") == ["dir,nowhere/x"]
    assert completed(bftrain, monkeypatch, "replay", "logs")[0] == "dir,logs"
    Path("mine.py").write_text("def (")
    assert completed(bftrain, monkeypatch, "replay", "--objective", "mine.py", ":") == []
    rounds = completed(bftrain, monkeypatch, "replay", "--policy", "")
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


@pytest.mark.parametrize("words", ["--version", "--help", "completion bash"])
def test_an_early_leaving_reader_is_no_error(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    with monkeypatch.context() as patch, Gone() as out, Gone() as err:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        assert bftrain(*words.split()).code == 0
