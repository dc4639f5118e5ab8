"""Limits the size of workers' logs: the first half of the limit is kept, and the latest part of the rest.

Workers write to the file themselves, so that they do not depend on the agent: it is cut in place, not renamed. The
beginning is not moved, and of the rest only the last megabytes are, so that the agent is never busy for long.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from bftrain_elastic.agent.worker_records import WorkerRecord

_LAST: Final = 4 * 1024 * 1024  # bytes that are kept of the end
_LINE: Final = 4096  # bytes in which the end of a line is looked for


def limit_logs(workers: Collection[WorkerRecord], limit: int) -> None:
    """Cut the logs that are longer than ``limit`` bytes."""
    for log in {worker.log for worker in workers}:
        with suppress(OSError):  # a file system that is away for a moment; the log is looked at again
            if removed := cut_middle(log, limit):
                for worker in workers:
                    if worker.log == log:
                        worker.log_start = max(0, worker.log_start - removed)


def cut_middle(path: Path, limit: int) -> int:
    """Cut the middle out of a file that is longer than ``limit`` bytes; return how many bytes were removed.

    Lines appended meanwhile are kept too, except in the very last moment.
    """
    if path.lstat().st_size <= limit:
        return 0
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            return 0
        half = limit // 2
        before = os.pread(file, min(_LINE, half), max(0, half - _LINE))
        place = half - len(before) + before.rfind(b"\n") + 1 if b"\n" in before else half
        start = about.st_size - min(_LAST, limit // 4)
        start += os.pread(file, _LINE, start).find(b"\n") + 1
        mark = f"[bftrain: lines are left out here, for this log became longer than {limit / 1e6:g} MB]\n".encode()
        place += os.pwrite(file, mark, place)
        enough = about.st_size + _LAST  # a worker may write faster than this reads
        while start < enough and (piece := os.pread(file, _LAST, start)):
            place += os.pwrite(file, piece, place)
            start += len(piece)
        os.ftruncate(file, place)
        return start - place
    finally:
        os.close(file)
