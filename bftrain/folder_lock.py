"""A lock on a folder: one process at a time writes into it, and others are refused with the name of its holder."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import shlex
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from bftrain.errors import BadInput, UsageError
from bftrain.files import naming
from bftrain.values import wire

NAME: Final = ".bftrain.lock"
_LONGEST_COMMAND: Final = 120


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds a lock."""

    process: int
    host: str
    since: str
    command: str

    @classmethod
    def this_process(cls) -> Self:
        """Describe this process."""
        program = Path(sys.argv[0])
        name = program.parent.name if program.name == "__main__.py" else program.name  # of python -m NAME
        command = shlex.join([name or "python", *sys.argv[1:]])
        if len(command) > _LONGEST_COMMAND:
            command = f"{command[: _LONGEST_COMMAND - 3]}..."
        since = datetime.now(tz=UTC).astimezone().isoformat(sep=" ", timespec="seconds")
        return cls(process=os.getpid(), host=platform.node(), since=since, command=command)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}: {self.command}"


class FolderLock:
    """A lock on ``folder``, held in a ``with`` block; the kernel releases it when the process ends or is killed.

    The file that is locked names the holder and is removed at the end. On a file system without locks nothing is
    locked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._file = -1

    def __enter__(self) -> Self:
        while not self._locked():
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)  # before it is released: afterwards it may be the next one's
        self._close()

    def _locked(self) -> bool:
        """Lock the file; return ``False`` if its holder has removed it meanwhile, so that another one is needed."""
        self._file = self._opened()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder()
            os.close(self._file)
            raise UsageError(
                f"is in use by {holder}", where=str(self._folder), fix="wait for its end, or name another folder"
            ) from error
        except OSError:
            pass  # some file systems have no locks
        try:
            same = os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            self._close()
            return False
        self._describe()
        return True

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            what = "is a link, and is left as it is"  # its target would be overwritten
            raise BadInput(what, where=str(self._path), fix="remove it, or name another folder") from error

    def _describe(self) -> None:
        """Write into the locked file who holds it; release it if that fails."""
        try:
            with naming(self._path):
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, wire.encode(LockHolder.this_process()), 0)
        except OSError:
            self.__exit__()
            raise

    def _holder(self) -> str:
        try:
            return str(wire.decode(os.pread(self._file, 1 << 16, 0), LockHolder))
        except BadInput:
            return "another process"

    def _close(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a process that was forked meanwhile may hold the file open
        os.close(self._file)
