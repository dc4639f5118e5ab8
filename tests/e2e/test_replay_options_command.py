"""The options of ``bftrain replay``: each changes something, all go into the configuration, mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.program import bftrain

FIGURES = ("decisions", "harvested", "idle_node_h", "makespan_s", "lost", "unused_node_h", "efficiency")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a small log and tasks."""
    folder = tmp_path_factory.mktemp("options")
    made = (
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "64", "--days", "0.5", "--seed", "2", cwd=folder),
        bftrain("tasks", "generate", "-o", "tasks.toml", "--kind", "mix", "--count", "8", "--seed", "2", cwd=folder),
    )
    assert [ended.code for ended in made] == [0, 0], made
    return folder


def replayed(place: Path, folder: str, *options: str) -> dict[str, object]:
    ended = bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", folder, "-q", *options, cwd=place)
    assert ended.code == 0, ended.err
    summary: dict[str, object] = json.loads((place / folder / "summary.json").read_text(encoding="utf-8"))
    return {name: summary[name] for name in FIGURES}


OPTIONS = {
    "published": ("--semantics", "published"),
    "published-chosen": ("--semantics", "published", "--events", "chosen", "--nodes", "0:8"),
    "window": ("--window", "..1970-01-01T06:00"),
    "nodes": ("--nodes", "0:32"),
    "skip": ("--skip-events", "40"),
    "latency": ("--decision-latency", "30"),
    "interval": ("--min-interval", "600"),
    "start": ("--start-cost", "60"),
    "commits": ("--checkpoint-interval", "900"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_the_figures_and_its_configuration_repeats_them(place: Path, name: str) -> None:
    plain = replayed(place, f"plain-{name}")
    changed = replayed(place, name, *OPTIONS[name])
    assert changed != plain
    again = replayed(place, f"{name}-again", "--config", f"{name}/config.toml")
    assert again == changed
    for file in ("decisions.csv", "tasks.csv", "config.toml"):
        assert (place / name / file).read_bytes() == (place / f"{name}-again" / file).read_bytes()


def test_the_measured_latency_and_the_seed_are_kept(place: Path) -> None:
    replayed(place, "measured", "--decision-latency", "measured", "--seed", "7")
    settings = (place / "measured" / "config.toml").read_text(encoding="utf-8")
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
    ],
)
def test_a_mistake_is_named_in_the_words_of_the_command_line(
    place: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    ended = bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", "never", *options, cwd=place)
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_tasks_that_can_never_run_end_with_a_warning_not_a_hang(place: Path) -> None:
    (place / "odd.toml").write_text(
        '[[task]]\nname = "big"\nmin_nodes = 65\nmax_nodes = 70\ncurve = { nodes = [70], rate = [1.0] }\n'
        '[[task]]\nname = "late"\nmax_nodes = 2\nsubmit_s = 1e9\ncurve = { nodes = [1], rate = [1.0] }\n',
        encoding="utf-8",
    )
    for semantics in ("realistic", "published"):
        options = ("--semantics", semantics, "-o", f"odd-{semantics}")
        ended = bftrain("replay", "log.npz", "--tasks", "odd.toml", *options, cwd=place)
        assert ended.code == 0, ended.err
        assert "task 'big' needs more nodes than the" in ended.err
        assert "task 'late' arrives after the log has ended" in ended.err
