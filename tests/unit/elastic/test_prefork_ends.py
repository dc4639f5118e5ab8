"""A prefork server whose agent is killed ends without a word: its output is the agent's own log."""

from __future__ import annotations

import os
import socket

import pytest

from bftrain_elastic.agent.prefork_server import PreforkServer


@pytest.mark.parametrize("unread", [b"", b"a message that the agent has not read"])
def test_it_ends_when_its_agent_is_gone(unread: bytes) -> None:
    agent, ours = socket.socketpair()
    ours.sendall(unread)
    agent.close()  # with something unread the kernel resets the connection
    signals, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with ours:
            PreforkServer(ours, signals).run()
    finally:
        os.close(signals), os.close(write_end)
