"""What a Slurm that runs here writes: its log, its list of ended jobs and its polled nodes tell one story."""

from __future__ import annotations

import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.pipeline import Imported, import_files
from bftrain_datasets.log.eventlog import NodeState
from tests.helpers.records import kinds
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm

NAMES = ("nid0001", "nid0002", "nid0003", "nid0004")
MOST_JOBS = 3  # on one node, of which jobcomp tells the start and the end in whole seconds


class Recorded(Slurm):
    """A Slurm that writes down what it does."""

    def _write_files(self) -> None:
        super()._write_files()
        with (self.home / "slurm.conf").open("a") as file:
            file.write(f"JobCompType=jobcomp/filetxt\nJobCompLoc={self.home}/jobcomp\n")
            file.write(f"SlurmctldLogFile={self.home}/ctld\nSlurmctldDebug=info\n")

    def poll(self, file: Path, stop: threading.Event) -> None:
        """Write down what sinfo shows, until it is stopped."""
        with file.open("w") as out:
            while not stop.wait(0.2):
                shown = self.run("sinfo", "-h", "-p", "main", "-o", "%T %N", check=False).stdout
                out.write(f"### {time.time():.3f}\n{shown}")

    def state(self, job: str) -> str:
        return self.run("squeue", "-h", "-j", job, "-o", "%T", check=False).stdout.strip()


def eventful_minute(cluster: Recorded) -> None:
    pilot = cluster.submit("sleep 600", "-N1", "-p", "pilot", "-w", "nid0001")
    wait_until(lambda: cluster.state(pilot) == "RUNNING", "the pilot runs", cluster.logs)
    taker = cluster.submit("sleep 2", "-N4")
    wait_until(lambda: cluster.state(taker) == "RUNNING", "the pilot is preempted", cluster.logs)
    wait_until(lambda: cluster.state(taker) == "", "the taker is done", cluster.logs)
    array = cluster.submit("sleep 3", "-N1", "--array=1-3")
    cancelled = cluster.submit("sleep 600", "-N1")
    wait_until(lambda: cluster.state(cancelled) == "RUNNING", "all of them run", cluster.logs)
    cluster.run("scancel", cancelled)
    wait_until(lambda: cluster.state(array) == "" and cluster.state(cancelled) == "", "they are gone", cluster.logs)
    again = cluster.submit("sleep 600", "-N2", "--requeue", "-w", "nid0003,nid0004")
    wait_until(lambda: cluster.state(again) == "RUNNING", "it runs", cluster.logs)
    cluster.run("scontrol", "requeuehold", again)
    wait_until(lambda: cluster.state(again).startswith(("PENDING", "REQUEUE")), "it waits again", cluster.logs)
    cluster.run("scancel", again)
    cluster.run("scontrol", "update", "NodeName=nid0002", "State=DRAIN", "Reason=test")
    time.sleep(1)
    cluster.run("scontrol", "update", "NodeName=nid0002", "State=RESUME")
    cluster.submit("sleep 600", "-N1", "-w", "nid0001")
    wait_until(lambda: "nid0001" not in cluster.idle(), "one job runs to the end", cluster.logs)
    time.sleep(1)


def test_the_log_and_the_list_of_jobs_and_the_polled_nodes_agree(tmp_path: Path) -> None:
    stop = threading.Event()
    with Recorded(nodes=4) as cluster:
        poller = threading.Thread(target=cluster.poll, args=(tmp_path / "sinfo", stop))
        poller.start()
        try:
            eventful_minute(cluster)
        finally:
            stop.set()
            poller.join()
        for name in ("ctld", "jobcomp"):
            (tmp_path / name).write_bytes((cluster.home / name).read_bytes())
    zone = subprocess.run(["date", "+%:z"], check=True, capture_output=True, text=True).stdout.strip()
    found = {
        name: import_files([tmp_path / name], ImportOptions(nodes=NAMES, timezone=zone))
        for name in ("ctld", "jobcomp", "sinfo")
    }
    assert {name: each.format for name, each in found.items()} == {
        "ctld": "slurmctld",
        "jobcomp": "jobcomp",
        "sinfo": "sinfo",
    }
    assert {"still_running", "preempted_jobs", "node_down"} <= kinds(found["ctld"])
    assert not {"no_start", "restarted", "bad_nodes", "malformed"} & kinds(found["ctld"])
    assert found["sinfo"].rows.aside == {}
    for name in NAMES:
        assert busy_s(found["ctld"], name, found["jobcomp"]) == pytest.approx(
            busy_s(found["jobcomp"], name, found["jobcomp"]), abs=MOST_JOBS * 1.0
        )
    begin_s, end_s = found["sinfo"].log.start_s, found["sinfo"].log.end_s
    window = ImportOptions(nodes=NAMES, timezone=zone, window=(begin_s, end_s))
    logged = import_files([tmp_path / "ctld"], window).log
    polled = found["sinfo"].log
    assert abs(logged.idle_node_s - polled.idle_node_s) <= 0.15 * 4 * polled.span_s
    assert NodeState.DOWN in polled.states.tolist()
    assert NodeState.DOWN in logged.states.tolist()


def busy_s(found: Imported, node: str, until: Imported) -> float:
    """How long a node is busy up to where the list of jobs ends."""
    log = found.log
    begin_s, end_s = max(log.start_s, until.log.start_s), min(log.end_s, until.log.end_s)
    times = [begin_s, *(time for time in log.times.tolist() if begin_s < time < end_s), end_s]
    place = log.node_names.index(node)
    return sum(high - low for low, high in pairwise(times) if log.states_at(low)[place] == NodeState.BUSY)
