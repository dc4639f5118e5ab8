"""Several pools side by side: what each is asked for, their kinds, and one that breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, BadValue, NotAvailable, Run, SpeedCurve, Submission, registry
from bftrain.live.schedulers.pools import SchedulerPool, SchedulerPools
from tests.helpers.live_inside import (
    Allowed,
    Remark,
    Taken,
    World,
    decided,
    in_a_loop,
    live_inside,
    load,
    ourselves,
    until,
)
from tests.helpers.schedulers import AgentOrder, PoolSettings, Site

AGENT = AgentOrder(argv=("agent",))
SITE = """
[[scheduler]]
name = "slurm"
partition = "spare"
[[scheduler]]
name = "slurm"
pool = "gpu"
partition = "gpu"
kind = "v100"
max_nodes = 4
"""


def pool(world: World, **settings: Any) -> SchedulerPool:  # noqa: ANN401 - any setting
    return SchedulerPool(PoolSettings(name="inside", **settings), world)


def wants(world: World) -> int:
    return int(world.asked("want")[-1][0])


async def running(*pools: SchedulerPool) -> tuple[SchedulerPools, list[Any], asyncio.Task[None]]:
    found, news = SchedulerPools(pools), list[Any]()
    task = asyncio.create_task(found.run(news.append, AGENT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return found, news, task


def test_a_list_of_schedulers_is_read_and_each_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    site = load(tmp_path / "site.toml")
    first, second = site.pools
    assert (first.label, first.table, second.label) == ("slurm", {"partition": "spare"}, "gpu")
    assert second.table == {"partition": "gpu", "max_nodes": 4}
    assert [site.for_scheduler(one).name for one in site.pools] == ["bftrain", "bftrain-gpu"]
    assert site.scheduler_name == "slurm"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[scheduler]]\nname = "slurm"\n[[scheduler]]\nname = "pbs"\n',
            "number 2: there is another one without a name",
        ),
        (
            '[[scheduler]]\nname = "slurm"\npool = "a"\n[[scheduler]]\nname = "pbs"\npool = "a"\n',
            "another pool called 'a'",
        ),
        ('[[scheduler]]\npartition = "a"\n', "number 1: has no name"),
        ('[scheduler]\nname = "slurm"\nwhen = "nights"\n', "'when' was removed .*bftrain live pause"),
        ('[[scheduler]]\nname = "slurm"\ntimezone = "UTC"\n', "number 1: 'timezone' was removed"),
        ('[scheduler]\nname = "slurm"\npool = "a b"\n', "must be up to 40 letters"),
        ("scheduler = []\n", "names no scheduler"),
    ],
)
def test_pools_that_cannot_be_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises((BadConfig, BadValue), match=words):
        load(tmp_path / "site.toml")


@pytest.mark.parametrize(
    ("key", "words"), [("untis", "did you mean 'unit'"), ("zzz", "kind, loop_s, name, nodes, pool, ")]
)
def test_an_unknown_key_of_a_scheduler_is_answered_with_the_keys_of_pools_too(key: str, words: str) -> None:
    with pytest.raises(BadConfig, match=rf"\[scheduler\]: unknown key '{key}'.*{words}"):
        registry.load("scheduler", "local")({key: 1}, Site(name="x", folder=Path()))


@in_a_loop
async def test_each_is_asked_for_what_the_others_do_not_have() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left), pool(right, pool="right"))
    pools.want(5, frozenset({"bad"}))
    assert (wants(left), wants(right)) == (5, 5)
    left.lend("n1", "n2", "n3")
    assert (wants(left), wants(right)) == (5, 2)
    right.lend("n3")  # a node that both have, now by the other's word
    assert (wants(left), wants(right)) == (4, 3)
    left.take("n1", "n2", "n3")
    assert (wants(left), wants(right)) == (4, 5)
    assert left.asked("want")[-1][1] == {"bad"}
    task.cancel()


@in_a_loop
async def test_a_pool_with_a_kind_is_asked_for_what_tasks_can_use_of_it() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left, kind="v100"), pool(right, pool="right", kind="k80"))
    pools.want_kinds({"v100": 2, "k80": 0})
    pools.want(2)
    assert (wants(left), wants(right)) == (2, 0)
    right_nodes: Any = right
    right_nodes.nodes = frozenset({"n8", "n9"})
    assert pools.node_kinds == {"n8": "k80", "n9": "k80"}
    task.cancel()


@in_a_loop
async def test_nodes_that_a_scheduler_drains_are_left() -> None:
    left: Any = World()
    left.to_leave = lambda: frozenset({"n1"})
    assert SchedulerPools((pool(left), pool(World(), pool="right"))).to_leave() == {"n1"}


@in_a_loop
async def test_nodes_are_given_back_where_they_came_from() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left), pool(right, pool="right"))
    left.lend("n1")
    right.lend("n2")
    await pools.give_back(("n1",))
    assert (left.asked("give_back"), right.asked("give_back")) == ([("n1",)], [])
    await pools.give_back(("n7",))  # that no pool reported yet
    assert right.asked("give_back") == [("n7",)]
    pools.noticed("n2")
    assert (left.asked("noticed"), right.asked("noticed")) == ([], ["n2"])
    pools.hint()
    right.breaks["leave"] = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        await pools.leave()
    assert len(left.asked("leave")) == len(left.asked("hint")) == 1
    task.cancel()


@in_a_loop
async def test_one_that_breaks_is_run_again_and_disturbs_no_other() -> None:
    left, right = World(), World()
    right.breaks["run"] = RuntimeError("lost my way")
    pools, news, task = await running(pool(left), pool(right, pool="right"))
    left.lend("n1")
    assert Remark(text="pool 'right': it broke: RuntimeError: lost my way") in news
    del right.breaks["run"]
    await until(lambda: right.listening, "it listens again")
    right.lend("n2")
    left.take("n1")
    assert news[-2:] == [Allowed(nodes=("n2",)), Taken(nodes=("n1",))]
    assert pools.name == "inside"
    task.cancel()


@in_a_loop
async def test_of_one_that_cannot_be_asked_its_last_nodes_count() -> None:
    left, right = World(), World()
    pools = SchedulerPools((pool(left), pool(right, pool="right")))
    left.allowed, right.allowed = {"n1"}, {"n2"}
    right.look = _unknown  # type: ignore[method-assign]  # it does not answer
    assert await pools.look() is None
    del right.look
    assert await pools.look() == {"n1", "n2"}
    right.look = _unknown  # type: ignore[method-assign]  # as above
    left.allowed = {"n3"}
    assert await pools.look() == {"n3", "n2"}


async def _unknown() -> frozenset[str] | None:
    return None


@in_a_loop
async def test_one_that_can_never_work_is_named() -> None:
    async def check(_: AgentOrder) -> None:
        raise NotAvailable("Slurm has no such partition", where="partition 'gpu'", fix="see sinfo")

    right: Any = World()
    right.check = check
    with pytest.raises(NotAvailable, match="pool 'right': partition 'gpu': Slurm has no such partition"):
        await SchedulerPools((pool(World()), pool(right, pool="right"))).check(AGENT)


@in_a_loop
async def test_nodes_of_a_pool_have_its_kind_also_while_its_scheduler_does_not_answer(tmp_path: Path) -> None:
    world: Any = World()
    world.nodes = frozenset({"n1", "n2"})
    settings: dict[str, Any] = {"scheduler": {"name": "inside", "kind": "v100"}}
    curves = {"v100": SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))}
    given = Submission(run=Run(argv=("train.py",)), max_nodes=2, curves=curves, name="a")
    async with live_inside(tmp_path, world, **settings) as (daemon, service, _, _):
        await service.submit(ourselves(), given)
        world.lend("n1")
        await decided(daemon)
        assert world.held["a"] == {"n1"}
        assert service.nodes(ourselves())[0].kind == "v100"
    world.nodes = frozenset()
    async with live_inside(tmp_path, world, **settings) as (daemon, service, _, _):
        await decided(daemon)
        assert service.nodes(ourselves())[0].kind == "v100"
        assert world.held["a"] == {"n1"}
