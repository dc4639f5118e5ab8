"""Slow work is done in a thread that does not delay the end of the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from bftrain import NotAvailable
from bftrain.live.model.background_thread import run_in_daemon_thread, within
from tests.helpers.live_inside import in_a_loop, until


@in_a_loop
async def test_it_gives_what_the_function_gives_or_raises() -> None:
    assert await run_in_daemon_thread(lambda: threading.current_thread().name) == "bftrain-aside"
    with pytest.raises(ZeroDivisionError):
        await run_in_daemon_thread(lambda: 1 / 0)


@in_a_loop
async def test_a_cancelled_caller_leaves_it_running() -> None:
    go_on, came_back = threading.Event(), threading.Event()

    def slow() -> None:
        go_on.wait(30)
        came_back.set()

    waiting = asyncio.create_task(run_in_daemon_thread(slow))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await until(came_back.is_set)
    await asyncio.sleep(0.01)  # and its answer, which no caller waits for, does no harm


def test_a_process_ends_while_something_aside_hangs() -> None:
    words = """
import asyncio, time
from bftrain.errors import NotAvailable
from bftrain.live.model.background_thread import run_in_daemon_thread, within
async def go():
    task = asyncio.create_task(run_in_daemon_thread(lambda: time.sleep(600)))
    await asyncio.sleep(0.05)
asyncio.run(go())
"""
    subprocess.run([sys.executable, "-c", words], check=True, timeout=30)


@in_a_loop
async def test_what_comes_back_when_the_loop_is_closed_is_nobodys() -> None:
    go_on = threading.Event()
    threads = threading.active_count()

    def elsewhere() -> None:
        async def go() -> None:
            asyncio.get_running_loop().create_task(run_in_daemon_thread(lambda: go_on.wait(30)))
            await asyncio.sleep(0.01)

        asyncio.run(go())

    await run_in_daemon_thread(elsewhere)
    go_on.set()
    await until(lambda: threading.active_count() <= threads)


@in_a_loop
async def test_what_comes_too_late_is_undone_and_what_fails_too_late_is_not() -> None:
    undone: list[str] = []
    assert await within(30.0, lambda: 5, "it", undo=lambda: undone.append("first")) == 5
    with pytest.raises(ZeroDivisionError):
        await within(30.0, lambda: 1 / 0, "it", undo=lambda: undone.append("second"))
    go_on = threading.Event()
    for late, what in ((lambda: go_on.wait(30), "third"), (lambda: go_on.wait(30) / 0, "fourth")):
        with pytest.raises(NotAvailable, match=r"the folder does not come back within 0.01 s"):
            await within(0.01, late, "the folder", undo=partial(undone.append, what))
    go_on.set()
    await until(lambda: undone)
    await asyncio.sleep(0.01)
    assert undone == ["third"]
