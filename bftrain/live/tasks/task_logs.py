"""Task logs: what the workers of a task printed, read from its folder. May block: not from the loop."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput
from bftrain.live.model.schemas import LogFile, NotFound
from bftrain.live.model.task_record import LiveTaskRecord

_CHUNK: Final = 256 * 1024
_MOST: Final = 10_000


def folder_of(kept: LiveTaskRecord) -> Path:
    """Give the folder of a task's logs; launchers write them there."""
    return Path(kept.run.folder, "logs")


def files(kept: LiveTaskRecord) -> tuple[LogFile, ...]:
    """List a task's log files by name."""
    try:
        with os.scandir(folder_of(kept)) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return ()
    return tuple(
        LogFile(name=name, size=about.st_size, changed_s=about.st_mtime)
        for name, about in sorted(found)[:_MOST]
        if stat.S_ISREG(about.st_mode)
    )


def read(kept: LiveTaskRecord, name: str, offset: int) -> bytes:
    """Read a piece of a log file, from a byte on (from the end if below 0); it is empty when there is no more yet."""
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise NotFound(f"no log file is called {name!r}", where=f"task '{kept.name}'")
    try:
        # No links: what a task puts there must not make us read something else
        file = os.open(folder_of(kept) / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise NotFound(f"no log file is called {name!r}", where=f"task '{kept.name}'") from error
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("is no plain file", where=name)
        return os.pread(file, _CHUNK, max(0, about.st_size + offset) if offset < 0 else offset)
    finally:
        os.close(file)
