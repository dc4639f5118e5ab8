"""Pickles written operation by operation: those that Python itself would never write, and those that would do harm."""

from __future__ import annotations

import io
import struct

import pytest

from bftrain import BadInput
from bftrain_datasets.published.frame import SavedFrame, load_frame

MARK, STOP = b"(", b"."


def whole(*parts: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + b"".join(parts) + STOP


def text(value: str) -> bytes:
    octets = value.encode()
    return b"X" + struct.pack("<I", len(octets)) + octets


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def blob(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def asked(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def asked_on_stack(module: str, name: str) -> bytes:
    """Ask for a name whose parts stand on the stack."""
    return text(module) + text(name) + b"\x93"


def tupled(*parts: bytes) -> bytes:
    return MARK + b"".join(parts) + b"t"


def listed(*parts: bytes) -> bytes:
    return b"]" + MARK + b"".join(parts) + b"e"


def mapped(**parts: bytes) -> bytes:
    return b"}" + MARK + b"".join(text(key) + part for key, part in parts.items()) + b"u"


def called(what: bytes, *args: bytes) -> bytes:
    return what + tupled(*args) + b"R"


def with_state(made: bytes, state: bytes) -> bytes:
    return made + state + b"b"


def dtype(name: str, order: str = "|") -> bytes:
    made = called(asked("numpy", "dtype"), text(name), b"\x89", b"\x88")
    rest = [b"N", b"N", b"N", number(-1), number(-1), number(0)]
    return with_state(made, tupled(number(3), text(order), *rest))


def array(kind: bytes, shape: tuple[int, ...], data: bytes, *, by_column: bool = False) -> bytes:
    reconstruct = asked("numpy.core.multiarray", "_reconstruct")
    made = called(reconstruct, asked("numpy", "ndarray"), tupled(number(0)), blob(b"b"))
    sizes = tupled(*(b"\x8a\x08" + struct.pack("<q", size) for size in shape))
    return with_state(made, tupled(number(1), sizes, kind, b"\x88" if by_column else b"\x89", data))


def labels(data: bytes, kind: bytes = b"") -> bytes:
    what = asked("pandas.core.indexes.base", "_new_Index")
    return called(what, kind or asked("pandas.core.indexes.base", "Index"), mapped(data=data, name=b"N"))


def names(*found: str) -> bytes:
    return labels(array(dtype("O8"), (len(found),), listed(*map(text, found))))


def times(*seconds: int) -> bytes:
    return labels(array(dtype("i8", "<"), (len(seconds),), blob(struct.pack(f"<{len(seconds)}q", *seconds))))


def frame(columns: bytes, index: bytes, *blocks: tuple[bytes, bytes]) -> bytes:
    """Describe a table; each block is its values and their places."""
    made = (called(asked("pandas._libs.internals", "_unpickle_block"), *block, number(2)) for block in blocks)
    manager = called(asked("pandas.core.internals.managers", "BlockManager"), tupled(*made), listed(columns, index))
    empty = asked("pandas.core.frame", "DataFrame") + b")\x81"
    return with_state(empty, mapped(_mgr=manager))


def places(begin: int, end: int, step: int = 1) -> bytes:
    return called(asked("builtins", "slice"), number(begin), number(end), number(step))


def table(values: bytes, *, rows: int = 2, columns: tuple[str, ...] = ("a", "b")) -> bytes:
    """Return the pickle of a table with these values in one block."""
    parts = (values, places(0, len(columns)))
    return whole(frame(names(*columns), times(*range(100, 100 + rows)), parts))


def load(content: bytes) -> SavedFrame:
    """Read a pickle as a table; it is called x.pkl."""
    return load_frame(io.BytesIO(content), "x.pkl")


def refused(content: bytes) -> str:
    """Return what is said of a pickle that must be refused as no table."""
    with pytest.raises(BadInput) as caught:
        load(content)
    assert caught.value.where == "x.pkl"
    return caught.value.what
