"""Messages between the program and its CBC worker process: a length, then that many bytes."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np

from bftrain_solvers.matrix import ModelMatrix

LENGTH: Final = Struct("<Q")
_KINDS: Final = {"integer": np.bool_, "starts": np.int32, "columns": np.int32}  # every other field holds floats


class CbcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix, field by field as raw bytes, and the limits."""

    fields: dict[str, bytes]
    seconds: float
    relative_gap: float
    threads: int


class CbcReply(msgspec.Struct, frozen=True, kw_only=True):
    """What CBC said; ``status`` is a name of python-mip's OptimizationStatus, or ``raised``."""

    status: str
    columns: bytes | None = None
    bound: float | None = None
    words: str = ""


def framed(message: CbcRequest | CbcReply) -> bytes:
    """Put the length before the message."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def packed(matrix: ModelMatrix) -> dict[str, bytes]:
    """Give every array of ``matrix`` as bytes."""
    return {name: getattr(matrix, name).tobytes() for name in ModelMatrix.__slots__}


def unpacked(fields: dict[str, bytes]) -> ModelMatrix:
    """Undo :func:`packed`."""
    arrays: dict[str, Any] = {
        name: np.frombuffer(data, dtype=_KINDS.get(name, np.float64)) for name, data in fields.items()
    }
    return ModelMatrix(**arrays)
