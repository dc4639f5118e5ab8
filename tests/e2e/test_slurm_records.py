"""What a real Slurm writes of jobs that really ran: the log says of each node what was seen while it happened.

There is no accounting data base here, so no sacct; jobcomp/filetxt and slurmctld.log are written by Slurm itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.eventlog import EventLog
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm

SETTINGS = (
    "JobCompType=jobcomp/filetxt\nJobCompLoc={home}/jobcomp.log\n"
    "SlurmctldDebug=info\nSlurmctldLogFile={home}/ctld.log\n"
)
A_SECOND = 1.1  # Slurm shows whole ones, its log thousandths


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with Slurm(nodes=4, more_settings=SETTINGS) as running:
        yield running


def shown(cluster: Slurm, job: str) -> dict[str, str]:
    """Return what ``scontrol`` shows of a job that is over and not yet forgotten."""
    words = cluster.run("scontrol", "show", "job", job, "-o").stdout.split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()  # as Slurm does: in the zone of this machine


def busy(log: EventLog, at_s: float) -> set[str]:
    """Name the nodes that are not idle at a moment."""
    states = log.states_at(at_s)
    return {name for name, state in zip(log.node_names, states.tolist(), strict=True) if state == 0}


@pytest.fixture(scope="module")
def run(cluster: Slurm) -> list[dict[str, str]]:
    """Run some jobs: whole nodes, several nodes, one that is cancelled before and one after it starts."""
    jobs = [
        cluster.submit("sleep 8", "--nodes=2", "--exclusive"),
        cluster.submit("sleep 4", "--nodes=1", "--exclusive"),
        cluster.submit("sleep 5", "--nodes=3", "--exclusive", "--job-name=a name with NodeList=nid[9-10] in it"),
        cluster.submit("sleep 600", "--nodes=4", "--exclusive", "--begin=now+1hour"),
        cluster.submit("sleep 600", "--nodes=1", "--exclusive"),
    ]
    cluster.run("scancel", jobs[3])
    wait_until(lambda: shown(cluster, jobs[4])["JobState"] == "RUNNING", "the last job runs", cluster.logs)
    time.sleep(1)
    cluster.run("scancel", jobs[4])
    wait_until(lambda: not cluster.run("squeue", "-h").stdout.strip(), "all jobs are over", cluster.logs)
    return [shown(cluster, job) for job in jobs]


def held(run: list[dict[str, str]]) -> list[tuple[float, float, str]]:
    started = [job for job in run if job["StartTime"] != "Unknown" and job["NodeList"] not in {"", "(null)"}]
    return [(seconds(job["StartTime"]), seconds(job["EndTime"]), job["NodeList"]) for job in started]


@pytest.mark.parametrize(("name", "form"), [("jobcomp.log", "jobcomp"), ("ctld.log", "slurmctld")])
def test_the_log_says_what_was_seen(
    cluster: Slurm, run: list[dict[str, str]], name: str, form: str, tmp_path: Path
) -> None:
    stays = held(run)
    assert len(stays) == 4
    copy = tmp_path / name
    copy.write_bytes((cluster.home / name).read_bytes())
    offset = datetime.now().astimezone().isoformat()[-6:]
    made = import_files([copy], ImportOptions(nodes=cluster.nodes, timezone=offset))
    assert made.format == form
    log = made.log
    edges = [edge for start, end, _ in stays for edge in (start, end)]
    steps = range(round(4 * (max(edges) - min(edges))))
    looks = [min(edges) + step / 4 for step in steps]
    clear = [at_s for at_s in looks if min(abs(at_s - edge) for edge in edges) > A_SECOND]
    assert len(clear) >= 4
    for at_s in clear:
        names = [nodes for start, end, nodes in stays if start <= at_s < end]
        expected = cluster.run("scontrol", "show", "hostnames", ",".join(names)).stdout.split() if names else []
        assert busy(log, at_s) == set(expected), at_s - log.start_s


def test_both_files_tell_of_the_same_node_time(cluster: Slurm, run: list[dict[str, str]]) -> None:
    stays = held(run)
    counts = [len(cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()) for _, _, nodes in stays]
    expected = sum((end - start) * count for (start, end, _), count in zip(stays, counts, strict=True))
    made = import_files([cluster.home / "jobcomp.log"], ImportOptions(nodes=cluster.nodes))
    assert made.log.span_s * 4 - made.log.idle_node_s == expected
    assert made.rows.aside.get("malformed", 0) == 0
    assert made.rows.read == 5
    assert made.rows.used == 4
