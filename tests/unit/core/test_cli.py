"""The commands of the core in this process: what they print, where, and the code they end with."""

from __future__ import annotations

import errno
import io
import json
import re
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner, Result

from bftrain import errors, registry
from bftrain.cli import main as main_module
from bftrain.cli.main import COMMANDS, exit_code, main
from bftrain.cli.output import Output, prints_results, show, table
from bftrain.config import Settings
from bftrain.journal import Journal
from bftrain.values import wire
from tests.unit.core.samples import joined, left, nodes, spec, submitted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bftrain.values.events import Event

A_DAY: list[Event] = [joined(0, *nodes(1, 4)), submitted(0, spec("a", 2, 3)), left(9, "n1", "n2")]
ACTIONS = [
    {"action": "start", "nodes": ["n1", "n2", "n3"], "task": "a"},
    {"action": "release", "nodes": ["n1", "n2"]},
    {"action": "stop", "nodes": ["n1", "n2", "n3"], "task": "a", "cause": "below_minimum"},
    {"action": "start", "nodes": ["n4", "n3"], "task": "a"},
]


def call(*words: str | Path, text: str | bytes = "") -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], input=text)


def lines(events: Sequence[object]) -> str:
    return "".join(wire.encode(event).decode() + "\n" for event in events)


def said(result: Result) -> list[Any]:
    assert result.exception is None, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def failure(result: Result) -> str:
    """Give what the command line would say of an error of ours."""
    assert isinstance(result.exception, errors.BftrainError)
    return str(result.exception)


# -- decide


def test_decide_reads_events_and_writes_actions() -> None:
    assert said(call("decide", text=lines(A_DAY))) == ACTIONS


def test_decide_reads_a_file_and_passes_over_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("\n" + lines(A_DAY).replace("\n", "\n \n"))
    assert said(call("decide", tmp_path / "events.jsonl")) == ACTIONS


def test_a_list_is_one_moment_and_one_decision() -> None:
    text = lines([A_DAY[:2], [], A_DAY[2:]])
    assert said(call("decide", text=text)) == ACTIONS
    together = lines([[*A_DAY[:2], submitted(0, spec("b", 4, 4))]])
    assert said(call("decide", text=together)) == [{"action": "start", "nodes": list(nodes(1, 4)), "task": "b"}]


def test_settings_come_from_a_file_and_from_options(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('max_tasks = 1\nsolver = "greedy"\n')
    text = lines([[joined(0, *nodes(1, 4)), submitted(0, spec("a", 1, 2)), submitted(0, spec("b", 1, 2))]])
    assert [action["task"] for action in said(call("decide", "--config", tmp_path / "b.toml", text=text))] == ["a"]
    both = call("decide", "--config", tmp_path / "b.toml", "--max-tasks", "2", text=text)
    assert sorted(action["task"] for action in said(both)) == ["a", "b"]


def test_notes_go_to_stderr_unless_quiet() -> None:
    text = lines([left(0, "x")])
    loud = call("decide", text=text)
    assert (loud.stdout, loud.stderr) == ("", "note: node 'x' left but was not in the pool\n")
    assert call("decide", "-q", text=text).stderr == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "stdin:2: not valid JSON: Input data was truncated"),
        ("nodes n1 n2", "stdin:2: not valid JSON: "),
        (b"\xff\xfe", "stdin:2: not valid JSON: "),
        ('"nodes_joined"', "stdin:2: Expected `object`, got `str`"),
        ('{"event": "nodes_joind", "time_s": 0, "nodes": []}', "stdin:2: Invalid value 'nodes_joind' - at `event`"),
        ('{"event": "nodes_left", "time_s": 0, "nodes": "n1"}', "stdin:2: Expected `array`, got `str` - at `nodes`"),
        ('[{"event": "nodes_left", "time_s": 0}]', "stdin:2: Object missing required field `nodes` - at `[0]`"),
        (
            '{"event": "nodes_left", "time_s": -1, "nodes": []}',
            "stdin:2: NodesLeft: an event of time -1 came after one of time 0 (hand events in by their time)",
        ),
    ],
)
def test_a_bad_line_is_named_after_what_came_before_it_was_done(line: str | bytes, words: str) -> None:
    line = line if isinstance(line, bytes) else line.encode()
    first = lines([A_DAY[:2]]).encode()
    result = call("decide", text=first + line + b"\n" + first)
    assert failure(result).startswith(words)
    assert result.exception.exit_code == 3  # type: ignore[union-attr]  # failure() has looked
    assert json.loads(result.stdout) == ACTIONS[0]


def test_an_unknown_solver_is_suggested() -> None:
    assert failure(call("decide", "--solver", "exat")) == "no solver is called 'exat' (did you mean 'exact'?)"


def test_a_file_that_is_not_there_is_a_matter_of_usage(tmp_path: Path) -> None:
    result = call("decide", tmp_path / "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such file or directory" in result.stderr
    assert call("decide", "--config", tmp_path / "none").exit_code == 2
    assert call("decide", "--journal", tmp_path).exit_code == 2


def test_a_journal_is_begun_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "j"
    assert said(call("decide", "--journal", path, text=lines(A_DAY[:2]))) == ACTIONS[:1]
    more = call("decide", "--journal", path, text=lines(A_DAY[2:]))
    assert said(more) == ACTIONS[1:]
    assert more.stderr == f"{path}: going on after 2 steps\n"
    with Journal.open(path) as journal:
        assert [len(step.events) for step in journal.steps()] == [1, 1, 1]
        assert journal.settings == Settings()


def test_a_journal_that_was_cut_off_is_decided_first(tmp_path: Path) -> None:
    path = tmp_path / "j"
    call("decide", "--journal", path, text=lines(A_DAY[:2]))
    with Journal.open(path) as journal:
        journal.append_events(A_DAY[2:])
    assert said(call("decide", "--journal", path)) == ACTIONS[1:]
    assert call("journal", "verify", path).exit_code == 0


def disk_full(given: object) -> None:
    raise errors.NotAvailable(f"cannot be written: {type(given).__name__}")


def test_events_are_on_disk_before_what_they_demand_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Journal.append_events
    monkeypatch.setattr(
        Journal,
        "append_events",
        lambda self, moment: disk_full(moment) if moment == (A_DAY[2],) else kept(self, moment),
    )
    result = call("decide", "--journal", tmp_path / "j", text=lines(A_DAY))
    assert failure(result) == "cannot be written: tuple"
    assert [json.loads(line) for line in result.stdout.splitlines()] == ACTIONS[:1]


def test_a_decision_is_on_disk_before_its_actions_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Journal.append_decision
    monkeypatch.setattr(
        Journal, "append_decision", lambda self, made: disk_full(made) if made.at_once else kept(self, made)
    )
    result = call("decide", "--journal", tmp_path / "j", text=lines(A_DAY))
    assert failure(result) == "cannot be written: Decision"
    assert [json.loads(line) for line in result.stdout.splitlines()] == ACTIONS[:3]


def test_other_settings_than_the_journals_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    call("decide", "--journal", path, "--horizon", "60")
    assert "was begun with horizon_s = 60.0, and 120.0 is asked for" in failure(call("decide", "--journal", path))
    assert call("decide", "--journal", path, "--horizon", "60").exit_code == 0


def test_actions_come_out_while_the_pipe_is_still_open() -> None:
    command = [sys.executable, "-m", "bftrain", "decide"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(A_DAY[:2]))
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == ACTIONS[0]
        process.stdin.close()
        assert process.wait(60) == 0


# -- journal


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.journal"
    assert call("decide", "--journal", path, text=lines(A_DAY)).exit_code == 0
    return path


def test_journal_show_prints_a_row_per_step(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded.parent)
    with Journal.open(recorded) as journal:
        journal.append_events([joined(10, "n9")])
    result = call("journal", "show", recorded.name)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["run.journal:", "4", "steps"]
    assert ["2", "0", "task_submitted", "4", "3", "1"] in rows
    assert ["3", "9", "nodes_left", "2", "2", "1"] in rows
    assert ["4", "10", "nodes_joined", "none", "was", "recorded"] in rows


def test_journal_show_as_json_gives_every_step_whole(recorded: Path) -> None:
    steps = said(call("journal", "show", "--json", recorded))
    with Journal.open(recorded) as journal:
        assert steps == [json.loads(wire.encode(step)) for step in journal.steps()]


def test_journal_plan_says_who_holds_what_at_the_end(recorded: Path) -> None:
    assert said(call("journal", "plan", "--json", recorded)) == [{"holdings": {"a": ["n4", "n3"]}}]
    assert ["a", "2", "n4", "n3"] in [line.split() for line in call("journal", "plan", recorded).stdout.splitlines()]


def test_journal_verify_finds_nothing_in_a_good_journal(recorded: Path) -> None:
    assert call("journal", "verify", recorded).stdout == "3 steps, every decision the same\n"
    assert said(call("journal", "verify", "--json", recorded)) == [{"steps": 3, "different": []}]


def test_journal_verify_finds_what_was_changed(recorded: Path) -> None:
    connection = sqlite3.connect(recorded)
    change = """UPDATE entry SET body = replace(body, '"sizes":{"a":2}', '"sizes":{"a":0}') WHERE kind = 'decision'"""
    connection.execute(change)
    connection.commit()
    connection.close()
    result = call("journal", "verify", recorded)
    assert failure(result) == f"{recorded}: 1 of 3 decisions differ"
    assert result.exception.exit_code == 3  # type: ignore[union-attr]  # failure() has looked
    assert result.stderr.startswith("step 3: recorded {'a': 0} worth ")
    assert call("journal", "verify", "-q", recorded).stderr == ""
    as_json = call("journal", "verify", "--json", "-q", recorded)
    assert json.loads(as_json.stdout) == {"steps": 3, "different": [3]}


@pytest.mark.parametrize("what", ["show", "plan", "verify"])
def test_what_is_no_journal_is_bad_input(tmp_path: Path, what: str) -> None:
    assert failure(call("journal", what, tmp_path / "none")).endswith("none: there is no such journal")
    (tmp_path / "text").write_text("just text" * 100)
    assert failure(call("journal", what, tmp_path / "text")).endswith("text: is no journal: file is not a database")


# -- doctor


def test_doctor_prints_what_it_found() -> None:
    result = call("doctor")
    assert result.exit_code == 0
    assert any(line.split()[:3] == ["solver", "exact", "ok"] for line in result.stdout.splitlines())
    findings = said(call("doctor", "--json"))[0]
    assert {"kind", "name", "state", "detail", "fix", "needed"} == set(findings[0])


def test_doctor_fails_when_something_needed_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    broken = {**registry.BUILT_IN, "solver": {"exact": "no.such:thing"}}
    monkeypatch.setattr(registry, "BUILT_IN", broken)
    result = call("doctor", "--json")
    assert failure(result) == "needed for the basic work and not usable: exact"
    assert result.exception.exit_code == 4  # type: ignore[union-attr]  # failure() has looked
    assert [item["name"] for item in json.loads(result.stdout) if item["state"] == "broken"] == ["exact"]


# -- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_BFTRAIN_COMPLETE" in result.stdout
    assert "bftrain" in result.stdout


def test_completion_of_an_unknown_shell_is_a_matter_of_usage() -> None:
    assert call("completion", "tcsh").exit_code == 2


def test_command_names_are_completed_without_importing_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "import_module", None)  # whoever calls it fails
    context = click.Context(main)
    assert [item.value for item in main.shell_complete(context, "d")] == ["demo", "doctor", "decide"]
    assert [item.value for item in main.shell_complete(context, "--v")] == ["--version"]


# -- the group, and how commands end


def test_help_lists_the_commands_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "import_module", None)
    result = call("--help")
    assert result.exit_code == 0
    positions = [result.stdout.index(f"\n  {name} ") for name in COMMANDS]
    assert positions == sorted(positions)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_listed_is_there_and_helps(name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_the_nearest_command_is_suggested() -> None:
    result = call("docter")
    assert result.exit_code == 2
    assert "No such command 'docter': did you mean 'doctor'?" in result.stderr
    assert main.get_command(click.Context(main), "docter") is None
    assert call("--verson").exit_code == 2


FAILURES: list[tuple[BaseException, int, str]] = [
    (errors.UsageError("what", fix="fix"), 2, "bftrain: what (fix)\n"),
    (errors.BadInput("what", where="f:3"), 3, "bftrain: f:3: what\n"),
    (errors.NotAvailable("what"), 4, "bftrain: what\n"),
    (errors.Fault("what"), 5, "bftrain: what\n"),
    (KeyboardInterrupt(), 130, "bftrain: interrupted\n"),
    (click.Abort(), 130, "bftrain: interrupted\n"),
    (click.UsageError("what"), 2, "Error: what\n"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "f.toml"), 3, "bftrain: f.toml: No such file"),
    (PermissionError(errno.EACCES, "Permission denied", "f.toml"), 3, "bftrain: f.toml: Permission denied\n"),
    (ZeroDivisionError("what"), 5, "bftrain: a fault of ours: ZeroDivisionError: what. Please report it, with what"),
    (OSError("what"), 5, "bftrain: a fault of ours: OSError: what."),
]


@pytest.mark.parametrize(("error", "code", "text"), FAILURES, ids=lambda thing: type(thing).__name__)
def test_whatever_ends_a_command_becomes_words_and_a_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    assert exit_code(error) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(text)
    assert "Traceback" not in err


def test_a_full_disk_is_no_fault_of_ours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "_mute_stdout", lambda: None)
    assert exit_code(OSError(errno.ENOSPC, "No space left on device")) == 4
    assert exit_code(OSError(errno.EDQUOT, "Disk quota exceeded", "out.csv")) == 4
    assert capsys.readouterr().err == (
        "bftrain: writing: No space left on device\nbftrain: out.csv: Disk quota exceeded\n"
    )


def test_a_reader_that_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    muted: list[bool] = []
    monkeypatch.setattr(main_module, "_mute_stdout", lambda: muted.append(True))
    assert exit_code(BrokenPipeError()) == 0
    assert muted == [True]


def test_with_v_a_fault_shows_where_it_was(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrain", "doctor", "-v"])
    exit_code(ZeroDivisionError("what"))
    assert "Traceback" not in capsys.readouterr().out
    exit_code(ZeroDivisionError("what"))
    assert "ZeroDivisionError: what\nbftrain: a fault of ours" in capsys.readouterr().err


def ends_with(monkeypatch: pytest.MonkeyPatch, *words: str, command: click.Command | None = None) -> int | str | None:
    """Run the command line as the installed program does."""
    monkeypatch.setattr(sys, "argv", ["bftrain", *words])
    if command is not None:
        monkeypatch.setattr(main, "get_command", lambda context, name: command)  # noqa: ARG005 - click's signature
    with pytest.raises(SystemExit) as ended:
        main_module.run()
    return ended.value.code


def test_the_program_ends_with_the_code_of_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("bftrain ")
    assert ends_with(monkeypatch, "nonsense") == 2
    assert ends_with(monkeypatch, "journal", "show", "/no/such/file") == 3


def test_a_code_that_a_command_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def leaving(context: click.Context) -> None:
        context.exit(4)

    assert ends_with(monkeypatch, "doctor", command=leaving) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError(), BrokenPipeError(errno.EPIPE, "gone")])
def test_what_a_command_raises_is_caught(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    def raising() -> None:
        raise error

    monkeypatch.setattr(main_module, "_mute_stdout", lambda: None)
    wanted = {KeyboardInterrupt: 130, ZeroDivisionError: 5, BrokenPipeError: 0}[type(error)]
    assert ends_with(monkeypatch, "doctor", command=raising) == wanted


def test_tab_completion_ends_in_silence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "bftrain jo")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert ends_with(monkeypatch) == 0
    assert capsys.readouterr() == ("plain,journal\n", "")


def test_python_m_bftrain_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bftrain", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("bftrain ")


def test_help_imports_nothing_slow() -> None:
    code = (
        "import sys; sys.argv = ['bftrain', '--help']\n"
        "from bftrain.cli.main import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "slow = ('numpy', 'scipy', 'pandas', 'msgspec', 'rich', 'sqlite3', 'bftrain_replay', 'matplotlib')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


# -- printing


@click.command()
@prints_results
def speaking(out: Output) -> None:
    """Say everything that can be said."""
    out.say("said")
    out.detail("detailed")
    out.warn("warned")
    out.result({"x": 1}, lambda: "in words")


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ([], "in words\n", "said\nwarning: warned\n"),
        (["-q"], "in words\n", "warning: warned\n"),
        (["-v"], "in words\n", "said\ndetailed\nwarning: warned\n"),
        (["--json"], '{"x":1}\n', "said\nwarning: warned\n"),
        (["--json", "--quiet"], '{"x":1}\n', "warning: warned\n"),
        (["--json", "--verbose"], '{"x":1}\n', "said\ndetailed\nwarning: warned\n"),
    ],
)
def test_results_go_to_stdout_and_all_else_to_stderr(words: list[str], out: str, err: str) -> None:
    result = CliRunner().invoke(speaking, words)
    assert (result.stdout, result.stderr, result.exit_code) == (out, err, 0)


def test_quiet_and_verbose_contradict_each_other() -> None:
    result = CliRunner().invoke(speaking, ["-q", "-v"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-q and -v contradict each other" in result.stderr


def test_words_are_not_made_when_json_is_wanted() -> None:
    Output(json=True, level=0).result(1, lambda: pytest.fail("nobody asked for words"))


def test_progress_is_shown_to_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Output(json=False, level=0).progress().disable
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert not Output(json=False, level=0).progress().disable
    assert Output(json=False, level=-1).progress().disable


def test_a_table_in_a_pipe_is_wide_plain_and_takes_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("[red]title", ("name", "figure"), [("[bold]x[/]", 3), (":bug:" * 20, 12345)]))
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "[red]title"
    assert any(line.split() == ["[bold]x[/]", "3"] for line in out)
    assert any(line.split() == [":bug:" * 20, "12345"] for line in out)
    assert all(line == line.rstrip() and "\x1b" not in line for line in out)


def test_figures_stand_to_the_right_and_words_to_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("", ("name", "figure"), [("a", 3), ("bbb", 12345)]))
    rows = capsys.readouterr().out.splitlines()[-3:]
    assert next(row for row in rows if row).split("a", 1)[1].endswith("    3")


def test_on_a_terminal_the_table_is_as_wide_as_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    show(table("", ("name",), [("word " * 30,)]))
    seen = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, seen)) == 40
    assert len(seen) > 4
