"""Calls into a thread that waits in ``selectors``: from any other thread, and with an answer if one is wanted."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

R = TypeVar("R")


class ThreadCalls:
    """The calls that wait for the thread; ``descriptor`` can be read when there are any."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self.descriptor, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, function: Callable[[], object]) -> None:
        """Let the thread call ``function`` soon."""
        self._calls.append(function)
        with suppress(BlockingIOError):
            os.write(self._woken, b".")

    def ask(self, function: Callable[[], R], timeout_s: float) -> R:
        """Let the thread call ``function``, and return what it returns. Not from that thread itself."""
        answer: Future[R] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                answer.set_exception(error)

        self.add(run)
        return answer.result(timeout_s)

    def calm(self) -> None:
        """Take note of the waking; in the thread."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def run(self) -> None:
        """Make all calls that wait; in the thread."""
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - one call that goes wrong must not end the thread
                traceback.print_exc()

    def close(self) -> None:
        """Refuse further calls; the thread has ended."""
        if self._woken >= 0:
            os.close(self.descriptor)
            os.close(self._woken)
            self.descriptor = self._woken = -1
