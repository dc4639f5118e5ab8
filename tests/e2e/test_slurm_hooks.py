"""Hooks of a real Slurm: every end is reported, at once and with all its nodes; and nodes are watched, not held."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bftrain import registry
from tests.helpers.pilots import HookListener, HookNews, HookSpool, Pilots, SchedulerRunner, Taken
from tests.helpers.schedulers import install_hook
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm


def hooked(settings: str, *, nodes: int = 3) -> Slurm:
    """Return a Slurm with our hook in it; its spool is beside its files."""
    cluster = Slurm(nodes=nodes, more_settings=settings)
    install_hook("slurm", spool=cluster.home / "spooled", hook=cluster.home / "hook")
    return cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Yield a Slurm whose starts and ends are reported."""
    with hooked("EpilogSlurmctld={home}/hook\nPrologSlurmctld={home}/hook\n") as own:
        yield own


def watching(cluster: Slurm, folder: Path, **settings: object) -> SchedulerRunner:
    return SchedulerRunner(registry.load("scheduler", "slurm-nodes"), settings, folder, cluster.env)


def spool_of(cluster: Slurm) -> Path:
    return cluster.home / "spooled"


@pytest.mark.parametrize(
    "settings", ["EpilogSlurmctld={home}/hook\n", "JobCompType=jobcomp/script\nJobCompLoc={home}/hook\n"]
)
def test_every_end_is_reported_with_all_its_nodes(settings: str) -> None:
    heard: list[HookNews] = []
    notes: list[str] = []

    def hear(news: Sequence[HookNews]) -> None:
        heard.extend(news)

    with hooked(settings) as cluster:
        listener = HookListener(HookSpool(spool_of(cluster)), hear, notes.append)
        listener.start()
        jobs = {cluster.submit("true", f"-N{1 + number % 3}", "--exclusive"): 1 + number % 3 for number in range(12)}

        def ended() -> dict[str, int]:  # a file that is still being written is news without a job: a reason to look
            return {one.job: len(one.nodes) for one in heard if one.job}

        wait_until(lambda: len(ended()) >= len(jobs), "all ends are reported", lambda: f"{heard}\n{cluster.logs()}")
        listener.stop()
        assert ended() == jobs
        assert {one.what for one in heard if one.job} == {"end"}
        assert {node for one in heard for node in one.nodes} <= set(cluster.nodes)
    assert notes == []


def test_watched_nodes_are_ours_by_slurms_word(cluster: Slurm, tmp_path: Path) -> None:
    with watching(cluster, tmp_path, poll_s=0.3) as watch:
        wait_until(lambda: watch.ours() == set(cluster.nodes), "idle nodes are ours", watch.tell)
        assert not watch.scheduler.agents_suffice
        job = cluster.submit("sleep 600", "-N2", "--exclusive")
        wait_until(lambda: len(watch.ours()) == 1, "two were taken", watch.tell)
        assert watch.ours() == cluster.idle() == watch.ask(watch.scheduler.look())
        cluster.run("scontrol", "update", f"nodename={next(iter(cluster.idle()))}", "state=drain", "reason=test")
        wait_until(lambda: watch.ours() == set(), "a drained node is not ours", watch.tell)
        cluster.run("scancel", job)
        wait_until(lambda: len(watch.ours()) == 2, "and those that were given back are", watch.tell)
        drained = (set(cluster.nodes) - watch.ours()).pop()
        cluster.run("scontrol", "update", f"nodename={drained}", "state=resume")
        wait_until(lambda: watch.ours() == set(cluster.nodes), "all are back", watch.tell)


def test_with_hooks_nothing_has_to_be_looked_at(cluster: Slurm, tmp_path: Path) -> None:
    with watching(cluster, tmp_path, poll_s=3600.0, spool=str(spool_of(cluster))) as watch:
        wait_until(lambda: watch.ours() == set(cluster.nodes), "idle nodes are ours", watch.tell)
        for _ in range(3):
            job = cluster.submit("sleep 600", "-N2", "--exclusive")
            wait_until(lambda: len(watch.ours()) == 1, "two were taken", watch.tell)
            cluster.run("scancel", job)
            wait_until(lambda: watch.ours() == set(cluster.nodes), "and given back", watch.tell)
        assert watch.remarks() == ""


def test_hooks_tell_of_a_pilot_that_ended(cluster: Slurm, tmp_path: Path) -> None:
    settings = {"poll_s": 3600.0, "spool": str(spool_of(cluster)), "pending": 1}
    with Pilots(cluster, tmp_path / "site", hints=False, **settings) as pilots:
        wait_until(lambda: len(pilots.agents()) == 3, "pilots run", pilots.tell)
        pilots.do(pilots.scheduler.hint)
        pilots.wait_for(cluster.nodes)
        begun = time.monotonic()
        cluster.run("scancel", *pilots.jobs("RUNNING"))
        wait_until(lambda: any(isinstance(one, Taken) for one in pilots.news), "it is reported", pilots.tell)
        assert time.monotonic() - begun < 30, "long before the next poll"
        pilots.ask(pilots.scheduler.leave())
