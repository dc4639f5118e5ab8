"""The socket on which workers find their agent, and the agent's connection to its manager."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrain_elastic.agent.connections import ManagerLink, WorkerSocket
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire import agent_messages as messages
from bftrain_elastic.worker.agent_channel import AgentChannel
from tests.helpers.scripted_agents import SECRET, MessageInbox


def test_workers_that_cannot_be_let_in_at_the_moment_come_in_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notes: list[str] = []
    heard: list[tuple[str, str]] = []
    with selectors.DefaultSelector() as selector:
        door = WorkerSocket(
            selector,
            is_known={"w1"}.__contains__,
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
        channel.send({"type": "finished"})
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", fails)
            assert serve() == 1
            assert serve() == 0, "it does not try without end"
            door.drain("w1")  # nor does that end the agent
        assert notes == ["no worker can connect: Too many open files; it is tried again"]
        door.accept_again()
        while serve():
            pass
        assert heard == [("w1", "finished")]
        channel.close()
        while serve():
            pass
        door.close()


class LinkLoop:
    """An agent's link to a hub of its own, in a loop without the rest of the agent."""

    def __init__(self, keep_s: float | None) -> None:
        self.hub = AgentHub(MessageInbox(), SECRET, keep_s=keep_s)
        self._selector = selectors.DefaultSelector()
        self.heard: list[str] = []
        self.link = ManagerLink(
            self._selector,
            self.hub.address,
            SECRET,
            on_message=lambda message: self.heard.append(message.type),
            on_greeted=lambda: self.link.send(
                messages.RegisterAgent(node="n1", address="127.0.0.1", slots=1, pid=1, epoch=self.link.epoch)
            ),
            note=self.heard.append,
        )
        self.run(until=lambda: self.link.welcomed)

    def run(self, *, until: Callable[[], object], often: Callable[[], object] = lambda: None) -> None:
        """Run the loop, as the agent does, and call ``often`` in each round."""
        deadline = time.monotonic() + 30.0
        while not until():
            assert time.monotonic() < deadline, self.heard
            often()
            self.link.on_time()
            for key, events in self._selector.select(min(0.02, max(0.0, self.link.next_at - time.monotonic()))):
                key.data(events)

    def run_for(self, seconds: float, *, often: Callable[[], object]) -> None:
        """Run the loop so long, or until there is no manager."""
        end = time.monotonic() + seconds
        self.run(until=lambda: time.monotonic() > end or not self.link.welcomed, often=often)

    def close(self) -> None:
        self.hub.abandon()
        self.run(until=lambda: not self.link.welcomed)
        self._selector.close()


@pytest.fixture
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LinkLoop]:
    """Yield a link that drops its manager after 0.4 s without a sign of life, unless the test disables that."""
    monkeypatch.setattr("bftrain_elastic.manager.agent_hub._SILENCE_S", 0.4)
    loop = LinkLoop(getattr(request, "param", 0.0))
    yield loop
    loop.close()


def test_a_manager_without_a_sign_of_life_counts_as_lost_though_its_connection_stands(loop: LinkLoop) -> None:
    loop.run(until=lambda: not loop.link.welcomed)
    assert loop.link.trouble == "no sign of life for 0.4 s"
    assert loop.link.alone_s < 0.4
    loop.run(until=lambda: loop.heard.count("welcome") == 2)


def test_a_manager_that_gives_signs_of_life_is_kept(loop: LinkLoop) -> None:
    loop.run_for(1.0, often=loop.hub.beat)
    assert loop.link.welcomed
    assert "alive" in loop.heard


def test_an_agent_that_stood_still_itself_hears_what_came_meanwhile_before_it_leaves(loop: LinkLoop) -> None:
    for _ in range(6):
        time.sleep(0.1)
        loop.hub.beat()
    loop.run(until=lambda: "alive" in loop.heard or not loop.link.welcomed)
    assert loop.link.welcomed


@pytest.mark.parametrize("loop", [None], indirect=True)
def test_a_sign_of_life_is_due_only_three_seconds_after_the_last_message(loop: LinkLoop) -> None:
    before = time.monotonic()
    loop.link.send(messages.AgentWarm())
    assert loop.link.next_at >= before + 3.0


@pytest.mark.parametrize("loop", [None], indirect=True)
def test_a_manager_that_promised_no_signs_of_life_is_kept_without_them(loop: LinkLoop) -> None:
    loop.run_for(0.6, often=loop.hub.beat)
    assert loop.link.welcomed
    assert loop.heard == ["welcome"]
