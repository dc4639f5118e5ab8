"""Task logs: what the workers of a task printed, read from the folder into which launchers write. May block."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput
from bftrain.live.model import schemas
from bftrain.live.model.task_record import LiveTaskRecord

_CHUNK: Final = 256 * 1024  # of a log, at a time
_MOST_FILES: Final = 10_000


def log_files(record: LiveTaskRecord) -> tuple[schemas.LogFile, ...]:
    """List a task's log files by name."""
    try:
        with os.scandir(Path(record.run.folder, "logs")) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return ()
    return tuple(
        schemas.LogFile(name=name, size=about.st_size, changed_s=about.st_mtime)
        for name, about in sorted(found)[:_MOST_FILES]
        if stat.S_ISREG(about.st_mode)
    )


def read_log(record: LiveTaskRecord, name: str, offset: int) -> bytes:
    """Read a piece of a log file, from a byte on (from the end if below 0); it is empty when there is no more yet."""
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise schemas.NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'")
    try:
        # No links: what a task puts there must not make us read something else
        file = os.open(
            Path(record.run.folder, "logs", name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError as error:
        raise schemas.NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'") from error
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("is no plain file", where=name)
        return os.pread(file, _CHUNK, max(0, about.st_size + offset) if offset < 0 else offset)
    finally:
        os.close(file)
