"""Commits in a folder: one file that always holds a whole state, the last that was written.

It is ``BFTRAIN1``, the length of a header (8 bytes), the header as JSON (step, plain values, what the tensors look
like), and the bytes of all tensors. It is written beside its place and then moved there.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.trees import Shape, Tensor, Tree, as_bytes

NAME: Final = "state"
_MAGIC: Final = b"BFTRAIN1"
_HEADER_LIMIT: Final = 256 * 1024 * 1024


def save(folder: Path, tree: Tree, step: int) -> None:
    """Write a state to ``folder``; whoever reads there sees the old one or the new one, never half of one."""
    shapes = [[shape.dtype, list(shape.sizes), shape.device] for shape in map(Shape.of, tree.tensors)]
    header = json.dumps({"step": step, "plain": tree.plain, "tensors": shapes}, separators=(",", ":")).encode()
    beside = folder / f"{NAME}.{os.uname().nodename}.{os.getpid()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123 - a mode of our own
            file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
            for tensor in tree.tensors:
                _write(file, tensor)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / NAME)
    finally:
        beside.unlink(missing_ok=True)


def step_of(folder: Path) -> int | None:
    """Give the step of the state in ``folder``; nothing if there is none. Needs no torch."""
    found = _opened(folder)
    if found is None:
        return None
    with found as file:
        return int(_header(file, folder)["step"])


def load(folder: Path) -> tuple[Tree, int] | None:
    """Read the state in ``folder`` and its step; nothing if there is none."""
    found = _opened(folder)
    if found is None:
        return None
    with found as file:
        header = _header(file, folder)
        shapes = [Shape(dtype, tuple(sizes), device) for dtype, sizes, device in header["tensors"]]
        tensors = [_read(file, shape, folder) for shape in shapes]
        return Tree(header["plain"], tensors), int(header["step"])


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


def _read(file: BinaryIO, shape: Shape, folder: Path) -> Tensor:
    import torch

    dtype = getattr(torch, shape.dtype)
    wanted = torch.Size(shape.sizes).numel() * dtype.itemsize
    data = bytearray(wanted)
    if file.readinto(data) != wanted:  # type: ignore[attr-defined]  # files opened for reading bytes have it
        raise _damaged(folder)
    if not wanted:
        return torch.empty(shape.sizes, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape.sizes)


def _damaged(folder: Path) -> BadCommit:
    return BadCommit(
        "is damaged, or no state of this version", where=str(folder / NAME), fix="move it away to start anew"
    )
