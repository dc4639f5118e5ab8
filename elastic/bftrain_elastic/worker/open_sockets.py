"""Connections of this process to others, found without the help of the library that made them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def sockets() -> set[int]:
    """Give the descriptors of all sockets of this process."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError, ValueError):
            if str(path.readlink()).startswith("socket:"):
                found.add(int(path.name))
    return found


def cut(numbers: Iterable[int]) -> None:
    """Shut the network sockets among these; a thread that waits for them sees an error. From any thread."""
    for number in numbers:
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            connection.getpeername()  # only what is connected: Gloo does not survive it when its doors are shut
            if connection.family in {socket.AF_INET, socket.AF_INET6}:
                connection.shutdown(socket.SHUT_RDWR)


def close_doors() -> None:
    """Close all sockets at which this process listens: a fork shares those of its parent."""
    for number in sockets():
        with suppress(OSError):
            with socket.socket(fileno=os.dup(number)) as one:
                listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens:
                os.close(number)
