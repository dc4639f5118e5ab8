"""What happens when nothing catches an error of a C++ library: the process is aborted, unless something else is set."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def instead_of_abort(last: Callable[[], object]) -> Iterator[None]:
    """Call ``last`` and end with ``EX_TEMPFAIL`` where a C++ error would abort the process. Without libstdc++: nothing.

    Horovod's thread lets an error of Gloo through when a member dies while a group forms. An abort would look like a
    failure of the script, and the state in memory would be lost.
    """
    handler_type = ctypes.CFUNCTYPE(None)

    def end() -> None:
        try:
            with suppress(Exception):
                last()
            sys.stderr.write("bftrain: the group did not form: the connection to another worker was lost\n")
            sys.stderr.flush()
        finally:
            os._exit(os.EX_TEMPFAIL)

    handler = handler_type(end)
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]  # std::set_terminate
    except (OSError, AttributeError):
        yield
        return
    set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
    before = set_terminate(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_terminate(before)
