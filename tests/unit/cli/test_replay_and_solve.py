"""``bftrain replay``, ``demo`` and ``solve`` as functions of their files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bftrain_replay import replay_folder, study
from bftrain_solvers import highs
from tests.helpers.in_process import CommandLine

EXAMPLES = (Path(__file__).parents[3] / "examples" / "problems").glob("*.json")
PROBLEMS = sorted(path for path in EXAMPLES if "pool" in json.loads(path.read_text()))  # the others have kinds
FILES = {
    *("summary.json", "decisions.csv", "tasks.csv", "allocations.csv", "over_time.csv", "campaigns.csv"),
    *("config.toml", "log.npz", "report.html", "SHA256SUMS"),
}


@pytest.fixture
def log(bftrain: CommandLine, tmp_path: Path) -> Path:
    path = tmp_path / "log.npz"
    assert bftrain("generate", "log", "-o", path, "--nodes", 16, "--days", 0.5, "--seed", 3).code == 0
    return path


@pytest.fixture
def tasks(bftrain: CommandLine, tmp_path: Path) -> Path:
    path = tmp_path / "tasks.toml"
    assert bftrain("tasks", "generate", "-o", path, "--count", 4, "--max-nodes", 8, "--seed", 3).code == 0
    return path


def test_replay_writes_what_it_prints(bftrain: CommandLine, log: Path, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "result"
    ended = bftrain("replay", log, "--tasks", tasks, "-o", folder, "--baseline", "equal-share")
    assert ended.code == 0
    for words in ("exact", "equal-share", "without costs", "efficiency U", "lost to preemption", "p99"):
        assert words in ended.out
    assert ended.err.splitlines()[-1] == f"result: {folder}"
    assert {path.name for path in folder.iterdir()} == FILES
    written = json.loads((folder / "summary.json").read_text())
    assert written["complete"] is True
    quiet = bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "two", "--json", "-q")
    assert (quiet.code, quiet.err) == (0, "")
    assert json.loads(quiet.out) == json.loads((tmp_path / "two" / "summary.json").read_text())
    assert json.loads(quiet.out)["harvested"] == written["harvested"]


def test_export_says_how_much_it_wrote(bftrain: CommandLine, log: Path, tasks: Path, tmp_path: Path) -> None:
    assert bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r").code == 0
    output = json.loads(bftrain("export", tmp_path / "r", "--to", "perfetto", "-o", tmp_path / "t.json", "--json").out)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert output == {"file": str(tmp_path / "t.json"), "events": len(events)}
    refused = bftrain("export", tmp_path, "-o", tmp_path / "never.json")
    assert (refused.code, (tmp_path / "never.json").exists()) == (3, False)


def test_replay_against_itself_makes_no_sense(bftrain: CommandLine, log: Path, tasks: Path, tmp_path: Path) -> None:
    ended = bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r", "--baseline", "exact")
    assert (ended.code, ended.out) == (2, "")
    assert "is the solver itself (name another solver)" in ended.err
    assert not (tmp_path / "r").exists()


def test_what_is_odd_is_said_and_v_says_what_the_decisions_noted(
    bftrain: CommandLine, log: Path, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.toml"
    curve = "curve = { nodes = [1], rate = [1.0] }"
    tasks.write_text(f'[[task]]\nname = "a"\n{curve}\nmin_nodes = 99\nmax_nodes = 99\n')
    quiet = bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r", "-q")
    assert quiet.code == 0
    assert quiet.err.startswith("warning: task 'a' needs more nodes than the ")
    assert "note at" not in quiet.err
    output = bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r", "-v", "--overwrite").err
    assert "note at 0 s: task 'a': nothing measured beyond 1 nodes" in output


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)])
def test_ctrl_c_and_sigterm_keep_what_is_done(
    bftrain: CommandLine,
    log: Path,
    tasks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    numbers: tuple[signal.Signals, ...],
) -> None:
    really, really_write = study.study, replay_folder.write

    def press_and_study(*args: object, **kwargs: object) -> object:
        for number in numbers:
            os.kill(os.getpid(), number)
        return really(*args, **kwargs)  # type: ignore[arg-type]  # handed through

    def terminate_and_write(*args: object, **kwargs: object) -> None:
        if signal.SIGTERM in numbers:
            os.kill(os.getpid(), signal.SIGTERM)
        really_write(*args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(study, "study", press_and_study)
    monkeypatch.setattr(replay_folder, "write", terminate_and_write)
    ended = bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r")
    assert ended.code == 130
    at_once = "bftrain: stopping when the step in progress is done; Ctrl-C again stops at once"
    assert (at_once in ended.err) == (signal.SIGINT in numbers), "code of a user's own may take long"
    assert "bftrain: interrupted" in ended.err
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["complete"] is False


def test_bad_input_leaves_no_folder(bftrain: CommandLine, log: Path, tasks: Path, tmp_path: Path) -> None:
    command = ("replay", log, "--tasks", tasks, "-o", tmp_path / "r", "--skip-events", "1000000")
    assert bftrain(*command).code == 3
    assert not (tmp_path / "r").exists()


def test_tables_as_parquet(bftrain: CommandLine, log: Path, tasks: Path, tmp_path: Path) -> None:
    assert bftrain("replay", log, "--tasks", tasks, "-o", tmp_path / "r", "--tables", "parquet").code == 0
    assert {path.suffix for path in (tmp_path / "r").iterdir()} == {
        ".json",
        ".toml",
        ".html",
        ".npz",
        ".parquet",
        "",
    }  # SHA256SUMS has no ending
    assert "--tables parquet" in (tmp_path / "r" / "config.toml").read_text().splitlines()[0]


def test_the_demo_shows_what_it_is_for(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("demo", "-o", tmp_path / "d", "--json", "-q")
    assert (ended.code, ended.err) == (0, "")
    said = json.loads(ended.out)
    assert said["report"] == str(tmp_path / "d" / "report.html")
    assert 1.03 * said["baseline"]["harvested"] < said["harvested"] <= said["ceiling_samples"]
    assert said["fallbacks"] == 0


@pytest.mark.parametrize("words", [("--json",), ()])
def test_solvers_print_nothing_themselves(bftrain: CommandLine, words: tuple[str, ...]) -> None:
    # For this problem HiGHS repairs a solution, and says so with any options
    fair = next(path for path in PROBLEMS if path.name == "fair.json")
    ended = bftrain("solve", fair, "--solver", "highs", "--objective", "max-min", *words)
    assert "Highs" not in ended.out + ended.err


def test_what_others_print_while_highs_solves_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with highs.suppress_stdout():
        os.write(1, b"a line\nHighsMipSolverData::repair run();\nanother\n")
    assert capfd.readouterr().out.splitlines() == ["a line", "another"]


def test_solve_reads_a_pipe_and_names_what_is_wrong_in_it(bftrain: CommandLine) -> None:
    assert bftrain("solve", "-", stdin=PROBLEMS[0].read_text()).code == 0
    for beyond in (b'{"tasks":"\xff"}', b'{"tasks":' + b"[" * 5000, b"[" * 5000):
        assert bftrain("solve", "-", stdin=beyond).code == 3
    ended = bftrain("solve", "-", stdin='{"pool": -1}')
    assert ended.code == 3
    assert ended.err.startswith("bftrain: stdin")
