"""A live run that decides in rounds by a policy, as its site file says: tasks take turns on slots of two kinds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.helpers.local_daemon import LocalDaemon
from tests.helpers.program import bftrain

PROGRAM: Final = Path(__file__).parents[1] / "helpers" / "programs" / "given_speed.py"
SITE: Final = """
name = "rounds"
folder = "shared"
launcher = "process"
[kinds]
fast = "slot1"
slow = "slot2"
[scheduler]
name = "local"
nodes = 2
[agents]
preload = []
[deciding]
policy = "las"
round_s = 2
"""
NAMES: Final = ("a", "b", "c", "d")
WORK: Final = 60.0


def task(name: str, folder: Path) -> str:
    return f"""
[[task]]
name = "{name}"
command = "{sys.executable}"
args = ["{PROGRAM}", "{folder}/{name}.txt", "{WORK}", "slot1=20", "slot2=10"]
nodes = "1"
work_samples = {WORK}
curves.fast = {{ nodes = [1], rate = [20.0] }}
curves.slow = {{ nodes = [1], rate = [10.0] }}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="bftrain-rounds-", dir="/tmp") as name:  # whose path is short enough for a socket
        yield Path(name)


def test_tasks_take_turns_and_continue_where_they_stopped_even_after_a_kill(folder: Path) -> None:
    (folder / "tasks.toml").write_text("".join(task(name, folder) for name in NAMES))
    with LocalDaemon(folder, SITE) as run:
        submitted = bftrain("submit", folder / "tasks.toml", BFTRAIN_LIVE=run.socket)
        assert submitted.code == 0, submitted.err

        def have_run() -> set[str]:
            return {view.name for view in run.client.tasks(over=True) if view.done_samples > 0.0}

        run.until(lambda: len(have_run()) > 2, "more tasks than slots have run, so some have stopped for others")
        assert "las, in rounds of 2 s" in bftrain("status", BFTRAIN_LIVE=run.socket).out
        run.kill()
        run.start()
        run.until(run.runs, "it runs again")
        run.until(lambda: not run.client.tasks(), "all tasks are done")
        assert {view.name: view.state for view in run.client.tasks(over=True)} == dict.fromkeys(NAMES, "done")
    journal = bftrain("journal", "verify", folder / "state" / "live.db")
    assert journal.code == 0, journal.out + journal.err
    assert "every decision the same" in journal.out
    for name in NAMES:
        lines = (folder / f"{name}.txt").read_text().splitlines()
        runs = [tuple(map(float, line.split())) for line in lines]
        assert [start for start, _ in runs[1:]] == [end for _, end in runs[:-1]], "each run continues where one stopped"
        assert runs[-1][1] >= WORK
    turns = sum(len((folder / f"{name}.txt").read_text().splitlines()) for name in NAMES)
    assert turns > len(NAMES)


TRACE: Final = """
[[task]]
name = "mixer-{number}"
nodes = "1"
work_samples = {work}
submit_s = {submit_s}
curves.fast = {{ nodes = [1], rate = [40.0] }}
curves.slow = {{ nodes = [1], rate = [20.0] }}
"""


def test_a_trace_is_played_and_compared_with_its_simulation(folder: Path) -> None:
    trace = folder / "trace.toml"
    trace.write_text("".join(TRACE.format(number=n, work=8000.0, submit_s=20.0 * n) for n in range(3)))
    with LocalDaemon(folder, SITE.replace('"las"', '"srtf"')) as run:
        played = bftrain("submit", "--trace", trace, "--time-scale", 100, "--wait", BFTRAIN_LIVE=run.socket)
        assert played.code == 0, played.err
        assert played.out.count(": done") == 3
        figures = run.metrics()
        assert figures["bftrain_completion_seconds_count"] == figures["bftrain_slowdown_count"] == 3
        views = {view.name: view for view in run.client.tasks(over=True)}
    assert {name: (view.work_samples, view.campaign) for name, view in views.items()} == {
        f"mixer-{n}": (80.0, "mixer") for n in range(3)
    }
    journal, log, tasks = folder / "state" / "live.db", folder / "log.npz", folder / "tasks.toml"
    for words in (
        ("journal", "replay", journal, "-o", folder / "lived"),
        ("journal", "export", journal, "-o", log, "--tasks", tasks),
        ("rounds", log, "--tasks", tasks, "--policy", "srtf", "--round", 2, "-o", folder / "simulated"),
    ):
        done = bftrain(*words)
        assert done.code == 0, done.err
    kinds = json.loads((folder / "lived" / "summary.json").read_text())["kinds"]
    assert {kind: figures["used_node_h"] > 0.0 for kind, figures in kinds.items()} == {"fast": True, "slow": True}
    compared = bftrain("compare", folder / "lived", folder / "simulated", "--json")
    assert compared.code == 0, compared.err
    lived, simulated = json.loads(compared.out)["figures"]["time_to_finish_s.mean"]["values"]
    assert lived == pytest.approx(simulated, abs=2.5)  # a round, and half a second to start


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time-scale", 2), "is for a trace only"),
        (("--trace", "--work", 5), "tasks of a trace take no further options"),
        (("--trace",), "task 'a': has no work_samples, so it would never end"),
    ],
)
def test_a_trace_that_cannot_be_played_is_refused(folder: Path, words: tuple[object, ...], said: str) -> None:
    (folder / "tasks.toml").write_text('[[task]]\nname = "a"\ncurve = { nodes = [1], rate = [1.0] }\n')
    done = bftrain("submit", folder / "tasks.toml", *words, BFTRAIN_LIVE=folder / "none.sock")
    assert done.code != 0
    assert said in done.err
