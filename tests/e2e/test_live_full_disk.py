"""A live run on a full disk says so, takes no new tasks and goes on, and so do its trainings, until there is space."""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

import pytest

from bftrain.errors import NotAvailable
from bftrain.journal import Journal
from bftrain.live.model.schemas import Submission
from bftrain.live.model.task_record import Run
from bftrain.rerun import Rerun
from tests.helpers.local_daemon import LocalDaemon

SITE = """
launcher = "process"
[scheduler]
name = "local"
nodes = 2
[agents]
preload = []
"""
WRITES = (
    "import pathlib, time\nwhile True:\n    pathlib.Path('beat').write_text(str(time.time()))\n    time.sleep(0.05)\n"
)


def task(name: str, folder: Path) -> Submission:
    """Give a task on one node that writes the time into a file."""
    run = Run(argv=(sys.executable, "-c", WRITES), folder=str(folder / name), cwd=str(folder))
    return Submission(run=run, name=name, min_nodes=1, max_nodes=1)


def test_a_full_disk_ends_neither_the_run_nor_a_training() -> None:
    with tempfile.TemporaryDirectory(prefix="bft-") as name, LocalDaemon(Path(name), SITE) as daemon:
        folder, beat = Path(name), Path(name, "beat")
        daemon.client.submit(task("a", folder))
        daemon.until(beat.exists, "the task works")
        pid, (_, hard) = daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))  # no file of the daemon grows, its log included
        with pytest.raises(NotAvailable, match="cannot be written"):
            daemon.client.submit(task("b", folder))
        said = "until the journal can be written, no new tasks are taken"
        daemon.until(lambda: any(said in one.text for one in daemon.client.status().remarks), "it says so")
        with pytest.raises(NotAvailable, match="nothing can be changed now"):
            daemon.client.submit(task("c", folder))
        before = beat.read_text()
        daemon.until(lambda: beat.read_text() not in {"", before}, "the task goes on")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

        def taken() -> bool:
            try:
                daemon.client.submit(task("d", folder))
            except NotAvailable:
                return False
            return True

        daemon.until(taken, "new tasks are taken when there is space again")
        daemon.until(lambda: daemon.client.status().used == 2, "both nodes are used")
        assert daemon.end() == 0
        with Journal.open(daemon.state / "live.db") as journal:
            assert list(Rerun(journal).differences()) == []
