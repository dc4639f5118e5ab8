"""Sockets of this process: which are closed, which are cut, and which stay."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from bftrain_elastic.worker import process_groups
from bftrain_elastic.worker.process_groups import OpenSocket

# In a process of its own, whose sockets no other process shares
TRY = """
import socket
from bftrain_elastic.worker.process_groups import shut_sockets, sockets
door = socket.create_server(("127.0.0.1", 0))
address = door.getsockname()
ours = socket.create_connection(address)
theirs, _ = door.accept()
shut_sockets()
found = {one.number for one in sockets()}
assert door.fileno() not in found
assert {ours.fileno(), theirs.fileno()} <= found
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


def test_a_group_that_is_left_while_its_connections_are_cut_keeps_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread cuts them, again and again, and another one leaves the group: the store for the next one must stay."""
    pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
    group = process_groups.ProcessGroup()
    cut: list[set[OpenSocket]] = []
    store, member = OpenSocket(7, 70), OpenSocket(8, 80)
    group._before, group._joined = {store}, True  # noqa: SLF001 - as a group of torch's would set them

    def sockets() -> set[OpenSocket]:
        group.leave()
        return {store, member}

    monkeypatch.setattr(process_groups, "destroy_groups", lambda: None)
    monkeypatch.setattr(process_groups, "sockets", sockets)
    monkeypatch.setattr(process_groups, "cut", cut.append)
    group.abort()
    assert cut == [{member}]


def test_a_connection_that_has_the_number_of_one_that_was_closed_is_cut() -> None:
    """Requests to a meeting point are open when a group begins to form, and closed while it does."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        passing, there = connected(door)
        before = process_groups.sockets()
        passing.close()
        there.close()
        ours, theirs = connected(door)
        assert {ours.fileno(), theirs.fileno()} <= {one.number for one in before}, "it shows what it is to show"
        with ours, theirs:
            theirs.settimeout(10)
            process_groups.cut(process_groups.sockets() - before)
            assert theirs.recv(1) == b""


def test_a_connection_that_took_the_place_of_one_to_be_cut_is_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        passing, there = connected(door)
        doomed = process_groups.sockets()
        passing.close()
        there.close()
        ours, theirs = connected(door)
        with ours, theirs:
            process_groups.cut(doomed)
            ours.sendall(b"!")
            assert theirs.recv(1) == b"!"


def connected(door: socket.socket) -> tuple[socket.socket, socket.socket]:
    ours = socket.create_connection(door.getsockname())
    return ours, door.accept()[0]
