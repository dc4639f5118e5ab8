"""The socket of an agent for its workers."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time

import pytest

from bftrain_elastic.agent.connections import WorkerSocket
from bftrain_elastic.wire.messages import encode


def test_without_free_descriptors_a_worker_waits_and_the_agent_does_not_try_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    selector, heard, tries = selectors.DefaultSelector(), list[str](), 0
    workers = WorkerSocket(
        selector, is_known=lambda _: True, on_message=lambda worker, _: heard.append(worker), note=heard.append
    )

    def turn() -> None:
        for key, events in selector.select(0.05):
            key.data(events)

    def fails(_: socket.socket) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        worker.connect(f"\0{workers.name}")
        for message in ({"type": "hello", "worker": "w1"}, {"type": "alive"}):
            worker.send(encode(message))
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", fails)
            end_s = time.monotonic() + 0.5
            while time.monotonic() < end_s:
                turn()
        assert 1 <= tries < 20
        end_s = time.monotonic() + 30.0
        while not heard and time.monotonic() < end_s:
            turn()
    assert heard == ["w1"]
    for key in [*selector.get_map().values()]:
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    selector.close()
