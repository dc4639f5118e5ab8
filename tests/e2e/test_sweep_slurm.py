"""A sweep on jobs of a real Slurm: the same table, private to its owner, and no job left behind."""

from __future__ import annotations

import re
import signal
import socket
import ssl
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest

from tests.helpers.program import bftrain, start
from tests.helpers.slurm import Slurm
from tests.helpers.sweeping import SPEC, at_work, prepare, release, repeatable, wait_until

NO_DASK = "dask-jobqueue is not installed: pip install '.[dask]'"
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason=NO_DASK)]

SWEEP = ("sweep", "sweep.toml", "-o", "out", "--dask", "slurm", "--jobs", "2")
OPTIONS = ("--dask-option", "memory=500 MB", "--dask-option", "queue=main", "--dask-option", "walltime=00:05:00")


def jobs(cluster: Slurm) -> list[str]:
    return cluster.run("squeue", "-h", "-o", "%i %j %T").stdout.splitlines()


def ask_without_certificate(place: str) -> bytes:
    host, _, port = place.rpartition(":")
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 10) as plain, stranger.wrap_socket(plain) as link:
        link.sendall(b"let me in")
        return link.recv(100)  # what is refused shows when something is read


def test_the_table_is_the_same_though_a_job_is_lost(slurm_cluster: Slurm, tmp_path: Path) -> None:
    prepare(tmp_path, SPEC.replace('baseline = "greedy"\n', ""))
    running = start(*SWEEP, *OPTIONS, cwd=tmp_path, **slurm_cluster.env)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "two jobs are held")
    (certificates,) = (tmp_path / "out").glob(".certificates-*")
    assert certificates.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in certificates.iterdir()} == {0o600}
    logs = "\n".join(path.read_text() for path in (tmp_path / "out" / "worker-logs").iterdir())
    (place,) = set(re.findall(r"Registered to: +tls://(\S+)", logs))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask_without_certificate(place)
    before = jobs(slurm_cluster)
    assert [line.split()[1:] for line in before] == [["bftrain-sweep", "RUNNING"]] * 2
    begun_s = monotonic()
    slurm_cluster.run("scancel", before[0].split()[0])
    wait_until(
        lambda: {line.split()[0] for line in jobs(slurm_cluster)} - {line.split()[0] for line in before}, "a new job"
    )
    assert monotonic() - begun_s < 14.0  # 2 s where the machine does nothing else; by Dask's default over 15 s
    wait_until(lambda: len(at_work(tmp_path)) == 3, "another job has taken its place")
    release(tmp_path)
    _, err = running.communicate(timeout=180)
    assert (running.returncode, err.splitlines()[-1]) == (0, b"result: out"), err
    assert bftrain("sweep", "sweep.toml", "-o", "here", "--jobs", "1", cwd=tmp_path).code == 0
    assert repeatable(tmp_path / "out") == repeatable(tmp_path / "here")
    assert not list((tmp_path / "out").glob(".certificates-*"))
    wait_until(lambda: jobs(slurm_cluster) == [], "no job is left behind")


def test_an_interrupted_sweep_leaves_no_job_behind(slurm_cluster: Slurm, tmp_path: Path) -> None:
    prepare(tmp_path)
    running = start(*SWEEP, *OPTIONS, cwd=tmp_path, **slurm_cluster.env)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "two jobs are held")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 130, err
    assert b"Traceback" not in err
    wait_until(lambda: jobs(slurm_cluster) == [], "no job is left behind")
    assert not list((tmp_path / "out").glob(".certificates-*"))


def test_what_slurm_refuses_is_reported(slurm_cluster: Slurm, tmp_path: Path) -> None:
    prepare(tmp_path)
    wrong = bftrain(*SWEEP, "--dask-option", "qeue=main", cwd=tmp_path, **slurm_cluster.env)
    assert wrong.code == 2
    assert "unexpected keyword argument 'qeue'" in wrong.err
    assert "certificates" not in wrong.err
    assert not (tmp_path / "out").exists(), "nothing was begun"
    refused = bftrain(*SWEEP, "--dask-option", "queue=nowhere", cwd=tmp_path, **slurm_cluster.env)
    assert refused.code == 4
    assert "invalid partition specified: nowhere" in refused.err
    assert not (tmp_path / "out").exists()
