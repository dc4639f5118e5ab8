"""Two days of 100,000 nodes, command by command: time of a core and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tests.perf.test_bench_report import run

pytestmark = pytest.mark.bench

# A command, and the most that it may take: seconds of a core, MB
COMMANDS = {
    "generate log --nodes 100000 --days 2 -o log.npz": (6, 600),
    "slice log.npz --nodes 0:100000 -o log.csv": (10, 600),
    "import log.csv -o imported.npz": (60, 600),
    "generate tasks --count 1000 -o tasks.toml": (2, 200),
    "replay log.npz --tasks tasks.toml --max-tasks 35 --quick -o out": (30, 600),
    "report out": (20, 600),
}


def test_each_command(figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command, (most_s, most_mb) in COMMANDS.items():
        cost = run(*command.split())
        name = f"100,000 nodes x 2 days: {' '.join(command.split()[:2])}"
        figures.add(f"{name}: by the clock", cost.wall_s, "s")
        figures.add(f"{name}: time of a core", cost.core_s, "s")
        figures.add(f"{name}: memory at most", cost.peak_mb, "MB")
        assert cost.core_s < most_s, command
        assert cost.peak_mb < most_mb, command
