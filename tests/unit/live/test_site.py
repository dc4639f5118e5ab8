"""The settings of a site, and what is in the way of a start: reported before anything begins."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from bftrain import Availability, BadConfig, BadValue, BftrainError, NotAvailable, registry
from bftrain.config import LiveSettings
from tests.helpers.live_inside import (
    Agents,
    SchedulerFacts,
    SiteSettings,
    World,
    decided,
    in_a_loop,
    last_cluster,
    live_inside,
    load,
    meet,
    open_site,
    parts,
    site_of,
    submit,
)

SHARED = '[api]\nmode = "666"\n'


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("", "throughput"),
        ('[api]\noperators = ["ann"]\n', "throughput"),
        (SHARED, "hierarchical"),
        (f"{SHARED}[deciding]\nmax_tasks = 5\n", "hierarchical"),
        (f"{SHARED}[deciding]\nobjective = 'throughput'\n", "throughput"),
        (f"{SHARED}[deciding]\nsolver = 'fifo'\n", "throughput"),
    ],
)
def test_where_several_users_may_connect_the_objective_is_fair_if_the_site_does_not_choose(
    text: str, objective: str, tmp_path: Path
) -> None:
    (tmp_path / "site.toml").write_text(text)
    assert load(tmp_path / "site.toml").deciding.objective == objective


WHOLE = """
name = "physics"
folder = "shared"
state = "state"
launcher = "native"
launchers = ["native", "process"]
[scheduler]
name = "slurm"
partition = "spare"
[deciding]
horizon_s = 60
[agents]
listen = "0.0.0.0"
port = 4321
reach = "login1"
address = "{node}"
[api]
mode = "660"
group = "physics"
tcp = "127.0.0.1:8765"
operators = ["ann"]
[times]
drain_s = 5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    site = load(written(tmp_path, WHOLE))
    assert (site.name, site.deciding.horizon_s, site.times.drain_s, site.agents.port) == ("physics", 60.0, 5.0, 4321)
    assert (site.folder, site.state) == (str(tmp_path / "shared"), str(tmp_path / "state"))
    (pool,) = site.pools
    assert pool.table == {"partition": "spare"}
    assert site.for_scheduler(pool).name == "physics"
    assert site.socket == tmp_path / "state" / "api.sock"
    assert site.token == tmp_path / "state" / "token"
    assert site.journal == tmp_path / "state" / "live.db"
    assert site.secret == tmp_path / "shared" / "secret"
    assert site.tasks == tmp_path / "shared" / "tasks"


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    more = '[[scheduler]]\nname = "slurm"\nspool = "spool"\n[api]\nsocket = "s"\ntoken = "~/t"\n[deciding]\n'
    site = load(written(tmp_path, f'{more}objective = "mine.py:f"\nadmission = "mine.py:Turns,load=8"\n'))
    assert (site.socket, site.token) == (tmp_path / "s", Path("~/t").expanduser())
    assert site.pools[0].table == {"spool": str(tmp_path / "spool")}
    assert (site.deciding.objective, site.deciding.policy) == (f"{tmp_path}/mine.py:f", "")
    assert site.deciding.admission == f"{tmp_path}/mine.py:Turns,load=8"
    more = '[agents]\npython = "venv/python"\n[environments.a]\npython = "python3"\n[[scheduler]]\nname = "my-own"\n'
    site = load(written(tmp_path, f'{more}spool = "on"\n'))
    assert (site.agents.python, site.environments["a"].python) == (f"{tmp_path}/venv/python", "python3")
    assert site.pools[0].table == {"spool": "on"}  # of a plug-in, so perhaps no path


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[deciding]\nobjective = "a\\u0000.py:f"\n', "objective: embedded null byte"),
        ('[api]\ntoken = "~no-user/token"\n', "token: Could not determine home directory"),
        ('[scheduler]\nname = ["slurm"]\n', r":1: .*has no name"),
        (f'[api]\nsocket = "{"s" * 100}"\n', r":1: .*api: has a socket path of more than 100 bytes"),
        ('[scheduler]\nname = "local"\n[environments.a]\nsetp = "x"\n', r"site\.toml:[34]: "),
    ],
)
def test_paths_that_cannot_be_used_and_unknown_keys_are_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(BadConfig, match=error):
        load(written(tmp_path, text))


def test_nodes_have_the_kinds_that_the_file_gives_them(tmp_path: Path) -> None:
    site = load(written(tmp_path, WHOLE + '[kinds]\nv100 = ["n1", "gpu[01-02]"]\n"k 80" = "n2,n3"\n'))
    assert site.kind_of == {"n1": "v100", "gpu01": "v100", "gpu02": "v100", "n2": "k 80", "n3": "k 80"}
    assert SiteSettings().kind_of == {}
    with pytest.raises(BadValue, match=r"SiteSettings\.kinds: 'b': node 'n1' is of kind 'a' already"):
        SiteSettings(kinds={"a": "n1", "b": "n1"})


def test_without_settings_it_is_private_and_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    site = SiteSettings()
    assert site.state == site.folder == str(tmp_path / "bftrain" / "live")
    assert (site.api.mode, site.api.tcp, site.api.operators) == ("600", "", ())
    assert site.agents.listen == "127.0.0.1"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert SiteSettings().state == "/home/ann/.local/state/bftrain/live"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "is not valid TOML"),
        ("nmae = 'x'", "did you mean 'name'?"),
        ("[agents]\nlisten = ''", "listen"),
        ("[agents]\nlisten = ' x'", "listen: must be printable text without surrounding blanks"),
        ('[agents]\npython = "python\\u0000"', "python: must be"),
        ("[agents]\nreach = ' '", "reach: must be a word without blanks"),
        ('name = "a\\n"', "name: must be"),
        ("[agents]\nport = -1", "port: must be a whole number >= 0"),
        ("[agents]\nports = 1", "did you mean 'port'?"),
        ("[api]\nmode = '777'", "must be 600, 660 or 666"),
        ("[api]\ntcp = '8765'", "must be HOST:PORT"),
        ("[api]\ntcp = '127.0.0.1:99999'", "must be HOST:PORT"),
        ("[api]\ntcp = '0.0.0.0:8765'", "beyond_loopback = true"),
        ("[times]\nlook_s = 0", "> 0"),
        ("[times]\ndrain_s = -1", ">= 0"),
        ("times = 3", "times: must be an object"),
        ("[scheduler]\npartition = 'x'", "has no name"),
        ("[kinds]\nv100 = 'n[1-2]'\nk80 = ['n3', 'n2']", "kinds: 'k80': node 'n2' is of kind 'v100' already (give"),
        ("[kinds]\nv100 = 'n1'\nk80 = []", "kinds: 'k80': is given to no node (write v100 = "),
        ("[api]\nmetrics_by_user = true\nopen_metrics = true", "show user names"),
        ("[usage]\ngpus = -1", ">= 0"),
        ("[times]\nshare_s = inf", "<= 1"),
        ("[agents]\nnice = 20", "nice"),
        ("[kinds]\nk80 = 'n[1'", "kinds: 'k80': 'n[1' is not a node set"),
        ("[keep]\ntask_days = -1", "task_days"),
        ("[kinds]\n' a' = 'n1'", "is not the name of a kind"),
        ("[kinds]\nother = 'n1'", "kinds: 'other': is the kind of all nodes that [kinds] does not name (omit"),
        ("[kinds]\nk80 = '0:36'", "kinds: 'k80': '0:36' is not a node set"),
        ("kinds = 3", "kinds: must be an object"),
        ("state = '/" + "x" * 120 + "'", "set api.socket to a shorter path"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((BadConfig, BadValue)) as raised:
        load(written(tmp_path, text))
    assert words in str(raised.value)


def test_a_wrong_key_is_named_with_its_line_in_its_own_table(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"toml:4: unknown key 'port'"):
        load(written(tmp_path, "[agents]\nport = 1\n[keep]\nport = 1\n"))


def test_a_file_without_a_scheduler_does_not_train_on_the_machine_where_it_is_tried(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"names no scheduler \(add \[scheduler\]"):
        load(written(tmp_path, 'name = "physics"\n'), to_run=True)
    assert load(written(tmp_path, '[scheduler]\nname = "local"\n'), to_run=True).scheduler_name == "local"


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path / "none.toml")
    (tmp_path / "site.toml").write_bytes(b"\xff")
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path / "site.toml")


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


def test_a_state_in_which_others_can_write_is_refused(world: World, tmp_path: Path) -> None:
    home = tmp_path / "live"
    home.mkdir()
    home.chmod(0o770)
    error = refused(site_of(tmp_path, world))
    assert isinstance(error, BadConfig)
    assert (error.what, error.fix) == ("other users can write there", f"chmod go-w {home}")


def test_a_state_that_belongs_to_another_user_is_refused(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    with mock.patch.object(os, "getuid", return_value=os.getuid() + 1):
        assert refused(site).what == "belongs to another user"
    assert not (tmp_path / "live" / "live.db").exists()


def test_a_state_that_cannot_be_made_is_reported(world: World, tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file")
    error = refused(site_of(tmp_path, world))
    assert error.what.startswith("cannot be made: ")
    assert (error.where, error.fix is not None) == (str(tmp_path / "live"), True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"launcher": "none-such"}, "none-such"),
        ({"launchers": ("process",)}, "'inside' is not a launcher"),
        ({"launchers": ("inside", "fakes")}, "fakes"),
        ({"scheduler": {"name": "lsf"}}, "'lsf'"),
        ({"deciding": LiveSettings(solver="none")}, "none"),
        ({"deciding": LiveSettings(objective="nowhere.py:f")}, "nowhere.py"),
        ({"scheduler": {"name": "inside", "unit": "gpu"}}, "'inside' hands out whole nodes only"),
        ({"scheduler": {"name": "pbs", "queue": "idle", "unit": "gpu"}}, "'pbs' hands out whole nodes only"),
        ({"scheduler": {"name": "slurm-nodes", "unit": "gpu"}}, "'slurm-nodes' hands out whole nodes only"),
        ({"scheduler": {"name": "cluster", "unit": "gpu"}}, "'cluster' hands out whole nodes only"),
        ({"scheduler": {"name": "cluster"}, "agents": Agents(slots=4)}, "'slots' has no effect"),
        ({"agents": Agents(listen="203.0.113.7", port=9, preload=())}, "cannot listen on 203.0.113.7:9"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_left_open(
    changes: dict[str, Any], says: str, world: World, tmp_path: Path
) -> None:
    world.agents = "agents" in changes
    assert says in str(refused(site_of(tmp_path, world, **changes)))
    assert world.agents or not (tmp_path / "live" / "live.db").exists()
    world.agents = False
    open_site(site_of(tmp_path, world), lambda _: None).close()


def test_a_scheduler_that_is_not_here_is_reported(world: World, tmp_path: Path) -> None:
    world.available_now = Availability(ok=False, reason="no sbatch here", fix="install it")
    error = refused(site_of(tmp_path, world))
    assert (error.what, error.where, error.fix) == ("no sbatch here", "scheduler 'inside'", "install it")


def test_a_scheduler_plug_in_that_returns_something_else_is_rejected_with_the_fix(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = registry.BUILT_IN
    monkeypatch.setitem(found, "scheduler", {**found["scheduler"], "odd": "operator:is_"})
    site = site_of(tmp_path, world, scheduler={"name": "odd"})
    with pytest.raises(BftrainError, match=r"is not a bftrain\.live\.schedulers\.base\.Scheduler") as caught:
        open_site(site, lambda _: None)
    assert caught.value.fix == "derive it from Scheduler, or return PilotJobs(...): docs/how-to/parts.md"


def test_a_file_that_is_no_journal_is_reported(world: World, tmp_path: Path) -> None:
    site = site_of(tmp_path, world)
    open_site(site, lambda _: None).close()
    for beside in site.journal.parent.glob("live.db-*"):
        beside.unlink()
    for content, says in ((b"no journal at all" * 100, "not a journal"), (b"", "empty")):  # as a full disk may leave
        site.journal.write_bytes(content)
        assert says in refused(site).what
    site.journal.unlink()
    open_site(site, lambda _: None).close()


@in_a_loop
async def test_the_journal_has_the_name_of_the_cluster_and_another_one_is_remarked(tmp_path: Path) -> None:
    remarked, known = [], []
    for cluster in ("", "physics", "", "chemistry"):
        world = World()
        world.known = SchedulerFacts(cluster=cluster)
        async with live_inside(tmp_path, world) as (daemon, _, _, _):
            remarked.append([one.text for one in daemon.notices.latest if "cluster" in one.text])
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
    async with live_inside(tmp_path, world, scheduler={"name": "inside"}, deciding=LiveSettings(max_tasks=1)) as inside:
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
async def test_agents_of_a_run_that_listens_everywhere_get_the_name_of_its_machine(tmp_path: Path) -> None:
    agents = Agents(listen="0.0.0.0", preload=())  # noqa: S104 - on any interface, for a moment
    async with live_inside(tmp_path, World(agents=True), agents=agents) as (daemon, _, _, _):
        words = daemon.opened.agent_order.argv
        assert words[words.index("--manager") + 1].rpartition(":")[0] == socket.gethostname()


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
    async with live_inside(tmp_path, world, deciding=LiveSettings(max_tasks=1)) as (daemon, service, _, _):
        await decided(daemon)
        assert len(daemon.harvester.held) == 1
        assert replace(daemon.site.deciding) == LiveSettings(max_tasks=1)
