"""Columns of an ``.npz`` archive: headers are checked against the member size before any array is allocated.

``numpy.load`` allocates the size in a header before it checks the data, and passes on exceptions of Python's
parser. Here a column is a one-dimensional array, as long as its member, or a readable error is raised.
"""

from __future__ import annotations

import ast
import re
import zipfile
from typing import IO, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

_MAGIC: Final = b"\x93NUMPY"
_SIZE_BYTES: Final = {b"\x01\x00": 2, b"\x02\x00": 4}  # size of the header length field, by version
_HEADER_BYTES: Final = 4096
_NUMBERS: Final = re.compile(r"[<>|=]?([iu][1248]|f[248])")
_SAID: Final = {"descr", "fortran_order", "shape"}


class NpyHeader(msgspec.Struct, frozen=True):
    """Description of a column: ``size`` numbers of type ``dtype``, from byte ``data_at`` to the end of the member."""

    dtype: np.dtype[Any]
    size: int
    data_at: int


def read_header(archive: zipfile.ZipFile, member: str) -> NpyHeader:
    """Return a header; raise a readable ``ValueError`` if the column does not fit its member."""
    with archive.open(member) as source:
        said, data_at = _header_fields(source)
    kind, shape = said["descr"], said["shape"]
    if not (isinstance(kind, str) and _NUMBERS.fullmatch(kind)):
        raise ValueError(f"must hold numbers, not {str(kind)[:40]}")
    if not (isinstance(shape, tuple) and all(type(length) is int and length >= 0 for length in shape)):
        raise ValueError(f"its shape is {str(shape)[:40]}")
    if len(shape) != 1:
        raise ValueError(f"must be a one-dimensional list, not {len(shape)} dimensions")
    dtype = np.dtype(kind)
    there = archive.getinfo(member).file_size - data_at
    if shape[0] * dtype.itemsize != there:
        raise ValueError(f"declares {shape[0]:,} numbers of {8 * dtype.itemsize} bits, but has {there:,} bytes")
    return NpyHeader(dtype, shape[0], data_at)


def read_column(archive: zipfile.ZipFile, member: str, header: NpyHeader) -> NDArray[Any]:
    """Return the column; the archive verifies its checksum."""
    return np.frombuffer(archive.read(member), header.dtype, header.size, header.data_at)


def _header_fields(source: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Return the literal at the begin of a member, and the offset of the numbers."""
    begin = source.read(len(_MAGIC) + 2)
    size_bytes = _SIZE_BYTES.get(begin[len(_MAGIC) :])
    if not begin.startswith(_MAGIC) or size_bytes is None:
        raise ValueError("is not a NumPy array of version 1 or 2")
    size = int.from_bytes(source.read(size_bytes), "little")
    if size > _HEADER_BYTES:
        raise ValueError(f"its header has {size:,} bytes, above the limit of {_HEADER_BYTES:,}")
    try:
        said = ast.literal_eval(source.read(size).decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("its header cannot be read") from error
    if not isinstance(said, dict) or said.keys() != _SAID:
        raise ValueError("its header is not from a NumPy array")
    return said, len(begin) + size_bytes + size
