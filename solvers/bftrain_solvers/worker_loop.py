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
from typing import Any, Final

import msgspec
import numpy as np

from bftrain.values.solution import Limits, Termination
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import RawAnswer

LENGTH: Final = Struct("<Q")
_KINDS: Final = {"integer": np.bool_, "starts": np.int32, "columns": np.int32}  # all other fields contain floats
_OVERRUN_S: Final = 5.0  # long after the program abandons the worker


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix, field by field as raw bytes, and the limits."""

    fields: dict[str, bytes]
    limits: Limits


class WorkerReply(msgspec.Struct, frozen=True, kw_only=True):
    """A :class:`RawAnswer` with its columns as raw bytes."""

    termination: Termination
    columns: bytes | None = None
    bound: float | None = None
    words: str = ""


READY: Final = WorkerReply(termination=Termination.OPTIMAL, words="ready")


def framed(message: WorkerRequest | WorkerReply) -> bytes:
    """Return the message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def packed(matrix: ModelMatrix) -> dict[str, bytes]:
    """Return every array of ``matrix`` as bytes."""
    return {name: getattr(matrix, name).tobytes() for name in ModelMatrix.__slots__}


def unpacked(fields: dict[str, bytes]) -> ModelMatrix:
    """Undo :func:`packed`."""
    arrays: dict[str, Any] = {
        name: np.frombuffer(data, dtype=_KINDS.get(name, np.float64)) for name, data in fields.items()
    }
    return ModelMatrix(**arrays)


def main(module: str) -> None:
    """Serve until the input closes."""
    signal(SIGALRM, SIG_DFL)  # replaces the inherited handler: kills the process, also inside native code
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # libraries print to the standard output: keep that away from the answers
    solver = import_module(module)
    solver.load()
    answers.write(framed(READY))
    decoder = msgspec.msgpack.Decoder(WorkerRequest)
    source = sys.stdin.buffer
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        request = decoder.decode(source.read(LENGTH.unpack(head)[0]))
        answers.write(framed(_answer(request, solver.maximised)))


def _answer(request: WorkerRequest, maximised: Callable[[ModelMatrix, Limits], RawAnswer]) -> WorkerReply:
    setitimer(ITIMER_REAL, request.limits.deadline_s + _OVERRUN_S)
    try:
        found = maximised(unpacked(request.fields), request.limits)
    except Exception as error:  # noqa: BLE001 - the worker stays up; the program tells what happened
        return WorkerReply(termination=Termination.FAILED, words=f"{type(error).__name__}: {error}")
    finally:
        setitimer(ITIMER_REAL, 0.0)
    columns = None if found.columns is None else np.asarray(found.columns, dtype=np.float64).tobytes()
    return WorkerReply(termination=found.termination, columns=columns, bound=found.bound, words=found.words)


if __name__ == "__main__":
    main(sys.argv[1])
