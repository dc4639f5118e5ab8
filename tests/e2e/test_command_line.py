"""The command line as its users meet it: help, mistakes, broken files, pipes, terminals, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers.program import PROGRAM, bftrain, environment, shell, start

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "examples" / "events.jsonl"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a journal of the example's five steps."""
    path = tmp_path_factory.mktemp("journal") / "harvest.db"
    assert bftrain("decide", EVENTS, "--journal", path).code == 0
    return path


def test_something_needed_that_is_missing_is_4(tmp_path: Path) -> None:
    with (tmp_path / "hook.py").open("w") as hook:
        hook.write("import sys\nsys.modules['bftrain_solvers.exact'] = None\nfrom bftrain.cli.main import run\nrun()\n")
    done = subprocess.run(
        [Path(PROGRAM).with_name("python"), tmp_path / "hook.py", "doctor"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 4
    assert "exact" in done.stderr.splitlines()[-1]


def test_ctrl_c_while_waiting_for_events_is_130() -> None:
    with start("decide") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(EVENTS.read_bytes().splitlines(keepends=True)[0])
        running.stdin.flush()
        assert b"start" in running.stdout.readline()  # it is under way
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert running.stderr.read().strip() == b"bftrain: interrupted"


def test_a_long_stream_may_be_cut_off(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"event": name, "time_s": at, "nodes": [f"n{at:06}"]}) + "\n"
        for at in range(4000)
        for name in ("nodes_joined", "nodes_left")
    )
    (tmp_path / "many.jsonl").write_text(lines)
    ended = shell("bftrain decide many.jsonl | head -1", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["action"] == "release"


@pytest.mark.parametrize(
    "command",
    ["bftrain --help", "bftrain doctor --json", "bftrain journal show JOURNAL", f"bftrain decide {EVENTS}"],
    ids=lambda command: command.split()[1],
)
def test_a_full_device_is_said_in_words(command: str, journal: Path) -> None:
    ended = shell(f"{command.replace('JOURNAL', str(journal))} > /dev/full")
    assert ended.code == 4
    assert "No space left on device" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one(closed: str) -> None:
    assert shell(f"bftrain decide {EVENTS} {closed}").code == 0
    assert shell(f"bftrain decide {closed}").code == 0


def test_a_closed_stream_does_not_end_up_in_the_journal(tmp_path: Path) -> None:
    ended = shell(f"bftrain decide {EVENTS} --journal j.db <&- >&- && bftrain journal verify j.db", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "5 steps, every decision the same\n")


def test_a_terminal_that_knows_only_ascii_gets_ascii(tmp_path: Path) -> None:
    ended = bftrain("doctor", PYTHONIOENCODING="ascii")
    assert ended.code == 0
    assert ended.out.isascii()
    name = "knöten-☃"
    line = json.dumps({"event": "nodes_joined", "time_s": 0, "nodes": [name]}) + "\n"
    assert bftrain("decide", "--journal", tmp_path / "j.db", stdin=line, PYTHONIOENCODING="ascii").code == 0
    assert bftrain("journal", "show", tmp_path / "j.db", PYTHONIOENCODING="ascii").code == 0


def test_bash_completes_command_names() -> None:
    ended = shell("bftrain", _BFTRAIN_COMPLETE="bash_complete", COMP_WORDS="bftrain jo", COMP_CWORD="1")
    assert ended.out == "plain,journal\n"


def test_a_name_of_a_file_may_be_anything(tmp_path: Path) -> None:
    name = 'it\'s "odd" [bold]red[end] $(touch x) ünï\n.jsonl'
    (tmp_path / name).write_bytes(EVENTS.read_bytes())
    assert bftrain("decide", name, "--journal", f"{name}.db", cwd=tmp_path).out == bftrain("decide", EVENTS).out
    ended = bftrain("journal", "show", f"{name}.db", cwd=tmp_path)
    assert ended.code == 0
    assert "[bold]red[end]" in ended.out
    assert sorted(os.listdir(tmp_path)) == sorted([name, f"{name}.db"])  # noqa: PTH208 - names as they are
