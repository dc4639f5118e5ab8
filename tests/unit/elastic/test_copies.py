"""Copies of states on nodes outside their tasks: where they are kept, and what copy servers take and give."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from bftrain_elastic.agent.copy_server import CopyServer
from bftrain_elastic.errors import BadCommit, BadMessage
from bftrain_elastic.manager.copy_places import TOGETHER_S, CopyPlaces
from bftrain_elastic.wire.agent_messages import FROM_PREFORK, CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import CopyStream, GetCopy, copy_key
from bftrain_elastic.wire.messages import Message, WireMessage, decode, encode, read_message
from bftrain_elastic.wire.worker_messages import CopyPlace, SendCopies
from bftrain_elastic.worker import outside_copy
from bftrain_elastic.worker.outside_copy import OutsideCopy
from bftrain_elastic.worker.state_tree import fold
from tests.helpers.lifecycles import NativeCase

pytestmark = pytest.mark.torch
MB = 1_000_000


class Site:
    """Nodes with copy servers, and the choice of places; ``now`` is the time in seconds."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.orders: list[tuple[str, WireMessage]] = []
        self.places = CopyPlaces(self.events.append)
        self.now = 1000.0

    def joins(self, node: str, *, age_s: float = 0.0, limit_mb: int = 1000, held: tuple[CopyHeld, ...] = ()) -> None:
        message = CopyServing(7000, limit_mb * MB, age_s, held)
        self.places.serves(node, node, message, lambda order: self.orders.append((node, order)), self.now)

    def chosen(self, task: str, *nodes: str) -> str:
        place = self.places.choose(task, nodes, self.now)
        return "" if place is None else place.host

    def copied(self, node: str, step: int, size_mb: int = 10, task: str = "t", lineage: int = 0) -> None:
        self.places.held(node, CopyHeld(task, lineage, step, size_mb * MB), self.now)

    def steps(self) -> list[int]:
        return [one["step"] for one in self.events if one["type"] == "copied"]


def test_a_copy_goes_to_a_node_outside_that_joined_at_another_time_and_stays_there() -> None:
    site = Site()
    for node, age_s in (("a", 0.0), ("b", 1.0), ("c", 5.0), ("d", TOGETHER_S + 10.0)):
        site.joins(node, age_s=age_s)
    assert site.chosen("t", "a", "b") == "d", "c joined with them, and is likely to leave with them"
    site.joins("e", age_s=500.0)
    assert site.chosen("t", "a", "b") == "d", "it stays where it is"
    assert site.chosen("u", "c") == "e", "it is there longest"
    assert site.chosen("t", "a", "b", "d") == "e", "never on a node of the task"
    assert site.chosen("all", "a", "b", "c", "d", "e") == ""


def test_committed_counts_copies_that_are_outside_the_task_only() -> None:
    site = Site()
    for node in "abc":
        site.joins(node)
    first = site.chosen("t", "a")
    site.copied(first, 10)
    second = site.chosen("t", "a", first)
    assert site.steps() == [10, 0], "the node with the copy belongs to the task now"
    assert site.places.newest("t") == CopyPlace(first, 7000), "it is still better than none"
    site.copied(second, 12)
    assert site.orders == [(first, DropCopy("t"))], "one copy is enough"
    site.places.left(second)
    assert site.steps() == [10, 0, 12, 0]
    assert site.places.newest("t") is None
    site.places.forget("t")


def test_a_later_manager_finds_the_copies_and_takes_the_newest() -> None:
    site = Site()
    site.joins("b", held=(CopyHeld("t", 1, 50, MB),))
    site.joins("c", held=(CopyHeld("t", 2, 40, MB),))
    newest = site.places.newest("t")
    assert newest is not None
    assert newest.host == "c", "a later lineage went on from an older step"
    assert site.steps() == [50, 40]


def test_a_node_without_room_is_not_asked_again_soon_and_its_owner_learns_it_once() -> None:
    site = Site()
    site.joins("b", limit_mb=100)
    site.joins("c", limit_mb=30)
    assert site.chosen("t", "a") in {"b", "c"}
    site.copied("c", -1, 20)
    assert site.chosen("t", "a") == "b", "twice the state fits there"
    site.copied("b", 3, 20, task="u")
    site.copied("b", 4, 20, task="v")
    assert site.chosen("t", "a") == "", "copies of others fill it"
    assert site.chosen("t", "a") == ""
    (note,) = [one["text"] for one in site.events if one["type"] == "note"]
    assert "20 MB" in note
    assert "up to 100 MB (copies_mb)" in note
    site.places.forget("u")
    assert site.chosen("t", "a") == "b"


def test_a_node_that_is_about_to_leave_passes_its_copies_on() -> None:
    site = Site()
    site.joins("b")
    assert site.chosen("t", "a") == "b"
    site.copied("b", 5)
    site.joins("c")
    site.places.leaves("b")
    assert site.chosen("t", "a") == "c"
    assert site.places.newest("t") == CopyPlace("b", 7000), "until the other one is there"


def test_the_first_worker_learns_where_to_keep_the_copy_and_new_ones_where_it_is() -> None:
    case = NativeCase("a", "b")
    case.context.copies = {"place": CopyPlace("h", 1), "newest": CopyPlace("old", 2)}
    case.set_nodes("a")
    case.all_new_ready()
    assert [order["copy"]["host"] for _, order in case.context.sent] == ["old"]
    case.go(0)
    case.tick(0.1)
    case.tick(0.1)
    ((first, order),) = case.context.take_sent("send_copies")
    assert order["copy"]["host"] == "h"
    case.context.copies["place"] = None
    case.tick(0.1)
    assert [(who, order["copy"]) for who, order in case.context.take_sent("send_copies")] == [(first, None)]


# -- real servers and streams


class Server:
    """A copy server in a thread, and the agent's side of it."""

    secret = b"s" * 32

    def __init__(self, limit_mb: float = 1000.0) -> None:
        self.agent, theirs = socket.socketpair()
        self.agent.settimeout(30)
        self._lines = self.agent.makefile("rb")
        server = CopyServer(theirs, "127.0.0.1", self.secret, int(limit_mb * MB))
        threading.Thread(target=server.run, daemon=True).start()
        self.hear()
        serving = self.hear()
        assert isinstance(serving, CopyServing)
        self.port = serving.port

    def hear(self) -> WireMessage | None:
        return read_message(FROM_PREFORK, decode(self._lines.readline()))

    def place(self, task: str = "t", secret: bytes | None = None) -> CopyPlace:
        return CopyPlace("127.0.0.1", self.port, task, copy_key(secret or self.secret, task).hex())


@contextmanager
def served(limit_mb: float = 1000.0) -> Iterator[Server]:
    server = Server(limit_mb)
    try:
        yield server
    finally:
        server._lines.close()  # noqa: SLF001 - or the socket stays open
        server.agent.close()


@contextmanager
def copying(server: Server, task: str = "t") -> Iterator[OutsideCopy]:
    copy = OutsideCopy()
    copy.aim(SendCopies(server.place(task)))
    try:
        yield copy
    finally:
        copy.close()


def sends(copy: OutsideCopy, step: int, table: object, lineage: int = 0) -> int:
    """Send a state; return the bytes that went over the network."""
    sent = []
    original = CopyStream.send

    def counted(self: CopyStream, message: WireMessage, piece: bytes = b"") -> None:
        sent.append(len(piece))
        original(self, message, piece)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyStream, "send", counted)
        copy.send(fold({"step": step, "table": table}), step, lineage, lambda: None)
    return sum(sent)


def fetched(server: Server, newer_than: tuple[int, int] = (-1, -1)) -> object:
    found = outside_copy.fetch(server.place(), newer_than, lambda _: None)
    return None if found is None else found.tree.unfolded()


def test_only_changed_pieces_travel_and_the_state_comes_back_equal() -> None:
    table = torch.arange(5_000_000, dtype=torch.float32)
    with served() as server, copying(server) as copy:
        assert sends(copy, 1, table) > 20_000_000
        assert server.hear() == CopyHeld("t", 0, 1, pytest.approx(20_000_000, rel=0.01))
        table[4_900_000] = -1
        assert 0 < sends(copy, 2, table) < 5_000_000, "the last piece and the header"
        assert copy.step == 2
        found = fetched(server)
        assert isinstance(found, dict)
        assert found["step"] == 2
        assert torch.equal(found["table"], table)
        assert fetched(server, (0, 2)) is None, "the disk has it, too"
        assert fetched(server, (1, 0)) is None, "a later lineage is on disk"


def test_an_interrupted_copy_leaves_the_one_before() -> None:
    with served() as server, copying(server) as copy:
        sends(copy, 1, torch.ones(4_000_000))
        calls = iter(range(3))

        def stops() -> None:
            if next(calls, None) is None:
                raise InterruptedError

        copy.send(fold({"step": 2, "table": torch.zeros(4_000_000)}), 2, 0, stops)
        assert copy.step == 1
        found = fetched(server)
        assert isinstance(found, dict)
        assert (found["step"], found["table"].unique().tolist()) == (1, [1.0])
        sends(copy, 3, torch.zeros(4_000_000))
        assert copy.step == 3, "it is sent as a whole after that"


def test_limits_are_kept_and_states_of_others_or_of_earlier_runs_are_not_replaced() -> None:
    with (
        served(limit_mb=50) as server,
        copying(server, "large") as large,
        copying(server) as small,
        copying(server) as earlier,
    ):
        sends(large, 1, torch.ones(10_000_000))
        refused = server.hear()
        assert isinstance(refused, CopyHeld)
        assert (refused.task, refused.step) == ("large", -1), "it takes twice its 40 MB"
        assert not large.due, "it is tried again later"
        sends(small, 5, torch.ones(3_000_000), lineage=2)
        assert small.step == 5
        sends(earlier, 9, torch.zeros(3_000_000), lineage=1)
        assert earlier.step == -1, "a worker that its manager gave up must not overwrite a newer state"
        found = fetched(server)
        assert isinstance(found, dict)
        assert found["step"] == 5
        server.agent.sendall(encode(DropCopy("t").to_dict()) + b"\n")
        while fetched(server) is not None:
            pass


def test_strangers_and_damaged_copies_are_rejected() -> None:
    with served() as server, copying(server) as copy:
        stranger = outside_copy.connect(server.place(secret=b"x" * 32))
        stranger.send(GetCopy())
        with pytest.raises((BadMessage, OSError)):
            stranger.receive()
        stranger.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outside_copy, "digest_of", lambda _: "0" * 64)
            sends(copy, 1, torch.ones(2_000_000))
        with pytest.raises(BadCommit, match="damaged"):
            fetched(server)


def test_a_server_that_does_not_answer_delays_nothing_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = CopyPlace("127.0.0.1", silent.getsockname()[1], "t", os.urandom(32).hex())
        copy = OutsideCopy()
        copy.aim(SendCopies(place))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bftrain_elastic.wire.copy_stream.SILENCE_S", 0.3)
            copy.send(fold({"step": 1}), 1, 0, lambda: None)
        assert (copy.step, copy.due) == (-1, False)
