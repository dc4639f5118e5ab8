"""What is kept in the user's cache is believed only if no other user can have written it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain_replay import private_cache

CONTENT = "draw('ü');\n".encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "cache" / "replays" / "one"
    private_cache.write(found, CONTENT)
    return found


def test_what_was_written_is_read_and_private(path: Path) -> None:
    assert private_cache.read(path) == CONTENT
    assert [each.stat().st_mode & 0o777 for each in (path, *path.parents[:2])] == [0o600, 0o700, 0o700]
    assert private_cache.read(path.with_name("two")) is None


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda path: path.chmod(0o620), b""),
        (lambda path: path.chmod(0o602), b""),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), b""),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"draw", b"dr4w")), b""),
        (lambda path: path.write_bytes(b""), b""),
        (lambda path: (path.rename(path.with_name("other")), path.symlink_to(path.with_name("other"))), None),
    ],
    ids=["group may write", "others may write", "cut off", "changed", "empty", "a link"],
)
def test_what_others_may_have_touched_is_not_believed(
    path: Path, spoil: Callable[[Path], object], found: bytes | None
) -> None:
    spoil(path)
    assert private_cache.read(path) == found
    private_cache.write(path, CONTENT)
    assert private_cache.read(path) == CONTENT
    assert (path.is_symlink(), path.stat().st_mode & 0o777) == (False, 0o600)


def test_a_file_of_another_user_is_not_believed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert private_cache.read(path) == b""
