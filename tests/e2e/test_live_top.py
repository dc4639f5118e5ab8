"""``bftrain top`` as people call it, in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.live_seen import ObservedRun

PATIENCE_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Top:
    """The command in a pseudo-terminal of so many columns and lines."""

    def __init__(self, live: ObservedRun, columns: int = 60, lines: int = 20, term: str = "xterm-256color") -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self._theirs = theirs
        self.before = termios.tcgetattr(theirs)
        env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bftrain", "top", "--live", live.run.socket],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": term, "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        self.screen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until(self, words: str) -> None:
        """Wait until something was on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in ESCAPES.sub("", self.screen):
            assert time.monotonic() < deadline, self.screen[-3000:]
            self._read(1.0)

    def ended(self) -> int:
        """Return the exit code, with all that was written until then."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.screen[-3000:]
            self._read(0.1)
        self._read(0.1)
        return self.process.wait()

    @property
    def as_before(self) -> bool:
        """Whether the terminal is as it was: its modes, its screen, its cursor."""
        last = {name: self.screen.rfind(f"\x1b[?{name}") for name in ("1049h", "1049l", "25l", "25h")}
        there = last["1049l"] > last["1049h"] >= 0 and last["25h"] > last["25l"]
        return there and termios.tcgetattr(self._theirs) == self.before

    def _read(self, patience_s: float) -> None:
        while select.select([self._ours], [], [], patience_s)[0]:
            self.screen += os.read(self._ours, 65536).decode(errors="replace")
            patience_s = 0.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path_factory.mktemp("live")) as running:
        running.submit("a-task-with-quite-a-long-name", largest=3)
        running.lend("n1", "n2", "n3", "n4")
        yield running


def test_q_ends_it_and_the_terminal_is_as_it_was(live: ObservedRun) -> None:
    with Top(live) as top:
        top.until("3 of 4 nodes used")
        top.until("a-task-with-quite")
        assert not top.as_before
        live.lend("n5")
        top.until("3 of 5 nodes used")
        live.take("n5")
        top.type(b"q")
        assert top.ended() == 0
        assert top.as_before
        assert "Traceback" not in top.screen


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_ends_it_as_well(live: ObservedRun, number: signal.Signals) -> None:
    with Top(live) as top:
        top.until("nodes used")
        top.process.send_signal(number)
        assert top.ended() == 0
        assert top.as_before


def test_when_the_live_run_ends_it_says_so_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with ObservedRun(tmp_path) as live, Top(live) as top:
        top.until("0 of 0 nodes used")
        live.end()
        top.until("lost contact at ")
        live.world.allowed.add("n1")
        live.begin()
        top.until("0 of 1 nodes used")
        top.type(b"q")
        assert top.ended() == 0
        assert top.as_before
