"""Sockets of this process: doors are closed, connections are not."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, whose doors are nobody else's
TRY = """
import socket
from bftrain_elastic.worker.open_sockets import close_doors, sockets
door = socket.create_server(("127.0.0.1", 0))
address = door.getsockname()
ours = socket.create_connection(address)
theirs, _ = door.accept()
close_doors()
assert door.fileno() not in sockets()
assert {ours.fileno(), theirs.fileno()} <= sockets()
ours.sendall(b"still there")
assert theirs.recv(64) == b"still there"
try:
    socket.create_connection(address)
except ConnectionRefusedError:
    print("closed")
"""


def test_doors_are_closed_and_connections_are_kept() -> None:
    ended = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "closed\n"), ended.stderr
