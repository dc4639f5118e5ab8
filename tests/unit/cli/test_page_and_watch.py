"""``bftrain page`` and ``bftrain status --watch``."""

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
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.live_seen import ObservedRun

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path_factory.mktemp("live")) as running:
        running.submit("cnn", largest=3)
        running.lend("n1", "n2", "n3", "n4")
        yield running


def test_watch_refreshes_the_status_and_leaves_the_terminal_as_it_was(live: ObservedRun) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "60"}
    command = [sys.executable, "-m", "bftrain", "status", "--watch", "--live", live.run.socket]
    screen = ""

    def until(words: str) -> None:
        nonlocal screen
        deadline = time.monotonic() + PATIENCE_S
        while words not in screen:
            assert time.monotonic() < deadline, screen[-3000:]
            if select.select([ours], [], [], 1.0)[0]:
                screen += os.read(ours, 65536).decode(errors="replace")

    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        try:
            until("4 ours, 3 of them used")
            until("cnn")
            live.lend("n5")
            until("5 ours, 3 of them used")
            live.take("n5")
            process.send_signal(signal.SIGINT)
            until("\x1b[?1049l")
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    assert "Traceback" not in screen


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_watch_needs_a_terminal(bftrain: CommandLine, live: ObservedRun, more: tuple[str, ...]) -> None:
    ended = bftrain("status", "--watch", *more, "--live", live.run.socket)
    assert (ended.code, "needs a terminal" in ended.err) == (2, True)


def test_the_page_is_where_it_listens_with_its_token(bftrain: CommandLine, live: ObservedRun) -> None:
    ended = bftrain("page", "--live", live.run.socket)
    assert (ended.code, ended.out) == (0, f"{live.address}#token={live.token}\n")
    assert json.loads(bftrain("page", "--json", "--live", live.run.socket).out) == {"address": ended.out.strip()}


def test_a_browser_gets_its_address_by_a_private_file_and_not_in_its_arguments(
    bftrain: CommandLine, live: ObservedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)) or True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    ended = bftrain("page", "--open", "--live", live.run.socket)
    assert (ended.code, ended.out) == (0, "")
    assert live.token not in ended.err + opened[0]
    (file,) = tmp_path.glob("bftrain-page-*.html")
    assert opened == [file.as_uri()]
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"url={live.address}#token={live.token}" in file.read_text()


def test_only_users_that_can_read_the_token_get_it(bftrain: CommandLine, live: ObservedRun) -> None:
    token = live.run.token_file
    hidden = token.rename(token.with_name("elsewhere"))
    try:
        ended = bftrain("page", "--live", live.run.socket)
    finally:
        hidden.rename(token)
    assert ended.code == 3
    assert "the token cannot be read" in ended.err
    assert ended.out == ""


def test_without_tcp_there_is_no_page(bftrain: CommandLine, live: ObservedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.inside.service, "addresses", ("unix:/somewhere",))
    ended = bftrain("page", "--live", live.run.socket)
    assert ended.code == 4
    assert 'tcp = "127.0.0.1:8765"' in ended.err
