"""Network interfaces of this machine, by their addresses."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from bftrain_elastic.errors import NoInterface

_SIOCGIFADDR: Final = 0x8915  # of Linux: the address of an interface


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
    """Yield the interfaces of this machine, each with its first IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                yield name, socket.inet_ntoa(found[20:24])
