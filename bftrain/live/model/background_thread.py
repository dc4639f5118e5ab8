"""Runs slow calls in daemon threads, which do not keep the process from ending.

``asyncio.to_thread`` would: a process waits for its threads, even if one hangs in a dead file system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar, cast

from bftrain.errors import NotAvailable

R = TypeVar("R")


async def run_in_daemon_thread(function: Callable[[], R]) -> R:
    """Return the result of ``function`` without blocking the loop; cancelling the caller does not stop the thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()

    def settle(value: R | None, error: BaseException | None) -> None:
        if answer.done():
            return  # cancelled: the caller is gone
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(cast("R", value))

    def run() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # noqa: BLE001 - it belongs to the caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    Thread(target=run, name="bftrain-aside", daemon=True).start()
    return await answer


async def within(patience_s: float, function: Callable[[], R], what: str, *, undo: Callable[[], None]) -> R:
    """Return the result of ``function`` if it finishes within ``patience_s``; pass a later result to ``undo``."""
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
        raise NotAvailable(f"{what} does not return within {patience_s:g} s", fix="see whether its file system answers")
    return job.result()
