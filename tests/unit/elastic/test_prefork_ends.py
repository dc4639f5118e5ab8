"""A prefork server: how it ends with its agent, and which workers may have ended because they were asked to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest

from bftrain_elastic.agent import prefork_server
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


@pytest.mark.parametrize(
    ("script", "may_save"), [("echo; exec sleep 60", False), ("trap : TERM; echo; sleep 60", True)]
)
def test_only_a_program_that_handles_sigterm_can_end_with_0_because_of_it(
    script: str,
    may_save: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, agent = socket.socketpair()
    monkeypatch.setattr(prefork_server, "_signal", lambda *_: None)  # as if it ended just then
    command = ["sh", "-c", script]
    signals, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    with ours, agent, subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server = PreforkServer(ours, signals)
        server._workers[process.pid] = "w"  # noqa: SLF001 - as if it had started it
        server._signal(process.pid, signal.SIGTERM)  # noqa: SLF001 - as the agent asks for
        server._report_exit(process.pid, 0)  # noqa: SLF001 - as it sees it
        assert (b'"asked_to_end":true' in agent.recv(4096).replace(b" ", b"")) is may_save
        process.kill()
    os.close(signals), os.close(write_end)
