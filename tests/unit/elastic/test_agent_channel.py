"""The socket between a worker and its agent is found wherever temporary files are kept."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain_elastic import finish
from bftrain_elastic.worker.agent_channel import AgentChannel, reachable, script_line


@pytest.mark.parametrize("depth", [1, 30])
def test_a_path_may_be_longer_than_the_kernel_takes(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["scratch"] * depth)
    folder.mkdir(parents=True)
    path = str(folder / "agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        with reachable(path) as name:
            assert len(name) < 108
            door.bind(name)
        door.listen()
        channel = AgentChannel(path, "w1")
        guest, _ = door.accept()
        with guest:
            assert json.loads(guest.recv(1000)) == {"type": "hello", "worker": "w1"}
        channel.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[AgentChannel, socket.socket]]:
    """Yield a worker's channel and the agent's end of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(tmp_path / "agent"))
        door.listen()
        channel = AgentChannel(str(tmp_path / "agent"), "w1")
        guest, _ = door.accept()
        with guest:
            guest.settimeout(10)
            assert json.loads(guest.recv(1000))["type"] == "hello"
            yield channel, guest
            channel.close()


def test_an_agent_that_does_not_read_blocks_no_other_and_receives_the_last_message(
    pair: tuple[AgentChannel, socket.socket],
) -> None:
    channel, guest = pair
    for step in range(100_000):
        channel.mention("report", json.dumps({"type": "report", "step": step}).encode())
        if step % 10 == 0:
            channel.mention("on_disk", json.dumps({"type": "on_disk", "step": step}).encode())
    heard: list[dict[str, object]] = []

    def read() -> None:
        while not heard or heard[-1]["type"] != "done":
            heard.append(json.loads(guest.recv(1000)))

    reader = threading.Thread(target=read)
    reader.start()
    channel.send({"type": "done", "step": 100_000})
    reader.join(20)
    assert len(heard) < 10_000, "what there was no room for is not kept"
    assert {"type": "report", "step": 99_999} in heard[-3:]
    assert {"type": "on_disk", "step": 99_990} in heard[-3:]


def test_the_stack_of_a_worker_is_reported_without_its_help(pair: tuple[AgentChannel, socket.socket]) -> None:
    channel, guest = pair
    channel.position = lambda: ("commit", 7)
    channel.listen()

    def ask() -> dict[str, object]:
        guest.send(b'{"type":"position"}')
        answer: dict[str, object] = json.loads(guest.recv(1000))
        return answer

    asked: list[dict[str, object]] = []
    sorted([0], key=lambda _: asked.append(ask()))  # however deep it is in code of others
    found = str(asked[0].pop("line"))
    assert asked == [{"type": "position", "place": "commit", "commits": 7}]
    assert found.startswith("test_agent_channel.py:")
    assert found.endswith(" in ask")


def test_a_thread_that_is_in_no_script_has_no_line() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    assert thread.ident is not None
    assert script_line(thread.ident) == ""
    event.set()
    thread.join()
    assert script_line(thread.ident) == ""


def test_a_program_says_that_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BFTRAIN_SOCKET", raising=False)
    finish()  # without an agent nothing happens
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(tmp_path / "agent"))
        door.listen()
        monkeypatch.setenv("BFTRAIN_SOCKET", str(tmp_path / "agent"))
        monkeypatch.setenv("BFTRAIN_WORKER", "t/n1/0/1-1")
        finish()
        guest, _ = door.accept()
        with guest:
            assert json.loads(guest.recv(1000)) == {"type": "hello", "worker": "t/n1/0/1-1"}
            assert json.loads(guest.recv(1000)) == {"type": "finished"}
            assert guest.recv(1000) == b""
    with pytest.warns(RuntimeWarning, match="the end of the work could not be reported"):
        finish()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is how it is seen
def test_a_worker_whose_channel_breaks_does_not_wait_for_ever(pair: tuple[AgentChannel, socket.socket]) -> None:
    channel, guest = pair

    def breaks() -> None:
        raise RuntimeError("CUDA error")

    channel.on_abort = breaks
    channel.listen()
    begun = time.monotonic()
    guest.send(json.dumps({"type": "abort"}).encode())
    assert channel.next(60.0) is None, "the worker ends, as when its agent is gone"
    assert time.monotonic() - begun < 30
