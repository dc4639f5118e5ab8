"""Pilots under a stand-in for PBS: its commands behave like the real ones, and its jobs run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bftrain import registry
from tests.helpers.fake_pbs import FakePbs, Job
from tests.helpers.fake_pbs_module import run_hook
from tests.helpers.pilots import READER, Allowed, SchedulerRunner
from tests.helpers.slurm import wait_until

NODES = ("n1", "n2", "n3")


def keeper(server: FakePbs, folder: Path, *, patience_s: float = 30.0, **settings: object) -> SchedulerRunner:
    known = {"queue": "idle", "pending": 1, "poll_s": 0.5, "lengths_s": [3600], **settings}
    return SchedulerRunner(registry.load("scheduler", "pbs"), known, folder, environment(server), patience_s=patience_s)


def environment(server: FakePbs) -> dict[str, str]:
    return {**os.environ, "PATH": f"{server.path}:{os.environ['PATH']}"}


def test_free_nodes_become_ours_and_a_stock_waits(tmp_path: Path) -> None:
    with FakePbs(*NODES) as server, keeper(server, tmp_path / "site") as pilots:
        pilots.wait_for(NODES)
        wait_until(lambda: len(server.of("Q")) >= 1, "a stock waits for more", pilots.tell)
        assert pilots.remarks() == ""
        assert {job.seconds for job in server.of("R")} == {3600}
        assert all(job.variables["BFTRAIN_PILOT"].startswith("bftrain-test.") for job in server.of("R"))
        logs = list((tmp_path / "site" / "pilots").iterdir())
        assert {(log.name, stat.S_IMODE(log.stat().st_mode)) for log in logs} == {(f"{n}.log", 0o600) for n in NODES}
        untils = [one.until_s for one in pilots.news if isinstance(one, Allowed)]
        assert all(untils)
        pilots.ask(pilots.scheduler.leave())
        assert server.of("Q", "R", "E") == []
        assert server.free() == list(NODES)


@pytest.mark.parametrize("preempt", ["D", "R", "S"])
def test_a_main_job_gets_its_nodes_however_it_preempts(preempt: str, tmp_path: Path) -> None:
    with FakePbs(*NODES, preempt=preempt) as server, keeper(server, tmp_path / "site") as pilots:
        pilots.wait_for(NODES)
        job = server.submit("sleep 600", 2)
        wait_until(lambda: [one.id for one in server.of("R", queue="workq")] == [job], "it runs", pilots.tell)
        (kept,) = set(NODES) - set(server.jobs[job].nodes)
        pilots.wait_for({kept})
        wait_until(lambda: server.of("S") == [], "no job stays suspended there", pilots.tell)
        server.delete(job)
        pilots.wait_for(NODES, "they come back")


def test_a_server_that_is_down_changes_nothing(tmp_path: Path) -> None:
    with FakePbs(*NODES) as server, keeper(server, tmp_path / "site") as pilots:
        pilots.wait_for(NODES)
        server.shut()
        wait_until(lambda: "does not answer" in pilots.remarks(), "operators are warned", pilots.tell)
        assert "annot connect" in pilots.remarks()
        assert pilots.ask(pilots.scheduler.look()) is None
        assert pilots.agents() == pilots.ours() == set(NODES)
        server.open()
        wait_until(lambda: pilots.ask(pilots.scheduler.look()) == set(NODES), "it is asked again", pilots.tell)
        assert len(server.of("R")) == 3


def test_a_queue_that_pbs_never_preempts_is_refused_before_the_first_pilot(tmp_path: Path) -> None:
    with FakePbs("n1") as server:
        server.main_priority = 10
        with keeper(server, tmp_path / "site") as pilots:
            wait_until(lambda: pilots.problem() is not None, "it ends", pilots.tell)
            assert "never preempts" in str(pilots.problem())
            assert "qsub" not in {words[0] for words in server.asked}


def test_hooks_tell_at_once(tmp_path: Path) -> None:
    """With hooks an end is known though nothing is looked at for an hour."""
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)

    def hook(event: str, job: Job) -> None:
        vnodes = "+".join(f"({node}:ncpus=4)" for node in job.nodes)
        about = type("job", (), {"id": job.id, "exec_vnode": vnodes, "run_count": job.run_count, "queue": job.queue})
        assert run_hook(spool, event, about) == []

    with FakePbs("n1", "n2") as server:
        server.hooks.append(hook)
        server.submit("sleep 600", 1)
        settings = {"poll_s": 3600.0, "spool": str(spool)}
        with SchedulerRunner(
            registry.load("scheduler", "pbs-nodes"), settings, tmp_path / "site", environment(server)
        ) as watch:
            wait_until(lambda: watch.ours() == {"n2"}, "the free node is ours", watch.tell)
            assert (spool / READER).exists()
            job = server.submit("exec sleep 0.3", 1)
            wait_until(lambda: watch.ours() == set(), "a job started there", watch.tell)
            wait_until(lambda: watch.ours() == {"n2"}, "and ended", watch.tell)
            assert job in server.jobs
            assert watch.remarks() == ""
        assert not (spool / READER).exists()
