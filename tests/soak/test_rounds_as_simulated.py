"""Sixty tasks in rounds of 20 s: a live run with real processes takes as long as its simulation.

Policies react to small differences: simulations of tasks whose work varies by 1 % differ by several per cent. So the
live run is compared with the mean of many of these.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from msgspec.structs import replace

from bftrain import load_tasks, rounds
from tests.helpers.local_daemon import LocalDaemon
from tests.helpers.program import bftrain, start

ROUND_S: Final = 20.0
SCALE: Final = 18.0
KINDS: Final = {"v100": "slot[1-3]", "k80": "slot[4-6]"}
SITE: Final = """
name = "rounds"
folder = "shared"
launcher = "process"
[kinds]
v100 = "slot[1-3]"
k80 = "slot[4-6]"
[scheduler]
name = "local"
nodes = 6
[agents]
preload = []
[deciding]
policy = "{policy}"
round_s = {round_s}
"""
TASK: Final = """
[[task]]
name = "job-{number}"
nodes = "{nodes}"
work_samples = {work}
submit_s = {submit_s}
curves.v100 = {{ nodes = [{nodes}], rate = [{fast}] }}
curves.k80 = {{ nodes = [{nodes}], rate = [{slow}] }}
"""
_PATIENCE_S: Final = 3600.0
SIMULATIONS: Final = 24


def trace() -> str:
    """Return tasks of 15 to 90 s on the fast kind, which is 1.5 to 5 times as fast; they arrive within five minutes."""
    chance = random.Random(1)  # noqa: S311 - equal tasks in every run
    tasks, submit_s = list[str](), 0.0
    for number in range(60):
        fast, nodes = chance.uniform(10.0, 40.0), chance.choice([1, 1, 1, 2])
        slow, seconds = fast / chance.choice([1.5, 2.0, 3.0, 5.0]), 15.0 * 6.0 ** chance.random()
        more = {"work": fast * seconds * SCALE, "submit_s": submit_s * SCALE, "fast": fast, "slow": slow}
        tasks.append(TASK.format(number=number, nodes=nodes, **more))
        submit_s += chance.expovariate(0.2)
    return "".join(tasks)


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="bftrain-rounds-", dir="/tmp") as name:  # whose path is short enough for a socket
        yield Path(name)


@pytest.mark.parametrize("policy", ["max-min", "finish-time", "fifo", "las"])
def test_a_run_takes_as_long_as_its_simulation(
    policy: str, folder: Path, soak_log: Callable[[Mapping[str, float]], None]
) -> None:
    (folder / "trace.toml").write_text(trace())
    with LocalDaemon(folder, SITE.format(policy=policy, round_s=ROUND_S)) as run:
        submit = ("submit", "--trace", folder / "trace.toml", "--time-scale", SCALE, "--wait")
        played = start(*submit, BFTRAIN_LIVE=run.socket)
        _, errors = played.communicate(timeout=_PATIENCE_S)
        assert played.returncode == 0, errors.decode()
    journal, log, tasks = folder / "state" / "live.db", folder / "log.npz", folder / "tasks.toml"
    for words in (
        ("journal", "replay", journal, "-o", folder / "lived"),
        ("journal", "export", journal, "-o", log, "--tasks", tasks),
    ):
        done = bftrain(*words)
        assert done.code == 0, done.err
    lived = json.loads((folder / "lived" / "summary.json").read_text())
    simulated = [simulation(tasks, policy, seed) for seed in range(SIMULATIONS)]
    for name, value in {"completion": lived["completion_s"]["mean"], "makespan": lived["makespan_s"]}.items():
        found = [each[name] for each in simulated]
        figures = {"mean": mean(found), "least": min(found), "most": max(found)}
        soak_log({f"{name}, s": value} | {f"{name} in simulations, {what}, s": each for what, each in figures.items()})
        assert value == pytest.approx(mean(found), rel=0.05), name


def simulation(tasks: Path, policy: str, seed: int) -> dict[str, float]:
    """Return the mean completion time and the makespan of tasks whose work varies by 1 %."""
    chance = random.Random(seed)  # noqa: S311 - the same variations in every run
    varied = [
        replace(task, work_samples=(task.work_samples or 0.0) * chance.uniform(0.99, 1.01))
        for task in load_tasks(tasks)
    ]
    summary = rounds({"v100": 3, "k80": 3}, varied, policy=policy, round_s=ROUND_S).summary
    return {"completion": summary["completion_s"]["mean"], "makespan": summary["makespan_s"]}
