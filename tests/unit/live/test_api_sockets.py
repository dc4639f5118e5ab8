"""Where the API listens: private sockets, addresses, and what stands in the way of either."""

from __future__ import annotations

import asyncio
import grp
import os
import socket
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bftrain import BadConfig, NotAvailable
from tests.helpers.asking import ask
from tests.helpers.live_callers import token_of
from tests.helpers.live_inside import Api as ApiSettings
from tests.helpers.live_inside import in_a_loop, live_inside


@in_a_loop
async def test_without_tcp_only_a_private_socket_is_there(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        (address,) = inside.api.addresses
        path = inside.daemon.site.socket
        assert address == f"unix:{path}"
        about = path.stat()
        assert stat.S_ISSOCK(about.st_mode)
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert inside.service.status().addresses == (address,)
    assert not path.exists()


@in_a_loop
async def test_no_client_can_connect_before_the_mode_is_what_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    start = asyncio.start_unix_server

    async def started(callback: Any, path: Path, *, backlog: int) -> asyncio.Server:  # noqa: ANN401 - as asyncio has it
        server = await start(callback, path, backlog=backlog)
        made.append(stat.S_IMODE(os.lstat(path).st_mode))
        return server

    monkeypatch.setattr(asyncio, "start_unix_server", started)
    before = os.umask(0)
    try:
        async with live_inside(tmp_path, api=ApiSettings(mode="666")):
            pass
    finally:
        os.umask(before)
    assert made == [0o600]


@pytest.mark.parametrize("mode", ["660", "666"])
@in_a_loop
async def test_a_socket_is_opened_for_others_only_if_that_is_said(mode: str, tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    async with live_inside(tmp_path, api=ApiSettings(mode=mode, group=group)) as inside:
        about = inside.daemon.site.socket.stat()
        assert (stat.S_IMODE(about.st_mode), about.st_gid) == (int(mode, 8), os.getgid())


def test_mode_666_alone_lets_others_in_and_shows_them_nothing_else() -> None:
    @in_a_loop
    async def run(folder: Path, hinders: str) -> None:
        async with live_inside(folder, api=ApiSettings(mode="666")) as inside:
            state, path = folder / "live", inside.daemon.site.socket
            assert stat.S_IMODE(state.stat().st_mode) == 0o701
            assert [each.name for each in state.iterdir() if each.stat().st_mode & 0o077] == ["api.sock"]
            assert [hinders in text for text in inside.api.hindrances] == ([True] if hinders else [])
            if os.getuid() == 0 and not hinders:  # only root can try it as another user
                words = ("/usr/bin/env", "python3", "-c", f"import socket; socket.socket(1).connect({str(path)!r})")
                other = await asyncio.create_subprocess_exec(*words, user=65534, group=65534)
                assert await other.wait() == 0

    with TemporaryDirectory(prefix="bft-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        run(folder, "")
        folder.chmod(0o700)
        run(folder, f"{folder} is closed to them (set api.socket to a path that they can reach, or chmod o+x {folder})")


@in_a_loop
async def test_a_group_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no-such-group"):
        async with live_inside(tmp_path, api=ApiSettings(mode="660", group="no-such-group")):
            pass


@in_a_loop
async def test_a_socket_left_behind_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(left))
    async with live_inside(tmp_path, api=ApiSettings(socket=str(left))) as inside:
        assert (await ask(inside.api.addresses[0], "GET /v1/status")).status == 200
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(BadConfig, match="is no socket"):
        async with live_inside(tmp_path, api=ApiSettings(socket=str(file))):
            pass
    assert file.read_text() == "precious"


@in_a_loop
async def test_where_another_process_listens_we_cannot(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ApiSettings(tcp=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(NotAvailable, match="cannot listen"):
            async with live_inside(tmp_path, api=settings):
                pass


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@in_a_loop
async def test_ipv6_is_an_address_too(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    async with live_inside(tmp_path, api=ApiSettings(tcp="[::1]:0")) as inside:
        tcp = inside.api.addresses[1]
        assert tcp.startswith("http://[::1]:")
        answered = await ask(tcp, "GET /v1/status", host=tcp.removeprefix("http://"), authorization=token_of(inside))
        assert answered.status == 200


@in_a_loop
async def test_a_socket_that_another_run_made_at_the_same_path_stays_when_we_end(tmp_path: Path) -> None:
    path = tmp_path / "usual.sock"
    with socket.socket(socket.AF_UNIX) as other:
        async with live_inside(tmp_path, api=ApiSettings(socket=str(path))):
            path.unlink()
            other.bind(str(path))
        assert path.is_socket()
