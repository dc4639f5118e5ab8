"""Nodes that the scheduler's administrators drain while a pilot of ours holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.helpers.live_inside import World, decided, in_a_loop, live_inside, submit, until
from tests.helpers.pilot_stage import PilotStage, play
from tests.helpers.schedulers import Command, PilotState, Run, SlurmSettings, slurm


def test_slurm_tells_which_of_our_nodes_are_to_be_empty_and_why() -> None:
    asked = []

    async def run(command: Command) -> str:
        asked.append(command.argv)
        return (
            "n1|draining|new disk | on monday\nn1|draining|new disk | on monday\nn2|allocated|none\n"
            "n3|mixed@|Reboot ASAP\n"
            "n4|allocated$|none\nn5|draining@|none\nn6|idle~|none\nn7|maint|none\nn8|failing*|fan\nn9|planned|\n\n"
        )

    found = asyncio.run(slurm.Slurm(SlurmSettings(partition="pilot")).draining(run, ["n1", "n2", "n3"]))
    assert found == {
        "n1": "draining, new disk | on monday",
        "n3": "mixed@, Reboot ASAP",
        "n4": "allocated$",
        "n5": "draining@",
        "n7": "maint",
        "n8": "failing*, fan",
    }
    assert [argv[0] for argv in asked] == ["sinfo"]
    assert "--nodes=n[1-3]" in asked[0], "the others are none of our business"


def test_a_drained_node_is_to_be_left_and_gets_no_pilot_until_it_is_resumed(tmp_path: Path) -> None:
    drained: dict[str, str] = {}
    asked: list[Sequence[str]] = []

    async def draining(_: Run, nodes: Sequence[str]) -> Mapping[str, str]:
        asked.append(nodes)
        return {node: why for node, why in drained.items() if node in nodes}

    async def test() -> None:
        stage = PilotStage(tmp_path, "n1", "n2", "n3", plan_poll_s=0.01)
        stage.toy.draining = draining  # type: ignore[attr-defined]  # of a scheduler that tells
        async with stage:
            await stage.until(lambda: len(stage.idle_nodes()) == 3, "all are ours")
            drained.update(n1="draining, disk", n2="draining, disk", n9="drained, not ours")
            await stage.until(lambda: stage.scheduler.to_leave() == {"n1", "n2"}, "they are to be left")
            assert stage.remarks() == "toy drains n[1-2] (draining, disk): tasks leave, and it is given back"
            await stage.scheduler.give_back({"n1", "n2"})
            await stage.until(lambda: set(stage.idle_nodes()) == {"n3"}, "they are given back")
            await stage.until(lambda: stage.toy.count(PilotState.WAITING) >= 2, "the stock is there again")
            assert set(stage.idle_nodes()) == {"n3"}, "none starts there"
            drained.clear()
            await stage.until(lambda: len(stage.idle_nodes()) == 3, "they are in service again")
            assert stage.scheduler.to_leave() == set()
            assert stage.remarks().count("drains") == 1
        assert all("n9" not in nodes for nodes in asked)

    play(test())


@in_a_loop
async def test_tasks_shrink_off_a_drained_node_before_it_is_given_back(tmp_path: Path) -> None:
    world, drained = World(vacates=False), set[str]()
    world.to_leave = lambda: frozenset(drained)  # type: ignore[attr-defined]  # as of pilots
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        await submit(service, "a", 1, 2)
        world.lend("n1", "n2")
        await decided(daemon)
        drained.add("n1")
        daemon.node_manager.leave_drained()
        order = world.orders()[-1]
        assert (order["action"], order["nodes"]) == ("shrink", ("n1",)), "it is not killed"
        assert world.asked("give_back") == []
        world.tell("a", "vacated", nodes=["n1"])
        await until(lambda: world.asked("give_back"))
        assert world.asked("give_back") == [("n1",)]
