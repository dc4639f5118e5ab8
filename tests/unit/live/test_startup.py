"""What is in the way of a live run is said before anything is begun, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from bftrain import Availability, BadConfig, BadInput, BftrainError, NotAvailable, Settings, UnknownName
from bftrain.live.nodes import node_manager
from bftrain.live.run import startup
from bftrain.live.tasks.task_store import last_cluster
from tests.helpers.live_inside import (
    Agents,
    SiteSettings,
    World,
    decided,
    in_a_loop,
    live_inside,
    meet,
    open_site,
    parts,
    site_of,
    submit,
    until,
)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    meet(found)
    with parts():
        yield found


def refused(site: SiteSettings) -> BftrainError:
    with pytest.raises(BftrainError) as error:
        open_site(site, lambda _: None)
    return error.value


@pytest.mark.parametrize(
    "scheduler", [{"name": "inside"}, {"name": "pbs", "queue": "idle"}, {"name": "local"}, {"name": "slurm-nodes"}]
)
def test_single_gpus_are_refused_where_only_whole_nodes_can_be_had(
    scheduler: dict[str, str], world: World, tmp_path: Path
) -> None:
    error = refused(site_of(tmp_path, world, scheduler={**scheduler, "unit": "gpu"}))
    assert f"scheduler '{scheduler['name']}' hands out whole nodes only" in error.what
    assert 'only name = "slurm"' in str(error.fix)
    assert not (tmp_path / "live" / "live.db").exists()


def test_folders_are_made_and_are_ours_alone(world: World, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        opened = open_site(site_of(tmp_path, world), lambda _: None)
    finally:
        os.umask(before)
    opened.close()
    for path in (tmp_path / "live", tmp_path / "live" / "tasks"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for name in ("live.db", "lock"):
        assert stat.S_IMODE((tmp_path / "live" / name).stat().st_mode) == 0o600


def test_only_one_runs_on_the_same_state(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    first = open_site(site, lambda _: None)
    error = refused(site)
    assert isinstance(error, NotAvailable)
    assert (error.what, error.where) == ("another live run uses it", str(tmp_path / "live"))
    first.close()
    open_site(site, lambda _: None).close()


def test_only_one_runs_on_the_same_folder(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    other = replace(site, state=str(tmp_path / "other"))
    first = open_site(site, lambda _: None)
    error = refused(other)
    assert isinstance(error, NotAvailable)
    assert (error.what, error.where) == ("another live run uses it", site.folder)
    assert "a folder of its own" in str(error.fix)
    first.close()
    open_site(other, lambda _: None).close()


def test_a_state_on_a_file_system_without_locks_is_not_said_to_be_in_use(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    error = refused(site_of(tmp_path, world))
    assert (error.what, error.fix) == ("cannot be locked: No locks available", "put state on a disk of this machine")


def test_a_state_in_which_others_can_write_is_refused(world: World, tmp_path: Path) -> None:
    home = tmp_path / "live"
    home.mkdir()
    home.chmod(0o770)
    error = refused(site_of(tmp_path, world))
    assert isinstance(error, BadConfig)
    assert (error.what, error.fix) == ("others can write there", f"chmod go-w {home}")


def test_a_state_that_belongs_to_another_user_is_refused(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    with mock.patch.object(startup.os, "getuid", return_value=os.getuid() + 1):
        assert refused(site).what == "belongs to another user"
    assert not (tmp_path / "live" / "live.db").exists()


def test_a_state_that_cannot_be_made_is_reported(world: World, tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file")
    error = refused(site_of(tmp_path, world))
    assert error.what.startswith("cannot be made: ")
    assert (error.where, error.fix is not None) == (str(tmp_path / "live"), True)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"launcher": "none-such"}, UnknownName, "none-such"),
        ({"launchers": ("fake",)}, BadInput, "'inside' is none of the launchers that tasks may choose"),
        ({"launchers": ("inside", "fakes")}, UnknownName, "fakes"),
        ({"scheduler": {"name": "lsf"}}, UnknownName, "no scheduler is called 'lsf' (known: flux, inside, local, pbs"),
        ({"deciding": Settings(solver="none")}, UnknownName, "none"),
        ({"deciding": Settings(objective="nowhere.py:f")}, BftrainError, "nowhere.py"),
    ],
)
def test_a_mistake_leaves_no_journal_behind(
    changes: dict[str, Any], kind: type[BftrainError], says: str, world: World, tmp_path: Path
) -> None:
    error = refused(site_of(tmp_path, world, **changes))
    assert isinstance(error, kind)
    assert says in str(error)
    assert not (tmp_path / "live" / "live.db").exists()
    open_site(site_of(tmp_path, world), lambda _: None).close()


def test_a_scheduler_that_is_not_here_is_reported(world: World, tmp_path: Path) -> None:
    world.available_now = Availability(ok=False, reason="no sbatch here", fix="install it")
    error = refused(site_of(tmp_path, world))
    assert (error.what, error.where, error.fix) == ("no sbatch here", "scheduler 'inside'", "install it")
    open_site_later = site_of(tmp_path, world)
    world.available_now = Availability(ok=True)
    open_site(open_site_later, lambda _: None).close()


def test_a_journal_that_is_none_is_reported_and_can_be_repaired(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    open_site(site, lambda _: None).close()
    site.journal.write_bytes(b"no journal at all" * 100)
    for beside in site.journal.parent.glob("live.db-*"):
        beside.unlink()
    assert "is not a journal" in refused(site).what
    site.journal.write_bytes(b"")  # as a full disk may leave a file that was copied
    error = refused(site)
    assert (error.what, error.fix) == (
        "is empty, and no journal",
        "put a copy back that has its tasks, or remove it to begin without any",
    )
    site.journal.unlink()
    open_site(site, lambda _: None).close()


@in_a_loop
async def test_the_journal_has_the_name_of_the_cluster_and_another_one_is_remarked(tmp_path: Path) -> None:
    remarked, known = [], []
    for cluster in ("", "physics", "", "chemistry"):
        world = World()
        world.cluster = cluster
        async with live_inside(tmp_path, world) as (daemon, _, _, _):
            remarked.append([one.text for one in daemon.remarks.latest if "cluster" in one.text])
            known.append(last_cluster(daemon.opened.journal))
    assert known == ["", "physics", "physics", "chemistry"]
    assert remarked == [[], [], [], ["this is cluster 'chemistry'; the journal was written on cluster 'physics'"]]


@in_a_loop
async def test_a_state_serves_one_site_and_one_scheduler(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (_, service, _, _):
        await submit(service, "a")
    for changes, what in (
        ({"scheduler": {"name": "local"}}, "belongs to scheduler 'inside', and these settings are for 'local'"),
        ({"name": "physics"}, "belongs to site 'bftrain', and these settings are for 'physics'"),
    ):
        with parts():
            error = refused(site_of(tmp_path, world, **changes))
        assert isinstance(error, BadConfig)
        assert (error.what, error.where) == (what, str(tmp_path / "live" / "live.db"))
        assert "a state of its own" in str(error.fix)
    async with live_inside(tmp_path, world, scheduler={"name": "inside"}, deciding=Settings(max_tasks=1)) as inside:
        assert [record.name for record in inside[0].task_store.unfinished] == ["a"], "other settings may change"


@in_a_loop
async def test_agents_find_us_at_the_same_port_after_a_restart(tmp_path: Path) -> None:
    world = World(agents=True)
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.opened.hub is not None
        port = daemon.opened.hub.address[1]
        words = daemon.opened.agent_order.argv
        assert words[words.index("--manager") + 1] == f"127.0.0.1:{port}"
        assert words[words.index("--secret") + 1] == f"{tmp_path}/live/secret"
        assert words[words.index("--node") + 1] == "{node}"
        secret = (tmp_path / "live" / "secret").read_bytes()
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.opened.hub is not None
        assert daemon.opened.hub.address[1] == port
        assert (tmp_path / "live" / "secret").read_bytes() == secret
        other = site_of(tmp_path / "other", world, agents=Agents(used=True, port=port, preload=()))
        with pytest.raises(NotAvailable, match="cannot listen on") as error:
            open_site(other, lambda _: None)
        assert error.value.where == "[agents]"


@in_a_loop
async def test_a_port_that_another_process_took_meanwhile_is_given_up(tmp_path: Path) -> None:
    world = World(agents=True)
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.opened.hub is not None
        port = daemon.opened.hub.address[1]
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    async with live_inside(tmp_path, world) as (daemon, _, _, _):
        assert daemon.opened.hub is not None
        assert daemon.opened.hub.address[1] != port
    taken.close()


def test_an_address_where_we_cannot_listen_is_reported(world: World, tmp_path: Path) -> None:
    world.agents = True
    site = site_of(tmp_path, world, agents=Agents(used=True, listen="203.0.113.7", port=9, preload=()))
    assert "cannot listen on 203.0.113.7:9" in refused(site).what


def test_a_host_that_does_not_exist_is_reported(world: World, tmp_path: Path) -> None:
    world.agents = True
    site = site_of(tmp_path, world, agents=Agents(used=True, reach="no-such-host.invalid", preload=()))
    with mock.patch.object(socket, "getaddrinfo", side_effect=socket.gaierror(socket.EAI_NONAME, "unknown")):
        error = refused(site)
    assert isinstance(error, NotAvailable)
    assert (error.what, error.where) == ("no host is called 'no-such-host.invalid'", "[agents] reach")


@in_a_loop
async def test_a_site_that_can_never_work_ends_at_once_and_begins_nothing(tmp_path: Path) -> None:
    world = World()

    async def check(_: object) -> None:
        raise NotAvailable("Slurm has no such partition", where="partition 'nix'")

    async with live_inside(tmp_path, world, begin=False) as (daemon, _, _, _):
        with (
            mock.patch.object(World, "check", staticmethod(check), create=True),
            pytest.raises(NotAvailable, match="no such partition"),
        ):
            await daemon.begin()
        assert not daemon.ready.is_set()
        assert world.log == []
        assert daemon.task_store.due() == []


@in_a_loop
async def test_a_scheduler_that_does_not_answer_at_the_start_is_remarked_while_it_is_waited_for(tmp_path: Path) -> None:
    world, answers = World(), asyncio.Event()

    async def check(_: object) -> None:
        await answers.wait()

    async with live_inside(tmp_path, world, begin=False) as (daemon, _, _, _):
        with (
            mock.patch.object(World, "check", staticmethod(check), create=True),
            mock.patch.object(node_manager, "_SLOW_S", 0.0),
        ):
            began = asyncio.create_task(daemon.begin())
            await until(lambda: "has not answered yet" in "".join(one.text for one in daemon.remarks.latest))
            answers.set()
            await began


def test_a_secret_that_others_can_read_is_refused(world: World, tmp_path: Path) -> None:
    world.agents = True
    site = site_of(tmp_path, world)
    (tmp_path / "live").mkdir(mode=0o700)
    site.secret.write_bytes(b"x" * 64)
    site.secret.chmod(0o644)
    error = refused(site)
    assert error.where == str(site.secret)


@in_a_loop
async def test_settings_that_change_are_the_ones_from_then_on(tmp_path: Path) -> None:
    world = World()
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        world.lend("n1", "n2")
        await submit(service, "a", 1, 1)
        await submit(service, "b", 1, 1)
        await decided(daemon)
        assert set(world.held) == {"a", "b"}
    async with live_inside(tmp_path, world, deciding=Settings(max_tasks=1)) as (daemon, service, _, _):
        await decided(daemon)
        assert len(daemon.harvester.held) == 1
        assert replace(daemon.site.deciding) == Settings(max_tasks=1)
