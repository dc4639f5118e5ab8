"""A live run on a full disk says so, takes no new tasks and goes on, and so do its trainings, until there is space."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bftrain import Journal, NotAvailable, Rerun, Run, Submission
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
    """Return a task on one node that writes the time into a file."""
    run = Run(argv=(sys.executable, "-c", WRITES), folder=str(folder / name), cwd=str(folder))
    return Submission(run=run, name=name, min_nodes=1, max_nodes=1)


def test_a_full_disk_ends_neither_the_run_nor_a_training() -> None:
    with tempfile.TemporaryDirectory(prefix="bft-") as name, LocalDaemon(Path(name), SITE) as daemon:
        folder, beat = Path(name), Path(name, "beat")
        daemon.client.submit(task("a", folder))
        daemon.until(beat.exists, "the task works")
        pid, (_, hard) = daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))  # no file of the daemon grows, its log included
        with pytest.raises(NotAvailable, match="not certain yet"):
            daemon.client.submit(task("b", folder))
        said = "until the journal can be written, new tasks are rejected"
        daemon.until(lambda: any(said in one.text for one in daemon.client.status().remarks), "it says so")
        with pytest.raises(NotAvailable, match="no changes are possible now"):
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
        assert daemon.client.task("b").state in {"running", "waiting"}, "it was written when there was space again"
        assert daemon.end() == 0
        with Journal.open(daemon.state / "live.db") as journal:
            assert list(Rerun(journal).differences()) == []


@contextmanager
def small_disk() -> Iterator[Path]:
    """Yield a folder on a file system of 4 MB; skip where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="bft-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", name]
        if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("only root can mount a small file system, and not in every container")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


PRINTS = "import time\nopen('begun', 'w').close()\nwhile True:\n    print('x' * 60, flush=True)\n    time.sleep(0.01)\n"


def test_a_disk_without_space_is_named_and_what_cannot_be_written_is_not_said_to_be() -> None:
    with small_disk() as folder, LocalDaemon(folder, SITE + "patience_s = 2\n[times]\nreunion_s = 1\n") as daemon:
        run = Run(argv=(sys.executable, "-c", PRINTS), cwd=str(folder))
        daemon.client.submit(Submission(run=run, name="a", min_nodes=1, max_nodes=1))
        begun = folder / "begun"
        daemon.until(begun.exists, "the task works")
        filled = folder / "filled"
        with filled.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            file.writelines(bytes(1024) for _ in range(10_000))
        with pytest.raises(NotAvailable, match=r"not certain yet: the journal cannot be written: .* disk is full"):
            daemon.client.submit(task("b", folder))
        daemon.until(lambda: "no space is left in" in daemon.client.task("a").reason, "it says why its process died")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == NotAvailable.exit_code
        filled.unlink()
        begun.unlink()
        output = (folder / "live.log").read_text()
        assert "the state is in" not in output
        daemon.start()
        daemon.until(daemon.runs, "it goes on when there is space again")
        daemon.until(begun.exists, "and so does the task")
        assert daemon.end() == 0
        with Journal.open(daemon.state / "live.db") as journal:
            assert list(Rerun(journal).differences()) == []
