"""Who asks: what the kernel says of sockets, and tokens that must be private."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

import pytest

from bftrain import BadConfig
from bftrain.live.model import callers
from bftrain.live.model.callers import ApiToken


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = callers.caller_at_socket(ours, ())
    assert caller == callers.ourselves()
    assert (caller.uid, caller.operator) == (os.getuid(), True)


@pytest.mark.parametrize(
    ("uid", "operators", "operator"),
    [(os.getuid(), (), True), (0, (), True), (3_999_999, (), False), (3_999_999, ("3999999", "x"), True)],
)
def test_operators_are_we_root_and_users_that_the_site_names(
    uid: int, operators: tuple[str, ...], *, operator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: struct.pack("3i", 1, uid, 1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert callers.caller_at_socket(ours, operators).operator is operator


def test_a_token_is_made_private_and_is_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "token"
    before = os.umask(0)
    try:
        made = ApiToken(path)
    finally:
        os.umask(before)
    text = path.read_text().strip()
    assert len(text) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert made.matches(text)
    assert ApiToken(path).matches(text)


def test_only_the_token_admits(tmp_path: Path) -> None:
    token = ApiToken(tmp_path / "token")
    text = (tmp_path / "token").read_text().strip()
    assert token.admits(f"Bearer {text}")
    assert token.admits(f"bearer   {text} ")
    for given in (
        "",
        "Bearer",
        f"Basic {text}",
        text,
        f"Bearer {text}x",
        f"Bearer {text[:-1]}",
        "Bearer é",
        "Bearer \ud800",
    ):
        assert not token.admits(given)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_that_others_know_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token"
    ApiToken(path)
    path.chmod(mode)
    with pytest.raises(BadConfig, match="chmod 600"):
        ApiToken(path)


@pytest.mark.parametrize("text", ["", "short", "é" * 40, "a\tb" * 20])
def test_what_is_no_token_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(BadConfig, match="no token of at least 32 characters"):
        ApiToken(path)


def test_a_link_is_no_token(tmp_path: Path) -> None:
    ApiToken(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    with pytest.raises(BadConfig, match="cannot be read"):
        ApiToken(tmp_path / "link")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    ApiToken(path)
    os.chown(path, 65534, 65534)
    with pytest.raises(BadConfig, match="others than us"):
        ApiToken(path)
