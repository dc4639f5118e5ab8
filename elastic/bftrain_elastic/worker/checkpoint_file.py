"""Commits in a folder: one file that always holds a whole state, the last that was written.

It is ``BFTRAIN1``, the length of a header (8 bytes), the header as JSON (step, lineage, plain values, what the tensors
look like), and the bytes of all tensors. It is written beside its place and then moved there.

A process that goes on from a commit is of the next lineage, and later writes of earlier ones are refused: workers
on a node that was lost to its manager, but not to the storage, must not undo what was done elsewhere since.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from bftrain_elastic.errors import BadCommit, Superseded
from bftrain_elastic.worker.state_tree import StateTree, Tensor, TreeShape, as_bytes

NAME: Final = "state"
_MAGIC: Final = b"BFTRAIN1"
_HEADER_LIMIT: Final = 256 * 1024 * 1024


class SavedCommit(NamedTuple):
    """What a folder holds."""

    tree: StateTree
    step: int
    lineage: int


def save(folder: Path, tree: StateTree, step: int, lineage: int = 0) -> None:
    """Write a state to ``folder``; readers see the old one or the new one, never half of one.

    When it returns the state is on the disk, and so is its place in the folder: it survives the loss of power.
    """
    _refuse_if_superseded(folder, lineage)
    shapes = [[shape.dtype, list(shape.sizes), shape.device] for shape in map(TreeShape.of, tree.tensors)]
    known = {"step": step, "lineage": lineage, "plain": tree.plain, "tensors": shapes}
    header = json.dumps(known, separators=(",", ":")).encode()
    beside = folder / f"{NAME}.{os.uname().nodename}.{os.getpid()}.{threading.get_native_id()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123 - a mode of our own
            file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
            for tensor in tree.tensors:
                _write(file, tensor)
            file.flush()
            os.fsync(file.fileno())
        _refuse_if_superseded(folder, lineage)  # writing may have taken long
        beside.replace(folder / NAME)
        _sync(folder)
    finally:
        beside.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what was being written when its writer was killed; no process may be writing now."""
    for path in folder.glob(f"{NAME}.*"):
        path.unlink(missing_ok=True)


def step_of(folder: Path) -> int | None:
    """Give the step of the state in ``folder``; nothing if there is none. Needs no torch."""
    found = _opened(folder)
    if found is None:
        return None
    with found as file:
        return int(_header(file, folder)["step"])


def numbers_of(folder: Path) -> dict[str, float]:
    """Return the numbers that are values of the state in ``folder``, by their names. Needs no torch."""
    found = _opened(folder)
    if found is None:
        return {}
    with found as file:
        plain = json.loads(_header(file, folder)["plain"])
    return {
        name: node[1]
        for name, node in (plain[1] if plain[0] == "dict" else [])
        if node[0] == "is" and isinstance(node[1], int | float) and not isinstance(node[1], bool)
    }


def load(folder: Path) -> SavedCommit | None:
    """Read the state in ``folder``; nothing if there is none."""
    found = _opened(folder)
    if found is None:
        return None
    with found as file:
        header = _header(file, folder)
        shapes = [TreeShape(dtype, tuple(sizes), device) for dtype, sizes, device in header["tensors"]]
        tensors = [_read(file, shape, folder) for shape in shapes]
        return SavedCommit(StateTree(header["plain"], tensors), int(header["step"]), int(header.get("lineage", 0)))


def _refuse_if_superseded(folder: Path, lineage: int) -> None:
    found = _opened(folder)
    if found is None:
        return
    with found as file:
        if int(_header(file, folder).get("lineage", 0)) > lineage:
            raise Superseded("another run of this task went on from here", where=str(folder / NAME))


def _sync(folder: Path) -> None:
    """Make sure that what was moved to its place in a folder is found there after a crash."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems need no such thing, and say so
            raise
    finally:
        os.close(number)


def _opened(folder: Path) -> BinaryIO | None:
    try:
        return (folder / NAME).open("rb")
    except FileNotFoundError:
        return None


def _header(file: BinaryIO, folder: Path) -> dict[str, Any]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _damaged(folder)
    length = int.from_bytes(file.read(8), "little")
    if length > _HEADER_LIMIT:
        raise _damaged(folder)
    try:
        header = json.loads(file.read(length))
        if not {"step", "plain", "tensors"} <= set(header):
            raise _damaged(folder)
    except ValueError as error:
        raise _damaged(folder) from error
    return dict(header)


def _write(file: BinaryIO, tensor: Tensor) -> None:
    flat = as_bytes(tensor.cpu())
    if flat.numel():
        file.write((ctypes.c_char * flat.numel()).from_address(flat.data_ptr()))


def _read(file: BinaryIO, shape: TreeShape, folder: Path) -> Tensor:
    import torch

    dtype = getattr(torch, shape.dtype)
    wanted = torch.Size(shape.sizes).numel() * dtype.itemsize
    data = bytearray(wanted)
    if file.readinto(data) != wanted:  # type: ignore[attr-defined]  # files opened for reading bytes have it
        raise _damaged(folder)
    if not wanted:
        return shape.empty()
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape.sizes).to(shape.here)


def _damaged(folder: Path) -> BadCommit:
    return BadCommit(
        "is damaged, or no state of this version",
        where=str(folder / NAME),
        fix="move it away to start again",
    )
