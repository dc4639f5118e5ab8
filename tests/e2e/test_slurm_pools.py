"""Two partitions of a real Slurm side by side, as two pools of one live run: limits and kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bftrain import NotAvailable, registry
from tests.helpers.pilots import QUICK, SchedulerPool, SchedulerPools, SchedulerRunner, Site, end_all, pools_of
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm

LOW = ("PriorityTier=1", "PreemptMode=CANCEL", "GraceTime=0", "MaxTime=INFINITE", "State=UP")


@pytest.fixture
def cluster(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """Yield the Slurm of this process with two partitions more, left and right, of half of its nodes each."""
    end_all(slurm_cluster)
    names = slurm_cluster.nodes
    halves = {"left": names[: len(names) // 2], "right": names[len(names) // 2 :]}
    for name, nodes in halves.items():
        slurm_cluster.run("scontrol", "create", f"PartitionName={name}", f"Nodes={','.join(nodes)}", *LOW)
    yield slurm_cluster
    end_all(slurm_cluster)
    for name in halves:
        slurm_cluster.run("scontrol", "delete", f"PartitionName={name}")


def pool(name: str, site: Site, **more: object) -> SchedulerPool:
    (settings,) = pools_of({"name": "slurm", "pool": name, **QUICK, "partition": name, **more})
    own = Site(name=f"{site.name}-{name}", folder=site.folder)
    return SchedulerPool(settings, registry.load("scheduler", "slurm")(settings.table, own))


def test_two_partitions_give_nodes_within_their_limits(cluster: Slurm, tmp_path: Path) -> None:
    def make(_: Mapping[str, object], site: Site) -> SchedulerPools:
        return SchedulerPools((pool("left", site, max_nodes=1, kind="v100"), pool("right", site)))

    left, right = (set(cluster.nodes[:2]), set(cluster.nodes[2:]))
    with SchedulerRunner(make, {}, tmp_path / "site", cluster.env) as keeper:
        pools = keeper.scheduler
        assert isinstance(pools, SchedulerPools)
        keeper.do(lambda: pools.want(4))
        wait_until(lambda: right < keeper.ours() and len(keeper.ours() & left) == 1, "all of right, one of left")
        keeper.wait_for(keeper.ours())
        jobs = set(cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%P %j").stdout.split("\n"))
        assert jobs - {""} == {"left bftrain-test-left", "right bftrain-test-right"}
        assert pools.facts().node_kinds == dict.fromkeys(left, "v100")
        assert pools.facts().cluster == "test"
        keeper.do(lambda: pools.want(1))
        keeper.ask(pools.give_back(right))
        keeper.wait_for(keeper.ours() & left, "right is left")
        wait_until(
            lambda: not cluster.run("squeue", "-h", "-p", "right", "-o", "%i").stdout.strip(), "none of right waits"
        )
        keeper.ask(pools.leave())
    assert keeper.remarks() == ""


def test_a_pool_whose_partition_is_not_there_is_named(cluster: Slurm, tmp_path: Path) -> None:
    def make(_: Mapping[str, object], site: Site) -> SchedulerPools:
        return SchedulerPools((pool("left", site), pool("gone", site)))

    with (
        SchedulerRunner(make, {}, tmp_path / "site", cluster.env) as keeper,
        pytest.raises(NotAvailable, match=r"pool 'gone': partition 'gone': Slurm has no such partition"),
    ):
        keeper.ask(keeper.scheduler.check(keeper.order))
