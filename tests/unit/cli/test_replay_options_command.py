"""The options of ``bftrain replay``: each changes something, all go into the configuration, mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.in_process import CommandLine

REPLAY = ("replay", "log.npz", "--tasks", "tasks.toml", "--quick", "-q")
FIGURES = ("decisions", "harvested", "idle_node_h", "makespan_s", "lost", "unused_node_h", "efficiency")
REPEATED = ("decisions.csv", "tasks.csv", "allocations.csv", "over_time.csv", "campaigns.csv", "config.toml", "log.npz")


@pytest.fixture(autouse=True)
def _in_a_folder_with_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(64, 0.5, 2), Path("log.npz"))
    save_tasks(generate_mix(8, 2), Path("tasks.toml"))
    Path("mine.py").write_text("def equal(task, sizes):\n    return sizes > 0\n", encoding="utf-8")


def replayed(bftrain: CommandLine, folder: str, *options: str) -> dict[str, object]:
    ended = bftrain(*REPLAY, "-o", folder, *options)
    assert ended.code == 0, ended.err
    summary: dict[str, object] = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
    return summary


@pytest.mark.parametrize(
    "options",
    [
        ("--semantics", "published"),
        ("--semantics", "published", "--events", "chosen", "--nodes", "0:8"),
        ("--window", "..1970-01-01T06:00"),
        ("--nodes", "0:32"),
        ("--skip-events", "40"),
        ("--decision-latency", "30"),
        ("--min-interval", "600"),
        ("--start-cost", "60"),
        ("--checkpoint-interval", "900"),
        ("--max-tasks", "3", "--horizon", "45.5", "--objective", "mine.py:equal", "--solver", "greedy"),
    ],
    ids=lambda options: "".join(options[-2:]).strip("-"),
)
def test_an_option_changes_the_figures_and_its_configuration_repeats_them(
    bftrain: CommandLine, options: tuple[str, ...]
) -> None:
    plain, changed = replayed(bftrain, "plain"), replayed(bftrain, "changed", *options)
    assert any(plain[name] != changed[name] for name in FIGURES)
    again = replayed(bftrain, "again", "--config", "changed/config.toml")
    assert (again["settings"], again["figures_sha256"]) == (changed["settings"], changed["figures_sha256"])
    for file in REPEATED:
        assert Path("changed", file).read_bytes() == Path("again", file).read_bytes(), file


def test_the_measured_latency_and_the_seed_are_kept(bftrain: CommandLine) -> None:
    replayed(bftrain, "measured", "--decision-latency", "measured", "--seed", "7")
    settings = Path("measured", "config.toml").read_text(encoding="utf-8")
    assert 'decision_latency_s = "measured"' in settings
    assert "seed = 7" in settings


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--nodes", "0:65"), 3, "'0:65' selects no nodes from 0:64"),
        (("--nodes", "nid[0001"), 3, "is not a node set"),
        (("--window", "2030-01-01.."), 3, "is not within the log"),
        (("--skip-events", "1000000"), 3, "1,000,000 events cannot be skipped"),
        (("--semantics", "publshed"), 2, "publshed"),
        (("--decision-latency", "soon"), 2, "neither a duration nor 'measured'"),
        (("--decision-latency", "-1"), 3, "--decision-latency: must be at least 0"),
        (("--semantics", "published", "--start-cost", "9"), 3, "--start-cost: is unknown to the published rules"),
        (("--events", "chosen"), 3, "--events: is for the published rules only (leave it out, or replay published)"),
        (("--solver", "exakt"), 3, "no solver is called 'exakt'"),
        (("--baseline", "exakt"), 3, "no solver is called 'exakt'"),
        (("--objective", "exakt"), 3, "no objective is called 'exakt'"),
    ],
)
def test_a_mistake_is_named_in_the_words_of_the_command_line(
    bftrain: CommandLine, options: tuple[str, ...], code: int, words: str
) -> None:
    ended = bftrain(*REPLAY, "-o", "never", *options)
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert not Path("never").exists()


def test_tasks_that_can_never_run_end_with_a_warning_not_a_hang(bftrain: CommandLine) -> None:
    Path("tasks.toml").write_text(
        '[[task]]\nname = "big"\nmin_nodes = 65\nmax_nodes = 70\ncurve = { nodes = [70], rate = [1.0] }\n'
        '[[task]]\nname = "late"\nmax_nodes = 2\nsubmit_s = 1e9\ncurve = { nodes = [1], rate = [1.0] }\n',
        encoding="utf-8",
    )
    for semantics in ("realistic", "published"):
        ended = bftrain(*REPLAY, "--semantics", semantics, "-o", semantics)
        assert ended.code == 0, ended.err
        assert "warning: task 'big' needs more nodes than the" in ended.err
        assert "warning: task 'late' arrives after the log has ended" in ended.err
