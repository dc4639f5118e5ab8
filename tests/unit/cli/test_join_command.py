"""``bftrain live join`` and ``live members``: settings from a site, what is kept of them, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bftrain.live.model.member_views import MemberReport
from bftrain.live.model.site_config import Api, SiteSettings
from tests.helpers.in_process import CommandLine
from tests.helpers.live_callers import ANN
from tests.helpers.live_inside import World
from tests.helpers.live_thread import live_thread


class Idle(World):
    """A world with four idle nodes."""

    async def idle(self) -> int:
        return 4


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[SiteSettings]:
    """Collect the settings of live runs instead of running them."""
    found: list[SiteSettings] = []
    run: Any = mock.Mock(side_effect=lambda site, *_: found.append(site))
    monkeypatch.setattr("bftrain.live.commands.run_site.run_site", run)
    return found


def test_a_user_joins_with_an_account_and_goes_on_by_the_kept_settings_while_the_site_is_away(
    tmp_path: Path, bftrain: CommandLine, started: list[SiteSettings]
) -> None:
    state = tmp_path / "own"
    with live_thread(tmp_path, Idle(), members=True, api=Api(mode="666"), name="hall") as site:
        socket = site.socket
        own = ("--account", "climate", "--option=--mem=0", "--state", state, "--python", "/apps/python")
        shown = bftrain("live", "join", socket, *own, "--show")
        assert shown.code == 0, shown.err
        assert tomllib.loads(shown.out)["join"] == socket
        assert not state.exists()
        done = bftrain("live", "join", socket, *own)
        assert done.code == 0, done.err
        assert "a member of site 'hall'" in done.err
        site.do(lambda inside: inside.service.members.report(ANN, MemberReport(wanted=2, held=1)))
        listed = bftrain("live", "members", "--live", socket)
        assert listed.out.split()[:2] == ["2", "members"]  # the site's own live run is one
    (first,) = started
    table = {"name": "inside", "account": "climate", "options": ["--mem=0"]}
    assert (first.name, first.join, first.scheduler, first.agents.python) == ("hall", socket, table, "/apps/python")
    assert (first.state, first.folder, first.api.mode) == (str(state), str(state), "600")
    again = bftrain("live", "join", socket, "--state", state)
    assert again.code == 0
    assert "the settings that it gave before hold" in again.err
    assert started[1] == first
    other = bftrain("live", "join", tmp_path / "other.sock", "--state", state)
    assert (other.code, f"is a member of {socket}" in other.err) == (3, True)


def test_what_is_no_site_is_refused(tmp_path: Path, bftrain: CommandLine, started: list[SiteSettings]) -> None:
    absent = bftrain("live", "join", tmp_path / "none.sock", "--state", tmp_path / "own")
    assert (absent.code, "there is no such socket" in absent.err) == (4, True)
    remote = bftrain("live", "join", "http://login1:8765")
    assert (remote.code, "is an address, and no socket of this machine" in remote.err) == (2, True)
    with live_thread(tmp_path, Idle()) as site:
        closed = bftrain("live", "join", site.socket, "--state", tmp_path / "own")
        assert (closed.code, "takes no members" in closed.err) == (3, True)
        assert bftrain("live", "members", "--live", site.socket).code == 3
    assert started == []
    assert not (tmp_path / "own").exists()
