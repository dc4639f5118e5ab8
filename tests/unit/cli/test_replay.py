"""``bftrain replay``: what it writes and prints, the sensitivity table, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.in_process import CommandLine, Ended

FILES = {
    *("summary.json", "decisions.csv", "tasks.csv", "allocations.csv", "over_time.csv"),
    *("config.toml", "log.npz", "report.html", "SHA256SUMS"),
}
FIGURES = ("decisions", "harvested", "idle_node_h", "makespan_s", "lost", "unused_node_h", "efficiency")
REPEATED = ("decisions.csv", "tasks.csv", "allocations.csv", "over_time.csv", "config.toml", "log.npz")
REPLAY = ("replay", "log.npz", "--tasks", "tasks.toml", "--overwrite")
OWN = "{}\ncalls = []\ndef mine(task, sizes):\n    calls.append(task)\n    {}\n    return 1.0 * sizes\n"


@pytest.fixture(autouse=True)
def _in_a_folder_with_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(24, 0.3, 2), Path("log.npz"))
    save_tasks(generate_mix(8, 2), Path("tasks.toml"))


def summary_of(folder: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
    return found


def replayed(bftrain: CommandLine, *options: object, folder: str = "out") -> tuple[Ended, dict[str, Any]]:
    ended = bftrain(*REPLAY, "-o", folder, *map(str, options))
    assert ended.code == 0, ended.err
    return ended, summary_of(folder)


def test_it_writes_what_it_prints(bftrain: CommandLine) -> None:
    ended, written = replayed(bftrain, "--baseline", "equal-share")
    for words in ("exact", "equal-share", "without costs", "efficiency U", "lost to preemption", "p99"):
        assert words in ended.out
    assert ended.err.splitlines()[-1] == "result: out"
    assert {path.name for path in Path("out").iterdir()} == FILES
    assert written["complete"] is True
    quiet, again = replayed(bftrain, "--json", "-q", folder="two")
    assert (quiet.err, json.loads(quiet.out)) == ("", again)
    assert again["harvested"] == written["harvested"]
    shown = re.search(r"efficiency U +([\d.]+) %", ended.out)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(100 * written["efficiency"], abs=0.051)


@pytest.mark.parametrize("width", [24, 40, 80, 250])
def test_it_ends_with_one_screen_of_any_size(bftrain: CommandLine, terminal: Callable[[int], None], width: int) -> None:
    terminal(width)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", replayed(bftrain, "--baseline", "equal-share")[0].out).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 22 or width < 80  # a line with the folder, and the prompt
    for words in ("exact", "arvest"):
        assert any(words in line for line in lines)


@pytest.mark.parametrize(
    "options",
    [
        ("--semantics", "published", "--events", "chosen", "--nodes", "0:8"),
        ("--window", ":1970-01-01T03:00"),
        ("--skip-events", "20"),
        ("--decision-latency", "30"),
        ("--min-interval", "10min"),
        ("--start-cost", "60"),
        ("--progress", "disk:900"),
        ("--max-tasks", "3", "--horizon", "45.5", "--objective", "mine.py:mine", "--solver", "greedy"),
    ],
    ids=lambda options: "".join(options[-2:]).strip("-"),
)
def test_an_option_changes_the_figures_and_its_configuration_repeats_them(
    bftrain: CommandLine, options: tuple[str, ...]
) -> None:
    Path("mine.py").write_text(OWN.format("", ""))
    (_, plain), (_, changed) = replayed(bftrain), replayed(bftrain, *options, folder="changed")
    assert any(plain[name] != changed[name] for name in FIGURES)
    _, again = replayed(bftrain, "--config", "changed/config.toml", folder="again")
    assert (again["settings"], again["figures_sha256"]) == (changed["settings"], changed["figures_sha256"])
    for file in REPEATED:
        assert Path("changed", file).read_bytes() == Path("again", file).read_bytes(), file


def test_words_and_intervals_of_options_are_kept_in_the_settings(bftrain: CommandLine) -> None:
    options = ("--decision-latency", "Measured", "--horizon", "AUTO", "--seed", 7, "--progress", "disk:5min")
    _, summary = replayed(bftrain, *options)
    given = {name: summary["settings"][name] for name in ("decision_latency_s", "horizon_s", "seed", "progress")}
    assert given == {"decision_latency_s": "measured", "horizon_s": "auto", "seed": 7, "progress": "disk:300"}
    _, again = replayed(bftrain, "--config", "out/config.toml", "--progress", "disk:10min", folder="again")
    assert again["settings"]["progress"] == "disk:600"


def test_tables_as_parquet(bftrain: CommandLine) -> None:
    replayed(bftrain, "--tables", "parquet")
    assert {path.suffix for path in Path("out").iterdir()} == {".json", ".toml", ".html", ".npz", ".parquet", ""}
    assert "--tables parquet" in Path("out/config.toml").read_text().splitlines()[0]


@pytest.mark.parametrize("semantics", ["realistic", "published"])
def test_tasks_that_can_never_run_end_with_a_warning_not_a_hang(bftrain: CommandLine, semantics: str) -> None:
    curve = "curve = { nodes = [1], rate = [1.0] }\n"
    Path("tasks.toml").write_text(
        f'[[task]]\nname = "big"\nmin_nodes = 65\nmax_nodes = 70\n{curve}'
        f'[[task]]\nname = "late"\nmax_nodes = 2\nsubmit_s = 1e9\n{curve}'
    )
    ended, _ = replayed(bftrain, "--semantics", semantics, "-q")
    assert "warning: task 'big' needs more nodes than the" in ended.err
    assert "warning: task 'late' arrives after the end of the log" in ended.err
    assert "note at" not in ended.err
    noted = replayed(bftrain, "--semantics", semantics, "-v")[0].err
    assert "note at 0 s: task 'big': no measurement beyond 1 nodes" in noted


def test_a_line_every_half_minute_or_a_bar_tells_how_far_it_is(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: 1e5 * really())  # 100,000 s pass in a second
    lines = [line for line in replayed(bftrain)[0].err.splitlines() if "hours replayed" in line]
    assert lines
    assert all(re.match(r"[\w ]+: [\d.]+ of \d\.\d hours replayed, [\d,]+ decisions, ", line) for line in lines)
    assert "hours replayed" not in replayed(bftrain, "-q")[0].err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    assert re.search(r"exact, hours replayed, [\d,]+ decisions/s", replayed(bftrain)[0].err)


def test_figures_are_explained_with_the_values_of_a_replay(bftrain: CommandLine) -> None:
    curve = "curve = { nodes = [1], rate = [1.0] }\n"
    Path("tasks.toml").write_text(f'[[task]]\nname = "a"\nuser = "ann"\nmax_nodes = 1\nwork_samples = 100\n{curve}')
    _, summary = replayed(bftrain)
    shown = bftrain("explain", "coverage", "rho", "--of", "out").out
    assert f"here: idle node-time used {100 * summary['used_node_h'] / summary['idle_node_h']:.1f} %" in shown


@pytest.mark.parametrize("numbers", ["2", "15, 15"], ids=["Ctrl-C", "SIGTERM twice"])
def test_ctrl_c_and_sigterm_keep_what_is_done(bftrain: CommandLine, numbers: str) -> None:
    press = f"[os.kill({os.getpid()}, number) for number in ([{numbers}] if len(calls) == 20 else [])]"
    Path("mine.py").write_text(OWN.format("import os", press))
    ended = bftrain(*REPLAY, "-o", "out", "--objective", "mine.py:mine")
    assert (ended.code, summary_of()["complete"]) == (130, False)
    assert ("Ctrl-C again stops immediately" in ended.err) == (numbers == "2"), "code of a user's own may take long"
    assert "bftrain: interrupted" in ended.err


def test_an_interrupted_replay_leaves_the_finished_one(bftrain: CommandLine) -> None:
    replayed(bftrain)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    press = f"len(calls) == 20 and os.kill({os.getpid()}, {signal.SIGINT:d})"
    Path("mine.py").write_text(OWN.format("import os", press))
    ended = bftrain(*REPLAY, "-o", "out", "--objective", "mine.py:mine")
    assert (ended.code, "the finished result in out is unchanged" in ended.err) == (130, True)
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


IMPOSSIBLE = """
class Impossible:
    name = "impossible"
    def values(self, task, sizes):
        return task.curve.rate[0] * sizes
    def couple(self, model):
        model.at_least(model.variable(lower=0, upper=1) * 1.0, 2.0)
        model.maximise(model.speed(0))
    def total(self, chosen, sizes, problem):
        return float(sum(chosen))
"""


def test_who_decided_where_the_solver_had_no_plan_is_counted_and_named(bftrain: CommandLine) -> None:
    Path("impossible.py").write_text(IMPOSSIBLE)
    options = ("--solver", "highs", "--objective", "impossible.py:Impossible", "--window", ":1970-01-01T01:00")
    ended, summary = replayed(bftrain, *options)
    count = summary["decisions"]
    assert (summary["infeasible_decisions"], summary["decided_by"]) == (count, {"greedy": count})
    sentence = f"highs found no plan in {count} of {count} decisions; greedy decided"
    assert f"warning: {sentence}" in ended.err
    for text in (ended.out, Path("out/report.html").read_text().replace("Highs found", "highs found")):
        assert sentence in text
        assert "highs (greedy decided 100 %)" in text
    replayed(bftrain, *options[4:], folder="fine")
    compared = json.loads(bftrain("compare", "out", "fine", "--json").out)
    assert compared["figures"]["infeasible_decisions"]["values"] == [count, 0]
    assert any(sentence in note for note in compared["notes"])


@pytest.fixture
def with_table(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have replays make the sensitivity table, which tests leave out unless they ask for it."""
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    save_log(generate_log(16, 0.2, 3), Path("log.npz"))
    Path("tasks.toml").unlink()
    tasks = ("generate", "tasks", "-o", "tasks.toml", "--count", 8, "--max-nodes", 3, "--work", "1e9", "--seed", 3)
    assert bftrain(*tasks).code == 0


@pytest.mark.usefixtures("with_table")
def test_the_sensitivity_table_is_made_once_and_left_out_when_asked(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BFTRAIN_NO_CACHE", "0")
    ended, first = replayed(bftrain, "--max-tasks", 1)
    assert "--quick leaves them out" in ended.err
    for words in ("progress in memory *", "progress on disk every 60 min", "costs x 1/4", "start 5 min"):
        assert words in ended.out
        assert words.removesuffix(" *") in Path("out/report.html").read_text(encoding="utf-8")
    assert [row["setting"] for row in first["sensitivity"] if row["chosen"]][:2] == ["memory", "1"]
    assert first["advice"][0]["option"] == "--max-tasks 2"
    ended, second = replayed(bftrain, "--max-tasks", 1, folder="two")
    count = len(list((tmp_path / "cache" / "bftrain" / "replays").iterdir()))
    assert f"{count} more replays ({count} from {tmp_path}" in ended.err
    assert (second["sensitivity"], second["advice"]) == (first["sensitivity"], first["advice"])
    for options in (("--quick",), ("--semantics", "published")):
        ended, summary = replayed(bftrain, *options)
        assert (summary["sensitivity"], "more replays" in ended.err) == (None, False)


@pytest.mark.usefixtures("with_table")
@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        ("raise ValueError('elsewhere')", 0, "advice is left out, as a replay failed: "),
        ("MADE.clear(), os.kill({}, 2)", 130, "is complete, only sensitivity table and advice are missing"),
    ],
    ids=["failure", "Ctrl-C"],
)
def test_a_table_that_fails_or_is_interrupted_costs_the_table_alone(
    bftrain: CommandLine, tmp_path: Path, action: str, code: int, words: str
) -> None:
    here = os.getpid()
    Path("mine.py").write_text(
        "import os\n\nMADE = []  # the folder, by this process\n\n\ndef mine(task, sizes):\n"
        f"    if os.getpid() != {here}:  # a replay for the table\n        once()\n"
        "    return task.curve.speeds(int(max(sizes)))[sizes]\n\n\n"
        f"def once():\n    try:\n        os.mkdir({str(tmp_path / 'done')!r})\n        MADE.append(1)\n"
        f"    except FileExistsError:\n        pass\n    if MADE:\n        {action.format(here)}\n"
    )
    ended = bftrain(*REPLAY, "-o", "out", "--objective", "mine.py:mine")
    assert (ended.code, words in ended.err, "efficiency U" in ended.out) == (code, True, True), ended.err
    summary = summary_of()
    assert (summary["complete"], summary["sensitivity"]) == (True, None)


def test_an_export_tells_how_much_it_wrote(bftrain: CommandLine) -> None:
    replayed(bftrain)
    output = json.loads(bftrain("report", "out", "-o", "t.json", "--json").out)
    assert output == {"file": "t.json", "events": len(json.loads(Path("t.json").read_text())["traceEvents"])}


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("x.pftrace",), "'x.pftrace' has neither suffix .html nor .json"), (("t.json", "--svg", "p"), "are for pages")],
)
def test_a_report_rejects_what_it_would_ignore(bftrain: CommandLine, words: tuple[str, ...], reason: str) -> None:
    replayed(bftrain)
    ended = bftrain("report", "out", "-o", *words)
    assert (ended.code, reason in ended.err, Path(words[0]).exists()) == (2, True, False), ended.err
