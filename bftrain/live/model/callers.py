"""Callers: the user behind a request, as the kernel reports it on the Unix socket, or a token over TCP."""

from __future__ import annotations

import hmac
import os
import pwd
import secrets
import socket
import stat
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from bftrain.errors import BadConfig
from bftrain.live.model.schemas import NotAllowed
from bftrain.live.model.task_record import LiveTaskRecord, is_name

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: as the kernel fills it in
_TOKEN_BYTES: Final = 32
_SHORTEST: Final = 32  # minimum length of tokens from other sources


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a request; operators can see and change all tasks, other users only their own."""

    uid: int
    user: str
    operator: bool

    def may_touch(self, record: LiveTaskRecord) -> bool:
        """Return whether the caller may see and change a task."""
        return self.operator or record.uid == self.uid

    @property
    def name_ending(self) -> str:
        """The suffix of the caller's task names, on sites with names by user."""
        return "" if self.operator else f"@{self.user if is_name(self.user) else self.uid}"


def user_of(uid: int) -> str:
    """Return a user's name, or the number if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ourselves() -> Caller:
    """Return the user of this process."""
    return Caller(uid=os.getuid(), user=user_of(os.getuid()), operator=True)


def require_operator(caller: Caller) -> None:
    """Raise unless the caller is an operator."""
    if not caller.operator:
        raise NotAllowed(
            f"'{caller.user}' is not an operator", fix="ask the user that runs it, or see docs/explanation/security.md"
        )


def check_weight(caller: Caller, weight: float, most: float) -> None:
    """Raise if the weight is above what callers that are not operators may set."""
    if weight > most and not caller.operator:
        fix = f"give at most {most:g}, or ask an operator: [api] max_weight in the settings of the live run"
        raise NotAllowed(f"{weight:g} is more than '{caller.user}' may give", where="weight", fix=fix)


def caller_at_socket(connection: socket.socket, operators: Collection[str]) -> Caller:
    """Return the peer of a Unix socket, as reported by the kernel."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid = int(_CREDENTIALS.unpack(found)[1])
    user = user_of(uid)
    return Caller(uid=uid, user=user, operator=uid in {os.getuid(), 0} or user in operators)


class ApiToken:
    """The token for HTTP over TCP: it grants the rights of the daemon's user."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w") as opened:
                opened.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        new = f"remove it, and a new one is made: rm {path}"
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as opened:
                about = os.fstat(opened.fileno())
                text = opened.read(4096)
        except OSError as error:
            raise BadConfig(f"cannot be read: {error.strerror}", where=str(path), fix=new) from error
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise BadConfig("other users can read or write it", where=str(path), fix=f"chmod 600 {path}, or {new}")
        self._token = text.decode(errors="replace").strip()
        if len(self._token) < _SHORTEST or not self._token.isascii() or not self._token.isprintable():
            raise BadConfig(f"is not a token of at least {_SHORTEST} characters", where=str(path), fix=new)

    def admits(self, authorization: str) -> bool:
        """Return whether a header ``Authorization: Bearer TOKEN`` has the token."""
        kind, _, given = authorization.partition(" ")
        return kind.lower() == "bearer" and self.matches(given.strip())

    def matches(self, given: str) -> bool:
        """Return whether ``given`` is the token, in constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode())
