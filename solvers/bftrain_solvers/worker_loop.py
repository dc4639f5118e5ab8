"""The worker process of a native library: ``python -m bftrain_solvers.worker_loop MODULE``.

It reads problems and writes answers, using ``maximised`` of the solver's ``MODULE``. A message is a length followed by
that many bytes. The process exits when its input closes, and an alarm kills it long after a missed deadline.
It therefore never outlives the program by more than its current solve, even if the library does not return.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, setitimer, signal
from struct import Struct
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.solution import Limits, Termination
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import RawAnswer

T = TypeVar("T")

LENGTH: Final = Struct("<Q")
_OVERRUN_S: Final = 5.0  # long after the program abandons the worker
READY: Final = RawAnswer(termination=Termination.OPTIMAL, words="ready")


class WorkerRequest(msgspec.Struct, frozen=True):
    """A problem for the worker, which replies with a ``RawAnswer``."""

    matrix: ModelMatrix
    limits: Limits


def framed(message: WorkerRequest | RawAnswer) -> bytes:
    """Return the message with its length in front; arrays become raw bytes."""
    body = msgspec.msgpack.encode(message, enc_hook=np.ndarray.tobytes)
    return LENGTH.pack(len(body)) + body


def decoded(body: bytes, kind: type[T]) -> T:
    """Return a message of this kind without its length."""
    return msgspec.msgpack.decode(body, type=kind, dec_hook=_array)


def _array(kind: Any, data: bytes) -> NDArray[Any]:  # noqa: ANN401 - NDArray[number]
    return np.frombuffer(data, dtype=kind.__args__[1].__args__[0])


def main(module: str) -> None:
    """Serve until the input closes."""
    signal(SIGALRM, SIG_DFL)  # replaces the inherited handler: kills the process, also inside native code
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # libraries print to the standard output: keep that away from the answers
    solver = import_module(module)
    solver.load()
    answers.write(framed(READY))
    source = sys.stdin.buffer
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        request = decoded(source.read(LENGTH.unpack(head)[0]), WorkerRequest)
        answers.write(framed(_answer(request, solver.maximised)))


def _answer(request: WorkerRequest, maximised: Callable[[ModelMatrix, Limits], RawAnswer]) -> RawAnswer:
    setitimer(ITIMER_REAL, request.limits.deadline_s + _OVERRUN_S)
    try:
        return maximised(request.matrix, request.limits)
    except Exception as error:  # noqa: BLE001 - the worker continues; the program reports the error
        return RawAnswer(termination=Termination.FAILED, words=f"{type(error).__name__}: {error}")
    finally:
        setitimer(ITIMER_REAL, 0.0)


if __name__ == "__main__":
    main(sys.argv[1])
