"""Conversions between Arrow and NumPy arrays. Arrow's own import pandas, which takes longer than most files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Column = Any  # an Arrow array; pyarrow is untyped


def numpy_of(column: Column) -> NDArray[Any]:
    """Return a column of numbers or truth values; nulls have any value."""
    data, first, size = column.buffers()[1] or b"", column.offset, len(column)
    if pa.types.is_boolean(column.type):
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return bits[first : first + size].view(np.bool_)
    found: NDArray[Any] = np.frombuffer(data, dtype=column.type.to_pandas_dtype())[first : first + size]
    return found


def arrow_of(values: NDArray[np.bool_] | NDArray[np.int64]) -> Column:
    """Return a column of truth values or whole numbers."""
    is_mask = values.dtype == np.bool_
    data = np.packbits(values, bitorder="little") if is_mask else np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.bool_() if is_mask else pa.int64(), values.size, [None, pa.py_buffer(data)])


def arrow_texts(texts: Sequence[str]) -> Column:
    """Return a column of texts."""
    joined = "".join(texts)
    lengths = map(len, texts if joined.isascii() else [text.encode() for text in texts])
    offsets = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, len(texts)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


EMPTY: Final = arrow_texts([""])[0]
NULL: Final = pa.nulls(1, pa.string())[0]
