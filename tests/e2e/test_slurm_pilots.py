"""Pilots under a real Slurm: they fill what is idle, are in no job's way, and survive what happens around them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import NotAvailable
from tests.helpers.pilots import Allowed, Pilots, end_all
from tests.helpers.processes import descendants
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture
def cluster(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """Yield the Slurm of this process with all its nodes idle, and leave it so."""
    end_all(slurm_cluster)
    yield slurm_cluster
    end_all(slurm_cluster)


def pids_of(pilots: Pilots, node: str) -> set[int]:
    agent = next(one["pid"] for one in reversed(pilots.messages) if one["type"] == "registered" and one["node"] == node)
    return {agent, *descendants(agent)}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def test_idle_nodes_become_ours_and_a_stock_waits(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site") as pilots:
        pilots.wait_for(cluster.nodes)
        assert pilots.ask(pilots.scheduler.look()) == set(cluster.nodes)
        assert pilots.scheduler.facts().cluster == "test"
        wait_until(lambda: len(pilots.jobs("PENDING")) >= 2, "a stock waits for more", pilots.tell)
        assert pilots.remarks() == ""
        untils = [one.until_s for one in pilots.news if isinstance(one, Allowed)]
        assert all(until is not None and until > time.time() for until in untils), "the end of a pilot is known"
        names = cluster.run("squeue", "-h", "-p", "pilot", "-o", "%j %k").stdout.split("\n")
        assert all(line.startswith("bftrain-test bftrain-test.") for line in names if line)


def test_the_secret_is_in_a_file_alone_and_logs_are_private(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site") as pilots:
        pilots.wait_for(cluster.nodes)
        secret = pilots.secret.read_bytes().strip()
        for node in cluster.nodes:
            for pid in pids_of(pilots, node):
                seen = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
                assert secret not in seen
        (job, *_) = pilots.jobs("RUNNING")
        kept = tmp_path / "script"
        cluster.run("scontrol", "write", "batch_script", job, str(kept))
        assert secret not in kept.read_bytes()
        assert kept.read_text().splitlines()[-1].startswith("exec ")
    logs = list((tmp_path / "site" / "pilots").iterdir())
    assert {log.name for log in logs} == {f"{node}.log" for node in cluster.nodes}
    assert {stat.S_IMODE(log.stat().st_mode) for log in logs} == {0o600}
    assert stat.S_IMODE((tmp_path / "site" / "pilots").stat().st_mode) == 0o700


def test_a_main_job_gets_its_nodes_and_gives_them_back(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site") as pilots:
        pilots.wait_for(cluster.nodes)
        pids = {node: pids_of(pilots, node) for node in cluster.nodes}
        begun = time.time()
        job = cluster.submit("sleep 600", "--nodes=3", "--exclusive")
        wait_until(lambda: len(pilots.agents()) == 1, "three agents left", pilots.tell)
        (kept,) = pilots.agents()
        pilots.wait_for({kept})
        taken = set(cluster.nodes) - {kept}
        wait_until(lambda: cluster.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING", "it runs")
        assert not alive({pid for node in taken for pid in pids[node]})
        assert alive(pids[kept]) == pids[kept]
        reasons = {one["reason"] for one in pilots.messages if one["type"] == "gone"}
        assert reasons == {"it left: SIGTERM"}
        assert all(pilots.gone_at(node, begun) is not None for node in taken)
        cluster.run("scancel", job)
        pilots.wait_for(cluster.nodes, "the stock refills them")


def test_a_node_that_an_administrator_drains_is_given_back_until_it_is_resumed(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site", plan_poll_s=0.5) as pilots:
        pilots.wait_for(cluster.nodes)
        (node, *others), to_leave = cluster.nodes, pilots.scheduler.to_leave  # type: ignore[attr-defined]  # of pilots
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=new disk")
        try:
            wait_until(lambda: to_leave() == {node}, "it is to be left", pilots.tell)
            assert f"slurm drains {node} (draining, new disk)" in pilots.remarks()
            pilots.ask(pilots.scheduler.give_back(to_leave()))
            pilots.wait_for(others)
        finally:
            cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        pilots.wait_for(cluster.nodes, "a pilot starts there again")
        assert to_leave() == set()


def test_given_back_is_given_back_and_drained_stays_free(cluster: Slurm, tmp_path: Path) -> None:
    first, second, *others = cluster.nodes
    with Pilots(cluster, tmp_path / "site") as pilots:
        pilots.wait_for(cluster.nodes)
        pilots.do(lambda: pilots.scheduler.want(4, without={first}))
        pilots.ask(pilots.scheduler.give_back({first}))
        pilots.wait_for({second, *others})
        assert cluster.idle() == {first}
        pilots.do(lambda: pilots.scheduler.want(2))
        pilots.ask(pilots.scheduler.give_back({second}))
        pilots.wait_for(others)
        wait_until(lambda: pilots.jobs("PENDING") == [], "no pilot waits for nodes that are not needed", pilots.tell)
        pilots.do(lambda: pilots.scheduler.want(100))
        pilots.wait_for(cluster.nodes)
        pilots.ask(pilots.scheduler.leave())
        assert pilots.jobs() == []
        assert cluster.idle() == set(cluster.nodes)


def test_pilots_of_a_daemon_that_died_serve_the_next_one(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site", patience_s=60) as first:
        first.wait_for(cluster.nodes)
        pids = {node: pids_of(first, node) for node in cluster.nodes}
        jobs = set(first.jobs("RUNNING"))
        with Pilots(cluster, tmp_path / "site", patience_s=60, hub=first.hub) as second:
            wait_until(lambda: second.ours() == set(cluster.nodes), "they are found again", second.tell)
            time.sleep(2)  # some looks later
            assert set(second.jobs("RUNNING")) == jobs
            assert len(second.jobs("PENDING")) <= 3 * 2 * 2, "and the stock is not doubled"
            assert all(alive(pids[node]) == pids[node] for node in cluster.nodes)


def test_a_daemon_with_another_state_leaves_the_pilots_of_this_one(cluster: Slurm, tmp_path: Path) -> None:
    class OtherPilots(Pilots):
        owner = "b"

    with Pilots(cluster, tmp_path / "site") as first:
        first.wait_for(cluster.nodes)
        running = set(first.jobs("RUNNING"))
        with OtherPilots(cluster, tmp_path / "other") as second:
            wait_until(lambda: "another state" in second.remarks(), "they are seen", second.tell)
            second.ask(second.scheduler.leave())
        assert set(first.jobs("RUNNING")) == running
        assert first.agents() == set(cluster.nodes)


def test_a_partition_that_is_not_preempted_is_refused(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site", partition="main") as pilots:
        wait_until(lambda: pilots.problem() is not None, "it ends", pilots.tell)
        assert isinstance(pilots.problem(), NotAvailable)
        assert "other jobs would wait" in str(pilots.problem())
        assert cluster.run("squeue", "-h", "--name=bftrain-test", "-t", "PD,R").stdout == ""


def test_nodes_on_which_pilots_cannot_start_are_reported(cluster: Slurm, tmp_path: Path) -> None:
    with Pilots(cluster, tmp_path / "site") as pilots:
        pilots.wait_for(cluster.nodes)
        for log in (tmp_path / "site" / "pilots").iterdir():
            log.unlink()
        (tmp_path / "site" / "pilots").rmdir()
        (tmp_path / "site" / "pilots").write_text("in the way")
        cluster.run("scancel", *pilots.jobs("RUNNING"))
        before = set(pilots.jobs("all"))
        wait_until(lambda: "as soon as they start" in pilots.remarks(), "operators are warned", str)
        assert len(set(pilots.jobs("all")) - before) < 20, "it tries ever less often"


def test_a_hole_before_a_planned_job_is_filled_by_a_pilot_that_fits(cluster: Slurm, tmp_path: Path) -> None:
    running = cluster.submit("sleep 600", "--nodes=2", "--time=31", "--exclusive")
    wait_until(lambda: len(cluster.idle()) == 2, "two nodes are busy", cluster.logs)
    cluster.submit("sleep 600", "--nodes=4", "--time=10", "--exclusive")

    def planned() -> bool:
        return "nid" in cluster.run("squeue", "-h", "-t", "PD", "-o", "%Y").stdout

    cluster.env["SLURM_TIME_FORMAT"] = "%s"
    try:
        ends = float(cluster.run("squeue", "-h", "-j", running, "-o", "%e").stdout)
        wait_until(planned, "Slurm plans the large job", cluster.logs)
        with Pilots(cluster, tmp_path / "site", plan_poll_s=0.5, lengths_s=(86400.0, 1200.0)) as pilots:
            wait_until(lambda: len(pilots.agents()) == 2, "the hole is filled", pilots.tell)
            wait_until(lambda: len(pilots.ours()) == 2, "and that is reported", pilots.tell)
            untils = [one.until_s for one in pilots.news if isinstance(one, Allowed)]
            assert all(until is not None and until <= ends for until in untils), "until when, too"
            waits = cluster.run("squeue", "-h", "-r", "-p", "pilot", "-t", "PD", "-o", "%l").stdout.split()
            assert "1-00:00:00" in waits, "long ones wait for a node without plans"
    finally:
        del cluster.env["SLURM_TIME_FORMAT"]


def test_nodes_are_expected_to_leave_where_a_reservation_begins(cluster: Slurm, tmp_path: Path) -> None:
    reserved, other = cluster.nodes[:2]
    maintenance = ("ReservationName=maint", "Users=root", "Flags=MAINT,IGNORE_JOBS", f"Nodes={reserved}")
    with Pilots(cluster, tmp_path / "site", plan_poll_s=0.5, lengths_s=(86400.0,)) as pilots:

        def left_s(node: str) -> float:
            untils = [one.until_s for one in pilots.news if isinstance(one, Allowed) and node in one.nodes]
            return (untils[-1] if untils and untils[-1] is not None else 0.0) - time.time()

        pilots.wait_for(cluster.nodes)
        wait_until(lambda: left_s(reserved) > 80_000, "its pilot may run for a day", pilots.tell)
        cluster.run("scontrol", "create", "reservation", "StartTime=now+60minutes", "Duration=30", *maintenance)
        try:
            wait_until(lambda: 3_000 < left_s(reserved) <= 3_600, "the reservation comes first", pilots.tell)
            assert left_s(other) > 80_000
        finally:
            cluster.run("scontrol", "delete", "ReservationName=maint")


def test_a_restart_of_slurmctld_is_survived(tmp_path: Path) -> None:
    with Slurm(nodes=3) as own, Pilots(own, tmp_path / "site", command_timeout_s=2.0) as pilots:
        pilots.wait_for(own.nodes)
        pids = {node: pids_of(pilots, node) for node in own.nodes}
        jobs = set(pilots.jobs("RUNNING"))
        own.stop_controller()
        wait_until(lambda: "does not answer" in pilots.remarks(), "operators are warned", pilots.remarks)
        assert pilots.ask(pilots.scheduler.look()) is None
        assert all(alive(pids[node]) == pids[node] for node in own.nodes), "agents do not mind"
        assert pilots.ours() == pilots.agents() == set(own.nodes)
        own.start_controller()
        wait_until(lambda: pilots.ask(pilots.scheduler.look()) == set(own.nodes), "it is asked again", pilots.tell)
        assert set(pilots.jobs("RUNNING")) == jobs
        own.submit("sleep 600", "--nodes=1", "--exclusive")
        wait_until(lambda: len(pilots.agents()) == 2, "and preempts as before", pilots.tell)
        assert os.getpid() not in own.processes()
