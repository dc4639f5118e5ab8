"""A live run on slots of two kinds, as its site file says: the command itself, agents and tasks that are processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.helpers.local_daemon import LocalDaemon
from tests.helpers.program import Ended, bftrain

SITE: Final = """
name = "kinds"
folder = "shared"
launcher = "process"
[kinds]
fast = "slot[1-2]"
slow = ["slot3", "slot4"]
[scheduler]
name = "local"
nodes = 4
idle = "2@0"
[agents]
preload = []
"""
TASKS: Final = """
[[task]]
name = "picky"
command = "sleep"
args = ["600"]
nodes = "1:2"
curves.slow = { nodes = [1, 2], rate = [10.0, 20.0] }
[[task]]
name = "both"
command = "sleep"
args = ["600"]
nodes = "1:2"
curves.fast = { nodes = [1, 2], rate = [40.0, 70.0] }
curves.slow = { nodes = [1, 2], rate = [1.0, 2.0] }
"""
OTHER: Final = """
name = "other"
command = "sleep"
nodes = "1:2"
curves.tpu = { nodes = [1], rate = [1.0] }
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="bftrain-kinds-", dir="/tmp") as name:  # whose path is short enough for a socket
        yield Path(name)


def submit(daemon: LocalDaemon, text: str) -> Ended:
    (daemon.folder / "tasks.toml").write_text(text)
    return bftrain("submit", daemon.folder / "tasks.toml", BFTRAIN_LIVE=daemon.socket)


def held(daemon: LocalDaemon, task: str) -> set[str]:
    return set(daemon.client.task(task).nodes)


def nodes(daemon: LocalDaemon, kind: str) -> set[str]:
    return {node.name for node in daemon.client.nodes() if node.kind == kind}


def test_tasks_run_on_slots_of_their_kind(folder: Path) -> None:
    with LocalDaemon(folder, SITE) as run:
        submitted = submit(run, TASKS)
        assert submitted.code == 0, submitted.err
        run.until(lambda: held(run, "both") == {"slot1", "slot2"}, "two fast slots are idle, one task runs there")
        assert held(run, "picky") == set()
        kinds = run.client.status().kinds
        assert {kind: (view.pool, view.used) for kind, view in kinds.items()} == {"fast": (2, 2), "slow": (0, 0)}
        assert "2 of 2 fast, 0 of 0 slow" in bftrain("status", BFTRAIN_LIVE=run.socket).out
        assert nodes(run, "fast") == {"slot1", "slot2"}
        refused = submit(run, OTHER)
        assert refused.code == 3
        assert "curves: it needs 1 node of one kind and runs on tpu only; there are 2 fast, 2 slow" in refused.err

        assert run.end() == 0
        run.write_site(SITE.replace('idle = "2@0"', 'idle = "4@0"'))  # all slots from now on
        run.start()
        run.until(run.runs, "it runs again")
        run.until(lambda: held(run, "picky") == {"slot3", "slot4"}, "the other task runs on the slow ones")
        run.until(lambda: held(run, "both") == {"slot1", "slot2"}, "and this one stays where it is fast")
        assert nodes(run, "slow") == {"slot3", "slot4"}
        assert run.end() == 0


def test_a_node_of_two_kinds_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE.replace('"slot3", "slot4"', '"slot2"'))
    ended = bftrain("live", "--config", "site.toml", cwd=tmp_path)
    assert ended.code == 3
    assert "SiteSettings.kinds: 'slow': node 'slot2' is of kind 'fast' already (give every node one kind)" in ended.err
