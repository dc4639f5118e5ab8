"""Tasks take turns on a cluster whose head, agents and tasks are killed: none is lost, none runs twice."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.e2e.test_own_cluster import IN_ROUNDS, KINDS, NAMES, PROGRAM, Cluster

KILLS: Final = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        TemporaryDirectory(prefix="bftrain-lab-", dir="/tmp") as name,  # whose path is short enough for a socket
        Cluster(Path(name), None, IN_ROUNDS) as made,
    ):
        yield made


def processes_of(record: str) -> list[int]:
    """Return the processes that train for a record."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if str(PROGRAM).encode() in words and record.encode() in words:
                found.append(int(folder.name))
    return found


def test_no_kill_loses_a_task_or_runs_it_twice(
    cluster: Cluster, soak_log: Callable[[Mapping[str, float]], None]
) -> None:
    run, chance = cluster.run, random.Random(1)  # noqa: S311 - the same kills in every run
    cluster.add_all()
    cluster.submit(*NAMES)
    killed = dict.fromkeys(("head", "agent", "task"), 0)
    for _ in range(KILLS):
        before = {name: run.client.task(name).done_samples for name in NAMES}
        what = chance.choice([*killed])
        if what == "head":
            run.kill()
            run.start()
            run.until(run.runs, "the head runs again")
        elif what == "agent":
            node = chance.choice([*KINDS])
            cluster.kill(node)
            run.until(lambda node=node: node not in cluster.pool, "the node has left")
            cluster.add(node)
        else:
            holding = [name for name in NAMES if cluster.held(name)]
            for pid in processes_of(f"{cluster.folder}/{chance.choice(holding)}.txt") if holding else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        killed[what] += 1
        run.until(lambda: cluster.tasks_use(*KINDS), "tasks use all nodes")
        run.until(
            lambda before=before: any(run.client.task(name).done_samples > before[name] for name in NAMES),
            "tasks train on",
        )
    cluster.finish(*NAMES, killed=True)
    soak_log({f"kills of a {what}": count for what, count in killed.items()})
