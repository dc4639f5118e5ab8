"""The ``.npz`` log file: the columns of the log as they are, in a ZIP archive of NumPy arrays, without pickle."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from bftrain.errors import BadInput, BadValue
from bftrain.values import wire
from bftrain_datasets.log.eventlog import FORMAT, EventLog
from bftrain_datasets.log.provenance import LogProvenance

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MEMBERS: Final = ("format", "provenance", "node_names", "end_s", "times", "offsets", "nodes", "states")
KINDS: Final = ("kind_names", "node_kinds")  # where kinds are distinguished; readers without kinds skip them
REMEDY: Final = "save the log again with bftrain; the format is described in docs/formats.md"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time of day
_LEVEL: Final = 6
_NAME_AT: Final = 30  # where the name of a ZIP archive's first member begins
# All that zipfile, zlib and NumPy are known to raise on damaged bytes; an OSError comes from a seek to nowhere
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
        "times": log.times.astype("<f8"),
        "offsets": log.offsets.astype("<i8"),
        "nodes": log.nodes.astype("<i4"),
        "states": log.states.astype("<i1"),
    }
    if log.kind_names:
        columns |= {
            "kind_names": _bytes("\n".join(log.kind_names).encode()),
            "node_kinds": log.node_kinds.astype("<i4"),
        }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name in columns:
            member = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as target:
                np.lib.format.write_array(target, columns[name], version=(1, 0), allow_pickle=False)


def is_own(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is an archive whose first member says the format."""
    return head.startswith(b"PK\x03\x04") and head[_NAME_AT:].startswith(f"{MEMBERS[0]}.npy".encode())


def load(path: Path) -> EventLog:
    """Read the log; what is damaged, foreign or inconsistent is refused."""
    columns = _read(path)
    if _text(columns, "format", path) != FORMAT:
        raise BadInput("not a bftrain log, or of a later version", where=f"{path} (format)", fix=REMEDY)
    if columns["end_s"].shape != (1,):
        raise BadInput("must hold one number", where=f"{path} (end_s)", fix=REMEDY)
    provenance = wire.decode(_text(columns, "provenance", path), LogProvenance, where=f"{path} (provenance)")
    try:
        return EventLog(
            node_names=tuple(_text(columns, "node_names", path).split("\n")),
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
    return {"kind_names": tuple(_text(columns, "kind_names", path).split("\n")), "node_kinds": columns["node_kinds"]}


def _read(path: Path) -> dict[str, NDArray[Any]]:
    columns = {}
    member = ""
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                held = set(archive.namelist())
                for member in (*MEMBERS, *(name for name in KINDS if f"{name}.npy" in held)):
                    with archive.open(f"{member}.npy") as source:
                        columns[member] = np.lib.format.read_array(source, allow_pickle=False)
        except KeyError as error:
            raise BadInput(f"not a bftrain log: it has no part '{member}'", where=str(path), fix=REMEDY) from error
        except _DAMAGE as error:
            place = f"{path} ({member})" if member else str(path)
            raise BadInput(f"not a readable log file: {error}", where=place, fix=REMEDY) from error
    return columns


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)


def _text(columns: dict[str, NDArray[Any]], name: str, path: Path) -> str:
    try:
        return columns[name].tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8 text", where=f"{path} ({name})", fix=REMEDY) from error
