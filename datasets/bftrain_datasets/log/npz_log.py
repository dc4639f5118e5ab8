"""The ``.npz`` log file: the columns of the log in a ZIP archive of NumPy arrays, without pickle.

Headers are checked against the member size: ``numpy.load`` allocates the size in a header before it checks the data.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, BadValue
from bftrain.files import check_unpacked
from bftrain.nodesets import MOST_NODES
from bftrain.values import wire
from bftrain_datasets.log.eventlog import FORMAT, EventLog
from bftrain_datasets.log.provenance import LogProvenance

MEMBERS: Final = ("format", "provenance", "node_names", "end_s", "times", "offsets", "nodes", "states")
KINDS: Final = ("kind_names", "node_kinds")  # optional members; readers without kinds skip them
REMEDY: Final = "save the log again with bftrain; the format is described in docs/reference/formats.md"
_FOREIGN: Final = "not a bftrain log, or of a later version"
_LEVEL: Final = 4  # level 6 takes twice as long, for files a tenth smaller
# zipfile unpacks other compressions a whole block at a time
_PACKINGS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADER_BYTES: Final = 4096
_NAME_AT: Final = 30  # offset of the name of a ZIP archive's first member
# All known exceptions of zipfile, zlib and numpy on damaged data; invalid seeks raise OSError
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OSError,
)


def save(log: EventLog, file: IO[bytes]) -> None:
    """Write the log."""
    columns = {
        "format": _bytes(FORMAT.encode()),
        "provenance": _bytes(log.provenance.in_json()),
        "node_names": _bytes("\n".join(log.node_names).encode()),
        "end_s": np.array([log.end_s], dtype="<f8"),
        "times": log.times.astype("<f8", copy=False),
        "offsets": log.offsets.astype("<i8", copy=False),
        "nodes": log.nodes.astype("<i4", copy=False),
        "states": log.states.astype("<i1", copy=False),
    }
    if log.kind_names:
        columns |= {
            "kind_names": _bytes("\n".join(log.kind_names).encode()),
            "node_kinds": log.node_kinds.astype("<i4", copy=False),
        }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name in columns:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as target:  # dated 1980, so files are reproducible
                np.lib.format.write_array(target, columns[name], version=(1, 0), allow_pickle=False)


def is_own(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is an archive with the format's name as its first member."""
    return head.startswith(b"PK\x03\x04") and head[_NAME_AT:].startswith(f"{MEMBERS[0]}.npy".encode())


def load(path: Path) -> EventLog:
    """Load the log; raise ``BadInput`` if it is damaged, foreign or inconsistent."""
    columns = _read(path)
    if _text(columns, "format", path) != FORMAT:
        raise BadInput(_FOREIGN, where=f"{path} (format)", fix=REMEDY)
    if columns["end_s"].size != 1:
        raise BadInput("must contain one number", where=f"{path} (end_s)", fix=REMEDY)
    provenance = wire.decode(_text(columns, "provenance", path), LogProvenance, where=f"{path} (provenance)")
    try:
        return EventLog(
            node_names=_names(columns, "node_names", path),
            times=columns["times"],
            offsets=columns["offsets"],
            nodes=columns["nodes"],
            states=columns["states"],
            end_s=columns["end_s"][0],
            **_kinds(columns, path),
            provenance=provenance,
        )
    except BadValue as error:
        field = (error.where or "").removeprefix("EventLog.")
        raise BadInput(error.what, where=f"{path} ({field})", fix=REMEDY) from error


def _kinds(columns: dict[str, NDArray[Any]], path: Path) -> dict[str, Any]:
    if not set(KINDS) <= set(columns):
        return {}
    return {"kind_names": _names(columns, "kind_names", path), "node_kinds": columns["node_kinds"]}


def _read(path: Path) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    member = ""
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                held = set(archive.namelist())
                _check_sizes(archive.infolist(), path)
                for member in (*MEMBERS, *(name for name in KINDS if f"{name}.npy" in held)):
                    columns[member] = _column(archive.read(f"{member}.npy"))  # checks the checksum
        except KeyError as error:
            raise BadInput(f"not a bftrain log: no part '{member}'", where=str(path), fix=REMEDY) from error
        except _DAMAGE as error:
            place = f"{path} ({member})" if member else str(path)
            raise BadInput(f"not a readable log file: {error}", where=place, fix=REMEDY) from error
    return columns


def _check_sizes(members: list[zipfile.ZipInfo], path: Path) -> None:
    """Raise ``BadInput`` for members that unpack to far more than a log; ``zipfile`` reads only the declared size."""
    if any(member.compress_type not in _PACKINGS for member in members):
        raise BadInput("not a log file: unusual compression", where=str(path), fix=REMEDY)
    unpacked = sum(member.file_size for member in members)
    check_unpacked(unpacked, path.stat().st_size, where=str(path), fix="unzip it, and pack it with zip -0")


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)


def _names(columns: dict[str, NDArray[Any]], member: str, path: Path) -> tuple[str, ...]:
    if np.count_nonzero(columns[member] == ord("\n")) >= MOST_NODES:  # checked before names become strings
        raise BadInput(f"has more than {MOST_NODES:,} names", where=f"{path} ({member})", fix=REMEDY)
    return tuple(_text(columns, member, path).split("\n"))


def _text(columns: dict[str, NDArray[Any]], name: str, path: Path) -> str:
    try:
        return columns[name].tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8 text", where=f"{path} ({name})", fix=REMEDY) from error


def _column(content: bytes) -> NDArray[Any]:
    """Return the column in a member; raise a readable ``ValueError`` if its header does not fit."""
    source = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(source)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(source, max_header_size=_HEADER_BYTES)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("its header cannot be read") from error
    if dtype.kind not in "iuf" or dtype.subdtype or dtype.itemsize > np.dtype(np.float64).itemsize:
        raise ValueError(f"must contain numbers, not {dtype.str}")
    if len(shape) != 1:
        raise ValueError(f"must be a one-dimensional list, not {len(shape)} dimensions")
    data_bytes = len(content) - source.tell()
    if shape[0] * dtype.itemsize != data_bytes:
        raise ValueError(f"declares {shape[0]:,} numbers of {8 * dtype.itemsize} bits, but has {data_bytes:,} bytes")
    return np.frombuffer(content, dtype, offset=source.tell())
