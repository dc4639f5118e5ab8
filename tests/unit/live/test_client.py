"""Clients: odd answers are reported, and a daemon that restarts is waited for."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from bftrain import BadInput, Client, NotAllowed, NotAvailable, NotFound, NotNow
from tests.helpers.live_inside import submit
from tests.helpers.live_thread import live_thread
from tests.helpers.schedulers import SlurmSettings
from tests.helpers.timeouts import Timeouts, set_timeouts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n[]"


class Odd:
    """A server that answers each connection with bytes that a test gives, and hangs up."""

    def __init__(self, path: Path, *answers: bytes) -> None:
        self.path = path
        self.heard: list[bytes] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._run, args=(answers,), daemon=True)
        self._thread.start()

    def _run(self, answers: tuple[bytes, ...]) -> None:
        for answer in answers:
            connection, _ = self._server.accept()
            with connection:
                connection.settimeout(10)
                self.heard.append(_whole(connection))
                connection.sendall(answer)

    def close(self) -> None:
        self._server.close()
        self._thread.join(10)


def _whole(connection: socket.socket) -> bytes:
    """Read a request to its end: hanging up before would take the answer from the client."""
    heard = connection.recv(65536)
    said = re.search(rb"content-length: (\d+)", heard, re.IGNORECASE)
    wanted = len(heard.partition(b"\r\n\r\n")[0]) + 4 + int(said[1] if said else 0)
    while len(heard) < wanted:
        heard += connection.recv(65536)
    return heard


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"", NotAvailable, "no live run answers"),
        (b"hello\r\n\r\n", NotAvailable, "no live run answers"),
        (b"HTTP/1.1 418 X\r\nContent-Length: 3\r\n\r\ntea", BadInput, "it answered 418"),
        (OK.replace(b"[]", b"{}"), BadInput, "use the same version"),
        (b'HTTP/1.1 503 X\r\nContent-Length: 34\r\n\r\n{"error":{"what":"w","where":"x"}}', NotAvailable, "x: w"),
    ],
)
def test_odd_answers_are_said(answer: bytes, kind: type[Exception], words: str, tmp_path: Path) -> None:
    with closing(Odd(tmp_path / "s", answer)) as odd:
        client = Client(str(odd.path))
        with pytest.raises(kind, match=words) as raised:
            client.nodes()
        assert str(odd.path) in str(raised.value) or "x: w" in words


def test_refusals_keep_their_kind_and_their_words(tmp_path: Path) -> None:
    with live_thread(tmp_path) as run:
        client = Client(run.socket)
        run.do(lambda inside: submit(inside.service, "a"))
        with pytest.raises(NotFound, match="no task is called 'b'") as raised:
            client.task("b")
        assert raised.value.fix == "list yours: bftrain status --all"
        client.change("a", "cancel")
        with pytest.raises(NotNow, match="is cancelled already"):
            client.change("#1", "pause")
        assert client.logs("a") == ()


def test_only_operators_is_a_kind_of_its_own(tmp_path: Path) -> None:
    body = b'{"error":{"what":"no"}}'
    answer = b"HTTP/1.1 403 X\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with closing(Odd(tmp_path / "s", answer)) as odd:
        client = Client(str(odd.path))
        with pytest.raises(NotAllowed, match="no"):
            client.drain(("a",))
        assert odd.heard[0].startswith(b"POST /v1/drain ")


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_a_call_waits_for_a_daemon_that_restarts(tmp_path: Path, *, killed: bool) -> None:
    path = tmp_path / "s"
    if killed:  # its socket is left
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))

    def restart() -> None:
        path.unlink(missing_ok=True)
        servers.append(Odd(path, OK))

    servers: list[Odd] = []
    timer = threading.Timer(0.5, restart)
    timer.start()
    try:
        assert Client(str(path)).nodes() == ()
    finally:
        timer.join()
        servers[0].close()


def test_a_call_fails_when_no_daemon_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, restart_s=0.3)
    begun = time.monotonic()
    with pytest.raises(NotAvailable, match=r"no live run answers within 0.3 s: there is no such socket"):
        Client(str(tmp_path / "s")).nodes()
    assert time.monotonic() - begun >= 0.3
    with pytest.raises(NotAvailable, match="no live run answers: there is no such socket"):
        Client(str(tmp_path / "never" / "s")).nodes()


def test_a_client_waits_longer_than_the_daemon_waits_for_others() -> None:
    times, scheduler = Timeouts(), SlurmSettings(partition="scavenge")
    assert max(2.0 * times.file_system_s, scheduler.command_timeout_s) < times.answer_s
