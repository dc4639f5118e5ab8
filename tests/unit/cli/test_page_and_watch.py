"""``bftrain live page`` and ``bftrain status --watch``."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Self
from unittest import mock

import pytest

from bftrain import NotAvailable
from tests.helpers.in_process import CommandLine
from tests.helpers.live_seen import ObservedRun

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path_factory.mktemp("live")) as running:
        running.submit("cnn", largest=3)
        running.lend("n1", "n2", "n3", "n4")
        yield running


class Watch:
    """``bftrain status --watch`` in a terminal of so many lines."""

    def __init__(self, live: ObservedRun, lines: int) -> None:
        self._live = live
        self._lines = lines
        self.screen = ""

    def __enter__(self) -> Self:
        self._ours, self._theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": str(self._lines)}
        command = [sys.executable, "-m", "bftrain", "status", "--watch", "--live", self._live.run.socket]
        terminal = self._theirs
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def until(self, words: str) -> None:
        """Wait for words, and forget what the screen showed until then."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.screen:
            assert time.monotonic() < deadline, self.screen[-3000:]
            if select.select([self._ours], [], [], 1.0)[0]:
                self.screen += os.read(self._ours, 65536).decode(errors="replace")
        assert "Traceback" not in self.screen
        self.screen = self.screen.partition(words)[2]


def test_watch_refreshes_the_status_and_leaves_the_terminal_as_it_was(live: ObservedRun) -> None:
    with Watch(live, lines=60) as watch:
        watch.until("4 available, 3 of them used")
        watch.until("cnn")
        live.lend("n5")
        watch.until("5 available, 3 of them used")
        live.take("n5")
        watch.process.send_signal(signal.SIGINT)
        watch.until("\x1b[?1049l")
        assert watch.process.wait(PATIENCE_S) == 0


def test_watch_continues_when_the_live_run_answers_again(live: ObservedRun) -> None:
    with Watch(live, lines=60) as watch:
        watch.until("4 available, 3 of them used")
        with mock.patch.object(live.world, "facts", side_effect=NotAvailable("busy")):
            watch.until("no answer since ")
            watch.until("4 available, 3 of them used")
        live.lend("n5")
        watch.until("5 available, 3 of them used")
        live.take("n5")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_watch_needs_a_terminal(bftrain: CommandLine, live: ObservedRun, more: tuple[str, ...]) -> None:
    ended = bftrain("status", "--watch", *more, "--live", live.run.socket)
    assert (ended.code, "needs a terminal" in ended.err) == (2, True)


def test_the_page_is_where_it_listens_with_its_token(bftrain: CommandLine, live: ObservedRun) -> None:
    ended = bftrain("live", "page", "--live", live.run.socket)
    assert (ended.code, ended.out) == (0, f"{live.address}#token={live.token}\n")
    assert json.loads(bftrain("live", "page", "--json", "--live", live.run.socket).out) == {
        "address": ended.out.strip()
    }


def test_only_users_that_can_read_the_token_get_it(bftrain: CommandLine, live: ObservedRun) -> None:
    token = live.run.token_file
    hidden = token.rename(token.with_name("elsewhere"))
    try:
        ended = bftrain("live", "page", "--live", live.run.socket)
    finally:
        hidden.rename(token)
    assert ended.code == 3
    assert "the token cannot be read" in ended.err
    assert ended.out == ""


def test_without_tcp_there_is_no_page(bftrain: CommandLine, live: ObservedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.inside.service, "addresses", ("unix:/somewhere",))
    ended = bftrain("live", "page", "--live", live.run.socket)
    assert ended.code == 4
    assert 'tcp = "127.0.0.1:8765"' in ended.err
