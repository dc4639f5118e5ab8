"""Commits in a folder: one file that always contains a complete state, the latest one written.

Its format: ``BFTRAIN1``, the length of a header (8 bytes), the header as JSON (step, lineage, plain values, names and
shapes of the tensors), and the bytes of all tensors. It is written to a temporary file, then moved into place.

A process that resumes from a commit starts the next lineage, and later writes of earlier lineages are rejected: workers
on a node that lost its manager, but not its storage, must not overwrite newer states.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from bftrain_elastic.errors import BadCommit, Superseded
from bftrain_elastic.worker.lazy_torch import torch
from bftrain_elastic.worker.state_tree import StateTree, Tensor, TreeShape, as_bytes, read_shapes, shapes_of

NAME: Final = "state"
_MAGIC: Final = b"BFTRAIN1"
_PIECE_BYTES: Final = 64 * 1024 * 1024
_LATELY_S: Final = 600.0  # files of other nodes that were changed within this time may still be written
_HEADER_LIMIT: Final = 256 * 1024 * 1024
AT_ONCE_BYTES: Final = 4 * 1024 * 1024  # smaller states are written immediately, in the calling thread
_MEMORY_SHARE: Final = 0.5  # maximum share of the free memory for another copy
_CGROUP: Final = Path("/sys/fs/cgroup")


class SavedCommit(NamedTuple):
    """A state that was read from a folder or a copy server."""

    tree: StateTree
    step: int
    lineage: int


def save(
    folder: Path, tree: StateTree, step: int, lineage: int = 0, raise_if_stopped: Callable[[], object] = lambda: None
) -> None:
    """Write a state to ``folder``; readers see the old state or the new one, never a mixture.

    ``raise_if_stopped`` is called before each piece. On return the state and its directory entry are on disk, and
    survive a power loss.
    """
    _refuse_if_superseded(folder, lineage)
    beside = folder / f"{NAME}.{os.uname().nodename}.{os.getpid()}.{threading.get_native_id()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123 - a mode of our own
            file.write(header_of(tree, step, lineage))
            for part in parts_of(tree):
                raise_if_stopped()
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        _refuse_if_superseded(folder, lineage)  # writing may have taken long
        raise_if_stopped()
        beside.replace(folder / NAME)
        _sync(folder)
    finally:
        beside.unlink(missing_ok=True)


def header_of(tree: StateTree, step: int, lineage: int) -> bytes:
    """Return the bytes of a file that precede the tensors."""
    fields = {"step": step, "lineage": lineage, "plain": tree.plain, "tensors": shapes_of(tree)}
    header = json.dumps(fields, separators=(",", ":")).encode()
    return _MAGIC + len(header).to_bytes(8, "little") + header


def parts_of(tree: StateTree, most: int = _PIECE_BYTES) -> Iterator[Any]:
    """Yield the bytes of all tensors in parts of up to ``most`` bytes, each valid until the next one."""
    for tensor in tree.tensors.values():
        flat = as_bytes(tensor)
        on_host = None if flat.device.type == "cpu" else _host_room(flat, most)
        for start in range(0, flat.numel(), most):
            part = flat[start : start + most]
            if on_host is not None:
                part = on_host[: part.numel()].copy_(part)
            yield (ctypes.c_char * part.numel()).from_address(part.data_ptr())


def tidy(folder: Path) -> None:
    """Remove unfinished files of killed writers; keep files that a process is writing."""
    for path in folder.glob(f"{NAME}.*"):
        with suppress(FileNotFoundError):
            if not _is_being_written(path):
                path.unlink()


def _is_being_written(path: Path) -> bool:
    """Return whether the process named by a file is alive; on other nodes, whether it wrote recently."""
    host, pid, _ = path.name.removeprefix(f"{NAME}.").rsplit(".", 2)
    if host == os.uname().nodename:
        return Path(f"/proc/{pid}").exists()
    return time.time() - path.stat().st_mtime < _LATELY_S


def step_of(folder: Path) -> int | None:
    """Return the step of the state in ``folder``, or ``None``. Needs no torch."""
    step = version_of(folder)[1]
    return None if step < 0 else step


def load(folder: Path) -> SavedCommit | None:
    """Read the state in ``folder``; return ``None`` for an empty folder."""
    with suppress(FileNotFoundError), (folder / NAME).open("rb") as file:
        return read(file, str(folder / NAME))
    return None


def read(file: BinaryIO, where: str) -> SavedCommit:
    """Read a state from the content of a file; ``where`` is its place, for errors."""
    header = _header(file, where)
    tensors = {name: _read(file, shape, where) for name, shape in read_shapes(header["tensors"]).items()}
    return SavedCommit(StateTree(header["plain"], tensors), int(header["step"]), int(header.get("lineage", 0)))


def version_of(folder: Path) -> tuple[int, int]:
    """Return the lineage and step of the state in ``folder``, which rise with newer states; -1 without a state."""
    with suppress(FileNotFoundError), (folder / NAME).open("rb") as file:
        header = _header(file, str(folder / NAME))
        return int(header.get("lineage", 0)), int(header["step"])
    return -1, -1


def _refuse_if_superseded(folder: Path, lineage: int) -> None:
    if version_of(folder)[0] > lineage:
        raise Superseded("a later run of this task has written it", where=str(folder / NAME))


def _sync(folder: Path) -> None:
    """Sync a folder, so that a file moved into it is found after a crash."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems need no sync and return an error
            raise
    finally:
        os.close(number)


def _header(file: BinaryIO, where: str) -> dict[str, Any]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _damaged(where)
    length = int.from_bytes(file.read(8), "little")
    try:
        header = json.loads(file.read(length)) if length <= _HEADER_LIMIT else None
    except ValueError as error:
        raise _damaged(where) from error
    if not isinstance(header, dict) or not {"step", "plain", "tensors"} <= header.keys():
        raise _damaged(where)
    return header


def _host_room(flat: Tensor, most: int) -> Tensor:
    """Return main memory for a piece: a whole GPU tensor may exceed the free memory."""
    return torch.empty(min(most, flat.numel()), dtype=torch.uint8)


def _read(file: BinaryIO, shape: TreeShape, where: str) -> Tensor:
    dtype = getattr(torch, shape.dtype)
    wanted = torch.Size(shape.sizes).numel() * dtype.itemsize
    data = bytearray(wanted)
    if file.readinto(data) != wanted:  # type: ignore[attr-defined]  # files opened for reading bytes have it
        raise _damaged(where)
    if not wanted:
        return shape.empty()
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape.sizes).to(shape.here)


def _damaged(where: str) -> BadCommit:
    fix = "move it away to start from the beginning"
    return BadCommit("is damaged, or no state of this version", where=where, fix=fix)


class SavingStopped(Exception):
    """A save or send was abandoned: a newer state is due, or another worker or save takes over."""


class BackgroundJob:
    """Runs one job at a time in a thread, on ``tree``, which must not change until the job finishes."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self.tree: Any = None
        self.step = -1  # step being written
        self.error: Exception | None = None  # error of the previous job, until it is raised

    @property
    def busy(self) -> bool:
        """Whether the job is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def stopped(self) -> bool:
        """Whether the job should stop, or has stopped early."""
        return self._stopped.is_set()

    def holds(self, tree: object) -> bool:
        """Return whether a tree is being written."""
        return tree is not None and self.busy and self.tree is tree

    def start(self, work: Callable[[], None], tree: object, step: int = -1) -> None:
        """Start a job; it may end by :class:`SavingStopped`, which :meth:`raise_if_stopped` raises."""
        self._stopped.clear()
        self.tree, self.step = tree, step
        self._thread = threading.Thread(target=self._do, args=(work,), name="bftrain-saving", daemon=True)
        self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            with suppress(SavingStopped):
                work()
        except Exception as error:  # noqa: BLE001 - it is raised by the training's own thread
            self.error = error

    def raise_if_stopped(self) -> None:
        """Raise :class:`SavingStopped` if the job should stop; called by the job itself."""
        if self.stopped:
            raise SavingStopped

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the job, and wait until it has noticed."""
        self._stopped.set()
        self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the job has finished, or the timeout expires."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def raise_error(self) -> None:
        """Raise the error of the last job, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error


def fits_in_memory(needed_bytes: int) -> bool:
    """Return whether this many bytes are at most half of the available memory."""
    return needed_bytes <= _MEMORY_SHARE * available_memory()


def available_memory() -> int:
    """Return the bytes that the machine and the control group have left."""
    return max(0, min([free_memory(), *left_by_limits()]))


def free_memory() -> int:
    """Return the free memory of the machine."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def left_by_limits() -> Sequence[int]:
    """Return the bytes that each limit of the control groups leaves; missing files, or ``max``, are no limit."""
    left = []
    with suppress(OSError):
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().strip("/")
        for group in (_CGROUP / own, *(_CGROUP / own).parents):
            with suppress(OSError, ValueError):
                used = int((group / "memory.current").read_text())
                left.append(int((group / "memory.max").read_text()) - used)
    return left
