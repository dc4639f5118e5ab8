"""Runs slow calls in daemon threads, which do not keep the process from ending.

``asyncio.to_thread`` would: a process waits for its threads, even if one hangs in a dead file system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from bftrain.errors import NotAvailable

R = TypeVar("R")


async def run_in_daemon_thread(function: Callable[[], R]) -> R:
    """Return the result of ``function`` without blocking the loop; cancelling the caller does not stop the thread."""
    answer: Future[R] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            answer.set_exception(error)

    Thread(target=run, name="bftrain-aside", daemon=True).start()
    return await asyncio.wrap_future(answer)


async def within(patience_s: float, function: Callable[[], R], what: str, *, undo: Callable[[], None]) -> R:
    """Return the result of ``function``; raise NotAvailable, naming ``what``, if it takes longer than ``patience_s``.

    If the function succeeds later, or after the caller was cancelled, ``undo`` is called.
    """
    job = asyncio.ensure_future(run_in_daemon_thread(function))

    def late(done: asyncio.Future[R]) -> None:
        if not done.cancelled() and done.exception() is None:
            undo()

    try:
        await asyncio.wait((job,), timeout=patience_s)
    finally:
        if not job.done():
            job.add_done_callback(late)
    if not job.done():
        raise NotAvailable(
            f"{what} does not respond within {patience_s:g} s", fix="see whether its file system answers"
        )
    return job.result()
