"""Files in the user's cache folder; a checksum and the file mode reveal changes by other users."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from bftrain.files import synced_later, whole_file


def write(path: Path, content: bytes) -> None:
    """Write a file that only the user can read, unless its folder is not writable."""
    with suppress(OSError):
        for folder in (path.parent.parent, path.parent):  # mkdir applies the mode to the last folder only
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with synced_later(), whole_file(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(_seal(content) + content)


def read(path: Path) -> bytes | None:
    """Return the content of a file; ``b""`` if it is damaged or other users can write it, ``None`` if it is missing."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return b""
            seal, content = file.readline(), file.read()
    except OSError:
        return None
    return content if seal == _seal(content) else b""


def _seal(content: bytes) -> bytes:
    return f"{hashlib.sha256(content).hexdigest()}\n".encode()
