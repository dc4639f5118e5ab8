"""Housekeeping: removes old steps of the journal, and folders and logs of finished tasks after a time.

Slow work (copying the journal, measuring and removing folders) is done in a thread; the event loop only removes a few
rows at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BftrainError
from bftrain.journal import Journal, complete_file, copy_journal
from bftrain.live import timeouts
from bftrain.live.daemon.task_store import EndedTask, TaskStore, without_tasks
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.schedulers.backend import PILOT_LOGS
from bftrain.text_formats import counted

_log = logging.getLogger(__name__)
ARCHIVE: Final = "archive"  # folder next to the journal
_DAY_S: Final = 86_400.0
_GB: Final = 1e9
_WRITES: Final = 500  # writes in the write-ahead log before they are moved into the main file
_NAMED: Final = 5  # most tasks named in a warning
_PILOT_LOG_BYTES: Final = 4_000_000  # a longer log of a node's pilots is truncated


@dataclass(eq=False, repr=False)
class Housekeeping:
    """Starts pending work on each :meth:`apply`. ``perform`` runs a step once the journal is writable."""

    _site: SiteSettings
    _journal: Journal
    _task_store: TaskStore
    _perform: Callable[[Callable[[], None]], bool]

    def __post_init__(self) -> None:
        self._sizes: dict[int, int] = {}  # bytes in folders of finished tasks
        self._next_s = time.monotonic() + timeouts.TIMEOUTS.housekeeping_first_s
        self._next_cut_s = 0.0  # later than now after a failed cut
        self._removing = self._journal.first > 0  # whether the journal may still have rows before its first step
        self._completed_at = 0  # writes
        self._job: asyncio.Task[None] | None = None

    def apply(self) -> None:
        """Do a small part of the pending work."""
        if self._removing:
            self._perform(self._remove_cut)
        if self._job is not None and not self._job.done():
            return
        most = self._site.keep.journal_steps
        too_long = most and not self._removing and len(self._journal) - self._journal.first > most
        if too_long and time.monotonic() >= self._next_cut_s:
            self._start(self.cut)
        elif self._journal.writes - self._completed_at >= _WRITES:
            self._start(self.complete)
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + timeouts.TIMEOUTS.housekeeping_s
            self._start(self.tidy)

    def close(self) -> None:
        """Cancel the running job."""
        if self._job is not None:
            self._job.cancel()

    def _start(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def guarded() -> None:
            try:
                await job()
            except (BftrainError, OSError) as error:
                _log.warning("cleaning up the disk failed and is retried: %s", error)

        self._job = asyncio.create_task(guarded(), name="housekeeping")

    def _remove_cut(self) -> None:
        self._removing = self._journal.remove_cut(timeouts.LIMITS.rows_at_once)

    async def cut(self) -> None:
        """Copy the journal into the archive, and then remove its older steps."""
        if last := self._journal.cut_point():
            path = self._journal.path
            copy = path.parent / ARCHIVE / f"{path.stem}-{last:09d}.db"
            self._next_cut_s = time.monotonic() + timeouts.TIMEOUTS.housekeeping_s  # retry after a failure
            await run_in_daemon_thread(lambda: copy_journal(path, copy))
            self._next_cut_s = 0.0
            self._perform(lambda: self._journal.cut(last))
            self._removing = True

    async def complete(self) -> None:
        """Complete the journal's file while the loop continues to write."""
        self._completed_at = self._journal.writes
        await run_in_daemon_thread(lambda: complete_file(self._journal.path, restart_log=True))

    async def tidy(self) -> None:
        """Complete the journal's file, and remove expired copies, folders, records and pilot logs."""
        keep, now = self._site.keep, time.time()
        await self.complete()
        if keep.archive_days:
            old_s = now - keep.archive_days * _DAY_S
            archive = self._journal.path.parent / ARCHIVE
            await run_in_daemon_thread(lambda: _remove_older(archive, old_s))
        ended = self._task_store.ended()
        used = {record.run.folder for record in self._task_store.unfinished}
        own = [task for task in ended if task.folder not in used and self._is_own(task)]
        if removed := await run_in_daemon_thread(lambda: self._remove_folders(own, now)):
            first = ", ".join(f"#{number}" for number in removed[:_NAMED]) + ", ..." * (len(removed) > _NAMED)
            folders = f"{counted(len(removed), 'folder')} of the oldest finished tasks exceeded the disk limit"
            _log.warning("%s and were removed ([keep] folders_gb): %s", folders, first)
        if keep.task_days:
            self._forget([task.number for task in ended if now - task.ended_s > keep.task_days * _DAY_S])
        logs = self._site.tasks.parent / PILOT_LOGS
        await run_in_daemon_thread(lambda: _shorten_logs(logs))

    def _is_own(self, task: EndedTask) -> bool:
        """Return whether the live run created the task's folder."""
        folder = Path(task.folder)
        return folder.parent == self._site.tasks and folder.name.startswith(f"{task.number:06d}-")

    def _remove_folders(self, tasks: Sequence[EndedTask], now: float) -> list[int]:
        """Remove folders, or all but the logs in them, the oldest first; from a thread.

        Return the numbers of tasks whose folders were removed to reduce the total size.
        """
        keep = self._site.keep
        left: list[EndedTask] = []
        for task in tasks:
            age_days, folder = (now - task.ended_s) / _DAY_S, Path(task.folder)
            if folder.is_symlink() or not folder.is_dir():
                continue
            if keep.task_days and age_days > keep.task_days:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            if keep.commit_days and age_days > keep.commit_days:
                _remove_all_but_logs(folder)
                self._sizes.pop(task.number, None)
            left.append(task)
        return self._limit_folders(left, keep.folders_gb * _GB) if keep.folders_gb else []

    def _limit_folders(self, tasks: Sequence[EndedTask], most: float) -> list[int]:
        self._sizes = {task.number: self._sizes.get(task.number) or _size_of(task.folder) for task in tasks}
        total = sum(self._sizes.values())
        removed: list[int] = []
        for task in tasks:
            if total <= most:
                break
            total -= self._sizes.pop(task.number)
            shutil.rmtree(task.folder, ignore_errors=True)
            removed.append(task.number)
        return removed

    def _forget(self, numbers: Sequence[int]) -> None:
        for begin in range(0, len(numbers), timeouts.LIMITS.rows_at_once):
            some = numbers[begin : begin + timeouts.LIMITS.rows_at_once]
            self._task_store.add_writes(without_tasks(some))
            self._task_store.forget(some)  # committed with the next write


def _remove_all_but_logs(folder: Path) -> None:
    for each in folder.iterdir():
        if each.name == "logs":
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            with suppress(OSError):
                each.unlink()


def _size_of(folder: str) -> int:
    """Return the bytes that a folder takes on the disk."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118 - of very many files
    return total


def _remove_older(archive: Path, old_s: float) -> None:
    for file in archive.glob("*.db*"):
        with suppress(OSError):
            if file.stat().st_mtime < old_s:
                file.unlink()


def _shorten_logs(folder: Path) -> None:
    """Truncate long pilot logs in place; agents append to them, so the file must stay the same."""
    with suppress(OSError):
        for log in folder.iterdir():
            if log.suffix == ".log" and log.stat(follow_symlinks=False).st_size > _PILOT_LOG_BYTES:
                os.truncate(log, 0)
