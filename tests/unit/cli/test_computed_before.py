"""Commands say what they take from earlier ones, and the results are the same with it and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrain_replay.commands import sweep as sweep_command
from bftrain_replay.drawing import vega
from bftrain_replay.sweeping import alternatives
from tests.helpers.in_process import CommandLine
from tests.unit.replay.sweeping.sweep_case import Here


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache of its own to the test, which other tests do without."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BFTRAIN_NO_CACHE", "0")
    return tmp_path / "cache" / "bftrain" / "replays"


def test_a_sweep_says_what_was_computed_before(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(sweep_command, "_executor", lambda *_: Here())
    monkeypatch.setattr(vega, "available", lambda: False)
    spec = tmp_path / "mine.toml"
    spec.write_text(
        'log = "small"\ntasks = "mix"\nlogs = { small = { nodes = 12, days = 0.1, seed = 3 } }\n'
        "task_sets = { mix = { count = 3, max_nodes = 4, work_samples = 1e7 } }\n[grid]\nmax_tasks = [1, 3]\n"
    )

    def sweep(folder: str, *options: str) -> tuple[str, dict[str, Any]]:
        ended = bftrain("sweep", spec, "-o", tmp_path / folder, "--jobs", 1, "--json", *options)
        assert ended.code == 0, ended.err
        return ended.err, json.loads(ended.out)

    said, first = sweep("one")
    assert ("computed before" in said, first["computed_before"]) == (False, 0)
    assert sweep("two", "--dry-run")[1]["to_do"] == 0
    assert sweep("two", "--dry-run", "--no-cache")[1]["to_do"] == 4
    said, second = sweep("two")
    assert f"computed before: 2 of 2 points (4 of 4 replays; 4 of these from {cache})" in said
    assert (second["computed_before"], second["rows"]) == (2, first["rows"])
    assert "computed before: 2 of 2 points (4 of 4 replays)" in sweep("two")[0]
    for name in ("table.csv", "sweep.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    (damaged, *_) = sorted(cache.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-2])
    said, third = sweep("three")
    assert f"{cache}: 1 earlier result damaged, or writable by others; computed again" in said
    assert third["figures_sha256"] == first["figures_sha256"]
    monkeypatch.setenv("BFTRAIN_NO_CACHE", "1")
    assert sweep("four", "--dry-run")[1]["to_do"] == 4


def test_a_replay_takes_the_sensitivity_table_of_an_earlier_one(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    monkeypatch.setattr(alternatives, "LocalExecutor", lambda *_: Here())
    assert bftrain("generate", "log", "-o", tmp_path / "log.npz", "--nodes", 8, "--days", 0.1).code == 0
    assert bftrain("tasks", "generate", "-o", tmp_path / "tasks.toml", "--count", 3, "--max-nodes", 4).code == 0

    def replay(folder: str, *options: str) -> tuple[str, dict[str, Any]]:
        ended = bftrain(
            "replay", tmp_path / "log.npz", "--tasks", tmp_path / "tasks.toml", "-o", tmp_path / folder, *options
        )
        assert ended.code == 0, ended.err
        found: dict[str, Any] = json.loads((tmp_path / folder / "summary.json").read_text())
        return ended.err, {name: found[name] for name in ("sensitivity", "advice", "figures_sha256")}

    said, first = replay("one")
    assert "of them from" not in said
    said, second = replay("two")
    count = len(list(cache.iterdir()))
    assert count > 5
    assert f"{count} more replays ({count} of them from {cache}" in said
    assert second == first
