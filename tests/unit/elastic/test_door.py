"""The socket on which workers find their agent."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import tempfile
from typing import TYPE_CHECKING

from bftrain_elastic.agent.worker_socket import WorkerSocket
from bftrain_elastic.worker.agent_channel import AgentChannel

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_workers_that_cannot_be_let_in_at_the_moment_come_in_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notes: list[str] = []
    heard: list[tuple[str, str]] = []
    with selectors.DefaultSelector() as selector:
        door = WorkerSocket(
            selector,
            known={"w1"}.__contains__,
            on_message=lambda name, message: heard.append((name, message["type"])),
            note=notes.append,
        )

        def serve() -> int:
            ready = selector.select(0.0)
            for key, events in ready:
                key.data(events)
            return len(ready)

        def fails(_: socket.socket) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        channel = AgentChannel(door.path, "w1")
        channel.say({"type": "finished"})
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", fails)
            assert serve() == 1
            assert serve() == 0, "it does not try without end"
            door.drain("w1")  # nor does that end the agent
        assert notes == ["no worker can connect: Too many open files; it is tried again"]
        door.let_in()
        while serve():
            pass
        assert heard == [("w1", "finished")]
        channel.close()
        while serve():
            pass
        door.close()
