"""Network interfaces of this machine, by their addresses."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from collections.abc import Iterator
from typing import Final

from bftrain_elastic.errors import NoInterface

_SIOCGIFCONF: Final = 0x8912  # Linux's request for the addresses of all interfaces
_ENTRY: Final = struct.Struct("16sH2x4s16x")  # struct ifreq: a label such as eth0 or eth0:1, and a struct sockaddr_in
_MOST: Final = 4096  # addresses


def interface_of(address: str) -> str:
    """Return the interface of this IPv4 address or of this host's name; loopback has all of 127.*.*.*."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError as error:
        raise NoInterface(f"is no address: {error.strerror}", where=address) from error
    for name, other in _addresses():
        if other == wanted or (other.startswith("127.") and wanted.startswith("127.")):
            return name
    raise NoInterface("is on no interface of this machine", where=address, fix="use an address that 'ip address' lists")


def towards(host: str) -> str:
    """Return the local IPv4 address from which packets to ``host`` go out; none is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect((host, 9))  # the port does not matter
            return str(probe.getsockname()[0])
    except OSError as error:
        raise NoInterface(f"cannot be reached: {error.strerror}", where=host) from error


def free_port(address: str) -> int:
    """Return a free TCP port of ``address``; it may be in use a moment later."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def networking(address: str) -> dict[str, str]:
    """Return the environment that makes Gloo and NCCL use the interface with ``address``."""
    name = interface_of(address)
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}  # eth1 without "=" would also match eth10


def _addresses() -> Iterator[tuple[str, str]]:
    """Yield each IPv4 address of this machine with its interface, which may have several."""
    room = array("B", bytes(_MOST * _ENTRY.size))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", len(room), room.buffer_info()[0]))
    used = struct.unpack("iP", answer)[0]
    for label, family, raw in _ENTRY.iter_unpack(room[:used]):
        if family == socket.AF_INET:
            yield label.partition(b"\0")[0].partition(b":")[0].decode(), socket.inet_ntoa(raw)
