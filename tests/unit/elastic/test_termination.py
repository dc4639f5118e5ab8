"""SIGTERM while a worker trains: it is notified, and processes that the worker forked end of it, however young."""

import multiprocessing
import os
import signal
import time

from bftrain_elastic.worker.termination import on_sigterm


def _wait() -> None:
    time.sleep(60)


def test_sigterm_calls_and_nothing_else() -> None:
    heard: list[int] = []
    with on_sigterm(lambda: heard.append(1)):
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [1]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_forked_process_ends_of_a_sigterm_that_comes_at_once() -> None:
    """Python drops signals that come before a forked process's first line, if Python itself would answer them."""
    heard: list[int] = []
    forked = multiprocessing.get_context("fork")
    codes = []
    with on_sigterm(lambda: heard.append(1)):
        for _ in range(30):
            child = forked.Process(target=_wait)
            child.start()
            child.terminate()
            child.join(5)
            codes.append(child.exitcode)
            child.kill()
    assert set(codes) == {-signal.SIGTERM}
    assert heard == []


def test_a_forked_process_has_the_handler_that_was_there_before_and_keeps_it() -> None:
    forked = multiprocessing.get_context("fork")
    with on_sigterm(lambda: None), on_sigterm(lambda: None):
        child = forked.Process(target=_check_default)
        child.start()
        child.join(5)
    assert child.exitcode == 0


def _check_default() -> None:
    with on_sigterm(lambda: None):
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
