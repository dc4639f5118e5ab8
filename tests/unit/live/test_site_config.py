"""The settings of a site: what is taken, what is refused and how it is said, and where everything lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadConfig, BadValue
from bftrain.live.model.site_config import default_state
from bftrain.live.schedulers import port
from tests.helpers.live_inside import Api, SiteSettings, load

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
    assert site.for_scheduler(pool) == port.Site(name="physics", folder=tmp_path / "shared")
    assert site.socket == tmp_path / "state" / "api.sock"
    assert site.token == tmp_path / "state" / "token"
    assert site.journal == tmp_path / "state" / "live.db"
    assert site.secret == tmp_path / "shared" / "secret"
    assert site.tasks == tmp_path / "shared" / "tasks"


def test_nodes_have_the_kinds_that_the_file_gives_them(tmp_path: Path) -> None:
    site = load(written(tmp_path, WHOLE + '[kinds]\nv100 = ["n1", "gpu[01-02]"]\n"k 80" = "n2,n3"\n'))
    assert site.kind_of == {"n1": "v100", "gpu01": "v100", "gpu02": "v100", "n2": "k 80", "n3": "k 80"}
    assert SiteSettings().kind_of == {}
    with pytest.raises(BadValue, match=r"SiteSettings\.kinds: 'b': node 'n1' is of kind 'a' already"):
        SiteSettings(kinds={"a": "n1", "b": "n1"})


def test_without_settings_it_is_private_and_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    site = SiteSettings()
    assert site.state == site.folder == str(tmp_path / "bftrain" / "live") == str(default_state())
    assert (site.api.mode, site.api.tcp, site.api.operators) == ("600", "", ())
    assert site.agents.listen == "127.0.0.1"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert str(default_state()) == "/home/ann/.local/state/bftrain/live"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "is not valid TOML"),
        ("nmae = 'x'", "did you mean 'name'?"),
        ("[agents]\nlisten = ''", "listen"),
        ("[agents]\nport = -1", "at least 0"),
        ("[agents]\nports = 1", "did you mean 'port'?"),
        ("[api]\nmode = '777'", "must be 600, 660 or 666"),
        ("[api]\ntcp = '8765'", "must be HOST:PORT"),
        ("[api]\ntcp = '127.0.0.1:99999'", "must be HOST:PORT"),
        ("[api]\ntcp = '0.0.0.0:8765'", "beyond_loopback = true"),
        ("[times]\nlook_s = 0", "above 0"),
        ("[times]\ndrain_s = -1", "at least 0"),
        ("times = 3", "begin it with [times]"),
        ("[scheduler]\npartition = 'x'", "has no name"),
        ("[kinds]\nv100 = 'n[1-2]'\nk80 = ['n3', 'n2']", ":3: kinds.k80: node 'n2' is of kind 'v100' already (give"),
        ("[kinds]\nv100 = 'n1'\nk80 = []", ":3: kinds.k80: is given to no node (write v100 = "),
        ("[kinds]\nk80 = ''", ":2: kinds.k80: is given to no node"),
        ("[kinds]\nk80 = 'n[1'", ":2: kinds.k80: 'n[1' is not a node set"),
        ("[kinds]\nk80 = 3", ":2: kinds.k80: must be a node set, or a list of such, not 3"),
        ("[kinds]\n' a' = 'n1'", "is no name of a kind"),
        ("[kinds]\nother = 'n1'", ":2: kinds.other: is the kind of all nodes that [kinds] does not name (leave"),
        ("[kinds]\nk80 = '0:36'", ":2: kinds.k80: '0:36' is not a node set"),
        ("kinds = 3", "begin it with [kinds]"),
        ("state = '/" + "x" * 120 + "'", "set api.socket to a shorter path"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((BadConfig, BadValue)) as raised:
        load(written(tmp_path, text))
    assert words in str(raised.value)


def test_a_removed_table_is_rejected_with_its_replacement(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('name = "x"\n\n[notify]\nmail_to = "ann@example.org"\n')
    with pytest.raises(BadConfig, match=r"site.toml:3: .notify. was removed .*bftrain submit --wait"):
        load(tmp_path / "site.toml")


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


def test_beyond_loopback_must_be_said() -> None:
    assert Api(tcp="0.0.0.0:1", beyond_loopback=True).tcp == "0.0.0.0:1"
    for tcp in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        assert Api(tcp=tcp).tcp == tcp
    for tcp in ("login1:1", "[::]:1", ":1", "[::1]:x", "127.0.0.1"):
        with pytest.raises(BadValue):
            Api(tcp=tcp)
