"""Network interfaces of this machine, by their addresses."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterator

from bftrain_elastic.errors import NoInterface


class _Interface(ctypes.Structure):
    """An entry of the C library's list of interfaces and addresses, with the fields that are read here."""


_Interface._fields_ = [
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_of(address: str) -> str:
    """Return the interface of this IPv4 address or of this host's name; loopback has all of 127.*.*.*."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError as error:
        raise NoInterface(f"is no address: {error.strerror}", where=address) from error
    for name, found in _addresses():
        if found == wanted or (found.startswith("127.") and wanted.startswith("127.")):
            return name
    raise NoInterface("is on no interface of this machine", where=address, fix="give one that 'ip address' shows")


def towards(host: str) -> str:
    """Return the local IPv4 address from which packets to ``host`` go out; none is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect((host, 9))  # the port does not matter
            return str(probe.getsockname()[0])
    except OSError as error:
        raise NoInterface(f"cannot be reached: {error.strerror}", where=host) from error


def free_port(address: str) -> int:
    """Return a TCP port of ``address`` that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def networking(address: str) -> dict[str, str]:
    """Return the environment that makes Gloo and NCCL use the interface with ``address``."""
    name = interface_of(address)
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}  # without = eth1 would mean eth10 too


def _addresses() -> Iterator[tuple[str, str]]:
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Interface)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        entry = first
        while entry:  # type: ignore[truthy-bool]  # a null pointer is false
            if entry.contents.address:
                # struct sockaddr_in: two bytes of family, in this machine's order, two of port, four of address
                raw = ctypes.string_at(entry.contents.address, 2)
                if int.from_bytes(raw, sys.byteorder) == socket.AF_INET:
                    digits = ctypes.string_at(entry.contents.address + 4, 4)
                    yield entry.contents.name.decode(), socket.inet_ntoa(digits)
            entry = entry.contents.next
    finally:
        libc.freeifaddrs(first)
