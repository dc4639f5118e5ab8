"""The secret of a run: 32 random bytes in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import BadSecret

BYTES: Final = 32
_NEW: Final = "make a new one: bftrain_elastic.wire.shared_secret.make_secret(path)"


def make_secret(path: Path) -> bytes:
    """Write a new secret to ``path``, which must not exist yet, and give it."""
    secret = secrets.token_bytes(BYTES)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, secret.hex().encode() + b"\n")
    finally:
        os.close(file)
    return secret


def read_secret(path: Path) -> bytes:
    """Read the secret in ``path``; a file that others can touch is refused."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise BadSecret(f"cannot be read: {error.strerror}", where=str(path), fix=_NEW) from error
    try:
        found = os.fstat(file)
        text = os.read(file, 4 * BYTES)
    finally:
        os.close(file)
    if found.st_uid != os.getuid():
        raise BadSecret("belongs to another user", where=str(path), fix=_NEW)
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise BadSecret("others than its owner can read or write it", where=str(path), fix=f"chmod 600 {path}")
    try:
        secret = bytes.fromhex(text.decode().strip())
    except ValueError as error:
        raise BadSecret("is not hexadecimal", where=str(path), fix=_NEW) from error
    if len(secret) != BYTES:
        raise BadSecret(f"has {len(secret)} bytes instead of {BYTES}", where=str(path), fix=_NEW)
    return secret
