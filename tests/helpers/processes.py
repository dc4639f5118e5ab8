"""Processes and ports as agents see them, for tests: the only place where end-to-end tests import these."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from bftrain_elastic.agent.process_tree import children, descendants, kill, state_of
from bftrain_elastic.tryout.try_script import LocalAgents

__all__ = ["LocalAgents", "alive", "children", "descendants", "kill", "listening", "state_of"]
_LISTENS: Final = "0A"  # as the kernel writes the state of a connection


def alive(pids: Iterable[int]) -> set[int]:
    """Return which of these processes are alive; zombies are not."""
    return {pid for pid in pids if state_of(pid) not in {"", "Z", "X"}}


def listening(pids: Iterable[int] | None = None) -> set[tuple[str, int]]:
    """Return the addresses and TCP ports on which any of these processes listens; without any, all processes here."""
    all_processes = pids is None
    wanted = set() if pids is None else {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and (all_processes or words[9] in wanted):
                    host, _, port = words[1].partition(":")
                    found.add((_address(host), int(port, 16)))
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 - called often: no Path for each descriptor
                if name.startswith("socket:["):
                    found.add(name[8:-1])
    return found


def _address(digits: str) -> str:
    """Parse an address of ``/proc/net/tcp``: words of four bytes, each in this machine's byte order."""
    raw = b"".join(struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8))
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    text = socket.inet_ntop(socket.AF_INET6, raw)
    return text.removeprefix("::ffff:")
