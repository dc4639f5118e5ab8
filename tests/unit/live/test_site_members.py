"""A site whose nodes are shared by live runs of its users, and a member that takes its share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, BadValue, NotAllowed, NotAvailable, NotNow
from bftrain.live.model.harvesting import Pause
from bftrain.live.model.member_views import MemberReport, MemberShare
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import (
    Api,
    LiveDaemon,
    SiteSettings,
    World,
    decided,
    in_a_loop,
    live_inside,
    submit,
    until,
)


class Idle(World):
    """A world that says how many nodes are idle."""

    nodes_idle = 4

    async def idle(self) -> int:
        return self.nodes_idle


OPEN: dict[str, Any] = {"members": True, "api": Api(mode="666")}


@in_a_loop
async def test_a_site_shares_its_nodes_and_runs_no_task_of_users_as_itself(tmp_path: Path) -> None:
    async with live_inside(tmp_path, Idle(), **OPEN) as (_, service, _, _):
        ask = service.members.report
        assert (await ask(ANN, MemberReport(wanted=9, held=0))).nodes == 4
        assert (await ask(BOB, MemberReport(wanted=9, held=0))).nodes == 2
        assert (await ask(ANN, MemberReport(wanted=9, held=0))).nodes == 2
        assert [one.user for one in service.members.views(ANN)] == ["ann"]
        assert [one.user for one in service.members.views(CHIEF)] == ["ann", "bob", "root"]
        with pytest.raises(NotAllowed, match="under their own accounts"):
            await service.submit(ANN, submission())
        await service.submit(CHIEF, submission())
        await service.drain(CHIEF, ["n7"])
        assert (await ask(ANN, MemberReport(wanted=9, held=0))).drained == ("n7",)
        await service.pause_harvesting(CHIEF, Pause())
        assert (await ask(ANN, MemberReport(wanted=9, held=2))).nodes == 0


@in_a_loop
async def test_a_members_settings_are_the_sites_without_what_is_private(tmp_path: Path) -> None:
    async with live_inside(tmp_path, Idle(), scheduler={"name": "inside", "spool": "/run/x"}, **OPEN) as inside:
        found = inside.service.members.settings()
        assert found["scheduler"] == [{"name": "inside"}]
        assert found["agents"].keys().isdisjoint({"port", "python"})
        assert found.keys().isdisjoint({"api", "state", "folder", "deciding"})
    async with live_inside(tmp_path / "other", Idle()) as inside:
        with pytest.raises(NotNow, match="takes no members"):
            inside.service.members.settings()


@in_a_loop
async def test_a_scheduler_that_does_not_say_what_is_idle_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="does not say which nodes are idle"):
        async with live_inside(tmp_path, World(), **OPEN):
            pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": True}, "cannot reach the socket"),
        ({"members": True, "join": "/x", "api": Api(mode="666")}, "cannot be said together with join"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        SiteSettings(**changes)


def held(daemon: LiveDaemon) -> dict[str, int]:
    return {task: len(nodes) for task, nodes in daemon.harvester.held.items()}


@in_a_loop
async def test_a_member_takes_its_share_and_gives_back_what_is_above_it_unused_nodes_first(tmp_path: Path) -> None:
    share: list[MemberShare | NotAvailable] = [MemberShare(nodes=3)]
    reports: list[MemberReport] = []

    async def ask(report: MemberReport) -> MemberShare:
        reports.append(report)
        if isinstance(share[0], NotAvailable):
            raise share[0]
        return share[0]

    world = World(agents_suffice=True)
    async with live_inside(tmp_path, world, ask_site=ask) as (daemon, service, _, _):

        async def reported(held: int) -> None:
            count = len(reports)
            await submit(service, f"more{count}", 2, 2)  # a change of demand is reported soon
            await until(lambda: any(one.held == held for one in reports[count:]))
            await decided(daemon)

        await submit(service, "a", 2, 2)
        await until(lambda: MemberReport(wanted=2, fewest=2, held=0) in reports)
        await until(lambda: world.asked("want")[-1][0] == 2)
        world.lend("n1", "n2", "n3", "n4")
        await decided(daemon)
        await service.cancel(CHIEF, "a")
        await submit(service, "b", 1, 1)
        await decided(daemon)
        (used,) = daemon.harvester.held["b"]
        assert service.status().share == 3
        share[0] = MemberShare(nodes=2, drained=("n4",) if used != "n4" else ("n3",))
        await reported(4)
        daemon.node_manager.leave_drained()
        await decided(daemon)
        given = {node for nodes in world.asked("give_back") for node in nodes}
        assert used not in given
        assert given > {*share[0].drained}
        assert len(given) == 2
        world.take(*given)
        share[0] = NotAvailable("it does not answer")
        await reported(2)
        daemon.node_manager.leave_drained()
        assert world.asked("want")[-1][0] == 2
        assert daemon.harvester.pool_size == 2
        assert any("gives no share" in one.text for one in daemon.remarks.latest)
