"""Network interfaces of this machine, by their addresses."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress
from typing import Final

_SIOCGIFADDR: Final = 0x8915


def interface_of(address: str) -> str:
    """Give the name of the interface that has this IPv4 address; nothing if there is none."""
    try:
        wanted = socket.inet_aton(socket.gethostbyname(address))
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if found[20:24] == wanted:
                    return name
    return ""
