"""A wire says that its connection is over once, from the loop, and after all that arrived before."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from bftrain_elastic.wire import nonblocking_socket
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket


class Ends:
    """A wire, its other end, and what it says."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ended: list[str] = []
        self._selector = selectors.DefaultSelector()
        ours, self.other = socket.socketpair()
        self.wire = NonblockingSocket(self._selector, ours, self.heard.append, self.ended.append)

    def turn(self) -> None:
        for key, events in self._selector.select(0):
            key.data(events)

    def close(self) -> None:
        self.wire.end("closed")
        self.other.close()
        self._selector.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_what_is_sent_arrives_though_the_other_side_is_slow(ends: Ends) -> None:
    much = b"x" * 3_000_000
    ends.wire.send(much)
    got = b""
    while len(got) < len(much):
        got += ends.other.recv(1_000_000)
        ends.turn()
    assert got == much
    assert ends.ended == []


def test_a_sender_learns_of_a_closed_peer_in_the_next_turn_and_after_the_goodbye(ends: Ends) -> None:
    ends.other.sendall(b"goodbye")
    ends.other.close()
    ends.wire.send(b"are you there?")
    ends.wire.send(b"are you?")
    assert (ends.heard, ends.ended) == ([], []), "not out of send"
    ends.turn()
    assert (ends.heard, ends.ended) == ([b"goodbye"], [])
    ends.turn()
    assert ends.ended == ["Broken pipe"]
    ends.wire.send(b"still?")
    ends.turn()
    assert ends.ended == ["Broken pipe"], "once"


def test_one_who_never_reads_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonblocking_socket, "_OUT_LIMIT", 100_000)
    ends.wire.send(b"x" * 1_000_000)
    assert ends.ended == []
    ends.turn()
    assert ends.ended == ["the other side does not read"]


def test_the_other_sides_end_is_reported(ends: Ends) -> None:
    ends.other.close()
    ends.turn()
    assert ends.ended == ["the connection was closed"]
