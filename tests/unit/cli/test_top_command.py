"""``bftrain top`` and ``bftrain page``: what they show, in a pipe and on a screen, and how they end."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bftrain import Client
from bftrain.live.commands import top
from bftrain.live.commands.top_screen import TopView
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import (
    Cell,
    Happening,
    Harvested,
    HistoryView,
    LiveView,
    StatusView,
    TaskChanges,
    TaskRow,
    Update,
)
from tests.helpers.live_seen import ObservedRun

NOW = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
DAY = "2026-11-21"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]")


def status(**changes: Any) -> StatusView:  # noqa: ANN401 - any field
    given: dict[str, Any] = {
        "version": "1",
        "site": "physics",
        "state": "running",
        "user": "ann",
        "pid": 1,
        "scheduler": "slurm",
        "solver": "exact",
        "objective": "throughput",
        "since_s": NOW - 3700,
        "now_s": NOW,
        "pool": 10,
        "used": 8,
        "agents": 10,
        "drained": 0,
        "running": 1,
        "waiting": 1,
        "paused": 0,
        "over": 0,
        "speed": 1234.0,
        "steps": 9,
    }
    return StatusView(**{**given, **changes})


def task(number: int, name: str, **changes: Any) -> TaskRow:  # noqa: ANN401 - any field
    given: dict[str, Any] = {
        "number": number,
        "name": name,
        "user": "ann",
        "state": "running",
        "size": 4,
        "min_nodes": 1,
        "max_nodes": 8,
        "samples": 80.0,
        "done_samples": 50.0,
        "work_samples": 100.0,
        "step": 5,
        "loss": 0.25,
        "speed": 617.0,
        "since_s": NOW - 60,
        "ended_s": None,
        "node_s": 240.0,
        "rescales": 1,
        "preemptions": 0,
        "failures": 0,
    }
    return TaskRow(**{**given, **changes})


def scene(*rows: TaskRow, happened: int = 0, **changes: Any) -> LiveView:  # noqa: ANN401 - any field of the status
    cells = tuple(
        Cell(begin_s=NOW - 600 + second, known_s=1.0, pool=10.0, speed=second, sizes={1: 4.0 if second > 300 else 0.0})
        for second in range(600)
    )
    events = tuple(
        Happening(number=n, time_s=NOW + n, kind="joined", text=f"n{n} became idle") for n in range(happened)
    )
    history = HistoryView(span_s=600.0, width_s=1.0, cells=cells, happened=events)
    return LiveView(Update(status=status(**changes), day=DAY, tasks=TaskChanges(changed=rows), history=history))


def drawn(view: TopView, width: int, *, encoding: str = "utf-8") -> list[str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, width=width, force_terminal=False, highlight=False, markup=False)
    console.print(view)
    out.seek(0)
    return out.read().splitlines()


def test_pool_speed_harvest_and_tasks_are_shown() -> None:
    rows = (task(1, "cnn"), task(2, "bert", state="waiting", size=0, speed=0.0, work_samples=None, loss=None))
    day = Harvested(day=DAY, samples=2e6, node_s=7200.0)
    text = "\n".join(drawn(TopView(scene(*rows, happened=2, drained=3, harvested=(day,))), 140))
    assert "physics  running for 1 h 1 min" in text
    assert "8 of 10 nodes used, 3 drained" in text
    assert "speed 1,234 samples/s" in text
    assert "harvested today: 2.00 node-hours, 2 M samples" in text
    assert re.search(r"cnn +ann +running +4 +1-8 +50% +617 +0.25 +1 min 0 s +█+", text)
    assert re.search(r"bert +ann +waiting +0 +1-8 +5 +1 min 0 s", text)
    assert text.index("n1 became idle") < text.index("n0 became idle")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 250])
@pytest.mark.parametrize("height", [None, 8, 24])
def test_no_line_is_broken_on_any_terminal(width: int, height: int | None) -> None:
    rows = [task(number, f"a-task-with-a-very-long-name-indeed-{number}") for number in range(1, 40)]
    view = TopView(scene(*rows, happened=30), (NOW, "it ended " * 30), height=height, ends_with="q ends")
    lines = drawn(view, width)
    assert max(map(len, lines)) <= width
    if height is not None:
        assert len(lines) <= height
        assert lines[-1].startswith("q ends")
        assert any("more: bftrain queue" in line for line in lines)
    assert any(line.startswith("lost contact at ") for line in lines)
    if width >= 60 and height != 8:
        assert sum("running" in line and "50%" in line for line in lines) >= 5


@pytest.mark.parametrize("height", range(7, 40))
def test_where_there_is_little_room_tasks_come_before_what_happened(height: int) -> None:
    lines = drawn(TopView(scene(*(task(number, f"t{number}") for number in range(3)), happened=30), height=height), 80)
    shown = sum(line.startswith(("t0", "t1", "t2")) for line in lines)
    events_shown = sum("became idle" in line for line in lines)
    assert len(lines) <= height
    assert shown == min(3, height - 6) or (shown == height - 7 and f"and {3 - shown} more" in "\n".join(lines))
    assert events_shown == max(0, min(8, height - 10))


def test_tasks_that_run_come_first_and_those_long_over_are_gone() -> None:
    rows = (
        task(1, "old", state="done", ended_s=NOW - 5000),
        task(2, "done", state="done", ended_s=NOW - 50, size=0),
        task(3, "waits", state="waiting", size=0),
        task(4, "small", size=1),
        task(5, "large", size=5),
    )
    lines = drawn(TopView(scene(*rows)), 80)
    shown = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in {row.name for row in rows}]
    assert shown == ["large", "small", "waits", "done"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path_factory.mktemp("live")) as running:
        running.submit("cnn", largest=3)
        running.lend("n1", "n2", "n3", "n4")
        yield running


def test_in_a_pipe_it_prints_once(bftrain: CommandLine, live: ObservedRun) -> None:
    ended = bftrain("top", "--live", live.run.socket)
    assert (ended.code, ended.err) == (0, "")
    assert "3 of 4 nodes used" in ended.out
    assert re.search(r"^cnn +running +3 +1-3 ", ended.out, re.MULTILINE)
    assert "\x1b" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= 100


def test_as_json_it_is_the_first_update(bftrain: CommandLine, live: ObservedRun) -> None:
    ended = bftrain("top", "--json", "--live", live.run.socket)
    output = json.loads(ended.out)
    assert output["status"]["pool"] == 4
    assert output["nodes"]["changed"]["n4"] == ["free", 0]
    assert [row["name"] for row in output["tasks"]["changed"]] == ["cnn"]


class Terminal:
    """Our end of a pseudo-terminal, and what a program wrote there."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@contextmanager
def watched(live: ObservedRun, terminal: Terminal, script: Callable[[Callable[[str], str]], None]) -> Iterator[str]:
    """Watch ``live`` while ``script`` plays: it is given a way to wait until something is on the screen."""
    screen = io.StringIO()
    problems: list[BaseException] = []

    def until(words: str) -> str:
        deadline = time.monotonic() + 30
        while words not in (text := ESCAPES.sub("", screen.getvalue())):
            assert time.monotonic() < deadline, f"{words!r} never came: {text[-2000:]}"
            time.sleep(0.01)
        screen.seek(0)
        screen.truncate()
        return text

    def play() -> None:
        try:
            script(until)
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            problems.append(error)
            os.write(terminal.ours, b"q")

    console = Console(file=screen, force_terminal=True, width=90, height=24, highlight=False, markup=False)
    player = threading.Thread(target=play)
    player.start()
    with ExitStack() as stack:
        client = Client(live.run.socket)
        stack.callback(client.close)
        with top.Keyboard(terminal.theirs) as keyboard:
            top.watch(client, console, keyboard)
        player.join()
        if problems:
            raise problems[0]
        yield screen.getvalue()


def test_it_keeps_itself_up_to_date_and_leaves_the_terminal_as_it_was(live: ObservedRun, terminal: Terminal) -> None:
    def script(until: Callable[[str], str]) -> None:
        until("3 of 4 nodes used")
        assert not termios.tcgetattr(terminal.theirs)[3] & termios.ECHO
        live.lend("n5")
        until("3 of 5 nodes used")
        live.take("n5")
        until("n5 left: 4 nodes ours")
        os.write(terminal.ours, b"2")
        until("q ends")
        os.write(terminal.ours, b"\x1b[A")  # an arrow, which means nothing
        until("q ends")
        os.write(terminal.ours, b"xq")

    with watched(live, terminal, script) as left:
        assert termios.tcgetattr(terminal.theirs) == terminal.before
        assert "\x1b[?1049l" in left  # the screen of before is back


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(
    live: ObservedRun, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    def stop(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGSTOP)
        stopped.append(termios.tcgetattr(terminal.theirs) == terminal.before)

    def script(until: Callable[[str], str]) -> None:
        until("nodes used")
        signal.raise_signal(signal.SIGTSTP)
        until("nodes used")
        os.write(terminal.ours, b"q")

    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, n: stop(pid, n) if n == signal.SIGSTOP else kill(pid, n))
    with watched(live, terminal, script):
        assert stopped == [True]


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
