"""Copies of states on nodes outside their tasks: where they are kept, and what copy servers take and give."""

from __future__ import annotations

import itertools
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from bftrain_elastic import State
from bftrain_elastic.agent import copy_server
from bftrain_elastic.agent.agent_settings import AgentSettings
from bftrain_elastic.agent.node_copies import NodeCopies
from bftrain_elastic.errors import BadCommit, BadMessage
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.copy_places import CopyPlaces
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import CopyDropped, CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import (
    CopyPiece,
    CopyState,
    CopyStream,
    EndCopy,
    GetCopy,
    PutCopy,
    digest_of,
    digest_of_all,
)
from bftrain_elastic.wire.messages import Message, WireMessage, encode
from bftrain_elastic.wire.worker_messages import CopyPlace, SendCopies
from bftrain_elastic.worker import outside_copy
from bftrain_elastic.worker.outside_copy import OutsideCopy, Sending
from bftrain_elastic.worker.state_tree import fold
from bftrain_elastic.worker.state_values import inner
from tests.helpers.copying import MB, Server, served
from tests.helpers.lifecycles import NativeCase
from tests.helpers.pace import busy_s
from tests.helpers.scripted_agents import Comes, MessageInbox

pytestmark = pytest.mark.torch


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
    for node, age_s in (("a", 0.0), ("b", 1.0), ("c", 5.0), ("d", TIMEOUTS.together_s + 10.0)):
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
    assert site.places.newest("t") == CopyPlace(first, 7000, "t"), "it is still better than none"
    site.copied(second, 12)
    assert site.orders == [(first, DropCopy("t"))], "one copy is enough"
    site.places.left(second)
    assert site.steps() == [10, 0, 12, 0]
    assert site.places.newest("t") is None
    site.places.forget("t")


def test_a_report_that_crosses_the_order_to_drop_its_copy_leaves_no_copy_behind() -> None:
    site = Site()
    for node in "abc":
        site.joins(node)
    site.copied("b", 10)
    assert site.chosen("t", "a", "b") == "c"
    site.copied("c", 12)
    assert site.orders == [("b", DropCopy("t"))]
    site.copied("b", 11)
    site.places.dropped("b", "t")
    site.places.left("c")
    assert site.places.newest("t") is None
    with served() as server, copying(server) as copy:
        sends(copy, 1, torch.ones(10))
        server.agent.sendall(encode(DropCopy("t").to_dict()) + b"\n")
        assert [type(server.hear()) for _ in range(2)] == [CopyHeld, CopyDropped]


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
    assert "up to 100 MB (copies_memory)" in note
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
    assert site.places.newest("t") == CopyPlace("b", 7000, "t"), "until the other one is there"


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


def test_a_node_that_leaves_is_no_place_for_a_state_of_unknown_size() -> None:
    site = Site()
    site.joins("b")
    site.places.leaves("b")
    assert site.chosen("t", "a") == ""


# -- the hub, with scripted agents


def job(tmp_path: Path, identity: str) -> dict[str, object]:
    return {"argv": ["x.py"], "folder": str(tmp_path), "identity": identity}


def held(identity: str, step: int = 5) -> Message:
    return CopyHeld(identity, 0, step, MB).to_dict()


def newest(hub: AgentHub, identity: str) -> CopyPlace | None:
    return hub.ask(lambda: hub.copies.newest(identity))


def test_a_new_task_never_gets_the_copies_of_an_earlier_one_with_its_name(
    hub: AgentHub, comes: Comes, inbox: MessageInbox, launcher: AgentLauncher, tmp_path: Path
) -> None:
    launcher.add("a", job(tmp_path, "1"))
    agent = comes("n1")
    agent.send(**CopyServing(7000, MB).to_dict() | {"held": [held("1")]})
    assert inbox.until("copied")["task"] == "a"
    launcher.drop("a")
    assert agent.hear("drop_copy")["task"] == "1"
    agent.send(**held("1", 6))
    assert agent.hear("drop_copy")["task"] == "1", "it was arriving when the task ended"
    launcher.add("a", job(tmp_path, "2"))
    away = comes("n2")
    away.send(**CopyServing(7000, MB).to_dict() | {"held": [held("1"), held("2", 3)]})
    assert away.hear("drop_copy")["task"] == "1", "its agent was away when the task ended"
    assert newest(hub, "1") is None
    assert newest(hub, "2") == CopyPlace("127.0.0.1", 7000, "2")


# -- the agent


def test_an_agent_drops_arriving_copies_and_reports_none_when_its_server_is_lost() -> None:
    sent: list[WireMessage] = []
    with selectors.DefaultSelector() as selector:
        settings = AgentSettings(
            node="n", manager=("127.0.0.1", 1), secret=b"s" * 32, address="127.0.0.1", copies_bytes=MB, nice=0
        )
        copies = NodeCopies(selector, settings, send=sent.append, on_lost=lambda _: None)
        process, orders = copies.process, list[WireMessage]()
        process.send = orders.append  # type: ignore[method-assign]  # records what would be sent
        copies.drop("never complete")
        assert orders == [DropCopy("never complete")]
        copies._on_message(process, CopyServing(7000, MB))  # noqa: SLF001 - as from its process
        copies._on_message(process, CopyHeld("u", 0, 1, 5))  # noqa: SLF001
        copies._on_message(process, CopyDropped("u"))  # noqa: SLF001
        copies.report()
        assert (sent[-2], replace(sent[-1], age_s=0.0)) == (CopyDropped("u"), CopyServing(7000, MB))
        copies._on_message(process, CopyHeld("t", 0, 1, 5))  # noqa: SLF001
        process._lost("")  # noqa: SLF001
        latest = sent[-1]
        assert isinstance(latest, CopyServing)
        assert (latest.limit, latest.held) == (0, ())
        sent.clear()
        copies.report()
        assert not sent, "until another server is there"


# -- real servers and streams


@contextmanager
def wait_until(limit_s: float) -> Iterator[None]:
    """Fail if the body takes longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_s


@contextmanager
def copying(server: Server, task: str = "t") -> Iterator[OutsideCopy]:
    copy = OutsideCopy()
    copy.aim(SendCopies(server.place(task)))
    try:
        yield copy
    finally:
        copy.abandon()


def sends(copy: OutsideCopy, step: int, table: object, lineage: int = 0) -> int:
    """Send a state; return the bytes that went over the network."""
    sent = []
    original = CopyStream.send

    def counted(self: CopyStream, message: WireMessage, piece: bytes = b"") -> None:
        sent.append(len(piece))
        original(self, message, piece)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyStream, "send", counted)
        copy.send(fold({"step": step, "table": table}), step, lineage, Sending())
    return sum(sent)


def settle(copy: OutsideCopy, table: object) -> int:
    """Send a state until its unchanged pieces are known; return the next step."""
    return next(step + 1 for step in range(1, 40) if sends(copy, step, table) < 5_000_000)


def fetched(server: Server, newer_than: tuple[int, int] = (-1, -1)) -> object:
    found = outside_copy.fetch(server.place(), newer_than, lambda _: None)
    return None if found is None else found.tree.unfolded()


def test_only_changed_pieces_travel_and_the_state_comes_back_equal() -> None:
    table = torch.arange(5_000_000, dtype=torch.float32)
    with served() as server, copying(server) as copy:
        assert sends(copy, 1, table) > 20_000_000
        assert server.hear() == CopyHeld("t", 0, 1, pytest.approx(20_000_000, rel=0.01))
        step = settle(copy, table)
        table[4_900_000] = -1
        assert 4_000_000 > sends(copy, step, table) > 0, "the last piece and the header"
        assert copy.step == step
        found = fetched(server)
        assert isinstance(found, dict)
        assert found["step"] == step
        assert torch.equal(found["table"], table)
        assert fetched(server, (0, step)) is None, "the disk has it, too"
        assert fetched(server, (1, 0)) is None, "a later lineage is on disk"


def test_an_interrupted_copy_leaves_the_one_before() -> None:
    with served() as server, copying(server) as copy:
        step = settle(copy, torch.ones(4_000_000))
        interrupted = Hooked(3, InterruptedError)
        copy.send(fold({"step": step, "table": torch.zeros(4_000_000)}), step, 0, interrupted)
        assert copy.step == step - 1
        found = fetched(server)
        assert isinstance(found, dict)
        assert (found["step"], found["table"].unique().tolist()) == (step - 1, [1.0])
        assert sends(copy, step, torch.ones(4_000_000)) < 5_000_000, "the server has the other pieces already"
        assert copy.step == step


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


class Hooked(Sending):
    """Calls ``hook`` before the piece of this number is sent, once; an exception is raised instead."""

    def __init__(self, number: int, hook: Callable[[], object] | type[Exception]) -> None:
        super().__init__()
        self._numbers, self._number, self._hook = itertools.count(), number, hook

    def raise_if_stopped(self) -> None:
        super().raise_if_stopped()
        if next(self._numbers) == self._number:
            found = self._hook()
            if isinstance(found, Exception):
                raise found


@pytest.mark.parametrize("changed", [10, 6_000_000])
def test_a_replaced_worker_cannot_mix_its_state_with_a_newer_one(changed: int) -> None:
    table = torch.zeros(6_000_000)
    with served() as server, copying(server) as old, copying(server) as new:
        sends(old, 1, table, lineage=1)
        table[:changed] = 1.0
        newer = partial(sends, new, 50, torch.full((6_000_000,), 7.0), 2)
        old.send(fold({"step": 2, "table": table}), 2, 1, Hooked(4, newer))
        assert (old.step, new.step) == (1, 50)
        found = fetched(server)
        assert isinstance(found, dict)
        assert (found["step"], found["table"].unique().tolist()) == (50, [7.0])


def test_pieces_are_left_out_only_if_the_server_has_exactly_the_copy_they_are_from() -> None:
    table = torch.zeros(6_000_000)
    with served() as server, copying(server) as one, copying(server) as two:
        sends(one, 10, table, lineage=2)
        sends(two, 10, torch.full((6_000_000,), 7.0), lineage=2)
        table[0] = 1.0
        sends(one, 11, table, lineage=2)
        found = fetched(server)
        assert isinstance(found, dict)
        assert torch.equal(found["table"], table), "both resumed from the same state on disk, with the same versions"


def test_memory_is_reserved_only_while_a_copy_is_there_or_arrives() -> None:
    with served(limit_mb=50) as server:
        with outside_copy.connect(server.place("gone")) as stream:
            stream.send(PutCopy(0, 1, 20_000_000))
            assert stream.receive() == CopyState()
            with copying(server, "other") as other:
                sends(other, 1, torch.ones(4_000_000))
                assert other.step == -1
        with wait_until(20), copying(server, "other") as other:
            while other.step < 0:
                sends(other, 1, torch.ones(4_000_000))


def test_one_update_of_a_task_arrives_at_a_time() -> None:
    piece = b"x" * 4_000_000
    with served(limit_mb=50) as server, ExitStack() as stack:
        streams = [stack.enter_context(outside_copy.connect(server.place())) for _ in range(3)]
        for stream in streams:
            stream.send(PutCopy(0, 1, 20_000_000))
            assert stream.receive() == CopyState()
            stream.send(CopyPiece(0, len(piece), digest_of(piece)), piece)
        for stream in streams[:-1]:
            with pytest.raises((OSError, BadMessage)):
                stream.receive()
        streams[-1].send(EndCopy(1, digest_of_all([digest_of(piece)])))
        assert isinstance(found := streams[-1].receive(), CopyState)
        assert found.step == 1


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (CopyPiece(0, 0, digest_of(b"")), b""),
        (CopyPiece(0, 101, digest_of(b"a" * 101)), b"a" * 101),
        (EndCopy(1, ""), b""),
        (EndCopy(10**18, ""), b""),
    ],
)
def test_wrong_pieces_and_ends_are_refused(message: WireMessage, content: bytes) -> None:
    with served() as server, outside_copy.connect(server.place()) as stream:
        stream.send(PutCopy(0, 1, 100))
        stream.receive()
        stream.send(message, content)
        with pytest.raises((OSError, BadMessage)):
            stream.receive()


def test_memory_is_reused_but_never_while_someone_reads_it() -> None:
    with served() as server, copying(server) as copy:
        table = torch.zeros(6_000_000)
        step = settle(copy, table)
        with outside_copy.connect(server.place()) as reader:
            reader.send(GetCopy())
            reader.receive()
            for value in range(3):
                sends(copy, step + value, table.fill_(value))
            while isinstance(piece := reader.receive(), CopyPiece) and piece.size:
                assert digest_of(reader.piece(piece.size)) == piece.digest
        before = {id(content) for content, _ in server.server._copies["t"].pieces}  # noqa: SLF001
        for value in range(3, 7):
            sends(copy, step + value, table.fill_(value))
        assert {id(content) for content, _ in server.server._copies["t"].pieces} & before  # noqa: SLF001
        found = fetched(server)
        assert isinstance(found, dict)
        assert found["table"].unique().tolist() == [6.0]


def test_a_dropped_copy_that_is_arriving_is_not_kept() -> None:
    piece = b"x" * 100
    with served() as server, outside_copy.connect(server.place()) as stream:
        stream.send(PutCopy(0, 1, 100))
        stream.receive()
        server.agent.sendall(encode(DropCopy("t").to_dict()) + b"\n")
        with pytest.raises((OSError, BadMessage)):
            stream.receive()
        with suppress(OSError):
            stream.send(CopyPiece(0, 100, digest_of(piece)), piece)
        assert fetched(server) is None


def test_strangers_have_one_deadline_and_leave_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copy_server, "TIMEOUTS", replace(TIMEOUTS, authentication_s=0.5))
    with served() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow, wait_until(20):
            slow.settimeout(0.1)
            while True:
                try:
                    slow.sendall(b"x")
                    if not slow.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as odd:
            odd.sendall(b'{"task":"\\ud800"}\n')
            with suppress(ConnectionError):
                assert not odd.recv(1)
    assert "Traceback" not in capfd.readouterr().err


def test_the_server_goes_on_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        start = threading.Thread.start
        failed = threading.Event()

        def fails(thread: threading.Thread) -> None:
            if failed.is_set():
                start(thread)
            else:
                failed.set()
                raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", fails)
        with pytest.raises((OSError, BadMessage)):
            fetched(server)
        assert failed.is_set()
        assert fetched(server) is None


def test_a_copy_that_is_being_sent_delays_neither_a_save_nor_a_commit_and_never_fails_the_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own, tree = inner(State()), fold({"step": 1})
    own.saver.folder, copy = tmp_path, own.outside
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = CopyPlace("127.0.0.1", silent.getsockname()[1], "t", "00" * 32)
        copy.aim(SendCopies(place))
        copy.start(tree, 1, 0)
        assert copy.busy
        assert own.in_use(tree)
        assert own.saver.due
        before = time.monotonic()
        copy.abandon()
        assert time.monotonic() - before < busy_s(5.0)
        assert not own.in_use(tree)
        copy.aim(SendCopies(replace(place, key="no key")))
        copy.send(tree, 1, 0, Sending())
    assert not copy.due, "it is tried again later"
    assert "no copy of the state was sent" in capfd.readouterr().err


def test_nothing_of_an_abandoned_copy_is_confirmed() -> None:
    with served() as server, copying(server) as copy:
        sending = Hooked(3, lambda: sending.abandon())  # noqa: PLW0108 - it is not there yet
        copy.send(fold({"step": 1, "table": torch.ones(4_000_000)}), 1, 0, sending)
        assert copy.due
        assert fetched(server) is None


def test_strangers_and_damaged_copies_are_rejected() -> None:
    with served() as server, copying(server) as copy:
        with outside_copy.connect(server.place(secret=b"x" * 32)) as stranger:
            stranger.send(GetCopy())
            with pytest.raises((BadMessage, OSError)):
                stranger.receive()
        for piece in (0, -1):
            sends(copy, 1, torch.ones(2_000_000))
            server.server._copies["t"].pieces[piece][0][-1] ^= 1  # noqa: SLF001 - as a broken network or memory does
            with pytest.raises(BadCommit, match="damaged"):
                fetched(server)


def test_a_server_that_does_not_answer_delays_nothing_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = CopyPlace("127.0.0.1", silent.getsockname()[1], "t", os.urandom(32).hex())
        copy = OutsideCopy()
        copy.aim(SendCopies(place))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bftrain_elastic.wire.copy_stream.TIMEOUTS", replace(TIMEOUTS, copy_silence_s=0.3))
            copy.send(fold({"step": 1}), 1, 0, Sending())
        assert (copy.step, copy.due) == (-1, False)
