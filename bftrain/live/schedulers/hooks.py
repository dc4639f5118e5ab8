"""The spool of schedulers' hooks, which are in ``hook_files``.

The spool is a folder of small files, one for each event. A scheduler's hooks write them and exit immediately, even if
the daemon is down. The daemon checks the folder's modification time fifty times a second, which is cheap and works on
every file system, and reads new files. A report only triggers a poll of the scheduler or the return of a node; it
never allocates a node. Repeated, late, reordered, partial or missing files are therefore harmless.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from bftrain.errors import NotAvailable
from bftrain.live import timeouts
from bftrain.live.schedulers.base import Post, Remark, SiteFinding, fine, problem
from bftrain.nodesets import expand

_FIX: Final = "create it as docs/how-to/hooks.md shows: private to the user of bftrain live and to the hook's"
READER: Final = ".reader"  # hooks write while this file exists
_RECENT_NS: Final = 100_000_000  # files may arrive within the clock tick of the last scan
_LARGEST: Final = 262_144  # bytes: 4,608 nodes with no two side by side
_MOST: Final = 5_000  # files in one look
_REMEMBERED: Final = 20_000
What = Literal["start", "ending", "end", "lost"]
_LINE: Final = re.compile(
    r"bftrain1 (?P<what>start|ending|end) (?P<job>[\w.\[\]-]{1,64}) (?P<restart>\d{1,9}) (?P<nodes>[\w.,+\[\]-]+)"
    r" (?P<partition>\S*) (?P<uid>\d*) \.",
    re.ASCII,
)


class HookNews(msgspec.Struct, frozen=True, kw_only=True):
    """A start or exit of a job on these nodes, after its ``restart``-th restart.

    ``ending``: the job's processes have exited, and the scheduler's epilog is still running. ``lost``: an unreadable
    message, so the scheduler must be polled.
    """

    what: What
    job: str
    nodes: tuple[str, ...]
    restart: int = 0


class HookSpool:
    """Reads a spool folder. Files are trusted if they are owned by ``writers`` (user ids), root or this user."""

    def __init__(self, folder: Path, *, writers: Collection[int] = ()) -> None:
        self._folder = folder
        self._trusted = frozenset({0, os.geteuid(), *writers})
        self._seen_ns = 0  # the folder's modification time at the last scan
        self._sure_at = 0.0
        self._known: dict[tuple[str, str, int], None] = {}
        self._partial: dict[str, float] = {}  # name -> time of discovery
        self._stuck: set[str] = set()  # files that cannot be removed
        self.problem = ""  # the last problem, for the log
        self.lost = False  # whether the last look met a file that cannot be read, or not yet

    def open(self) -> None:
        """Start reading; delete existing files unread. Raise NotAvailable as :func:`check_folder` does."""
        check_folder(self._folder)
        try:
            for file in self._folder.iterdir():
                self._remove(file.name)
            self._mark()
        except OSError as error:
            raise unfit(self._folder, f"cannot be used as a spool: {error.strerror}") from error

    def _mark(self) -> None:
        marker = os.open(self._folder / READER, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.fchmod(marker, 0o644)  # hooks of other users look for it
        os.close(marker)

    def close(self) -> None:
        """Show hooks that the spool has no reader any longer."""
        with suppress(OSError):
            (self._folder / READER).unlink()

    def look(self, now_s: float) -> list[HookNews]:
        """Return the new reports; ``now_s`` is on a monotonic clock."""
        self.lost = False
        changed_ns = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - fifty times a second
        old = changed_ns == self._seen_ns and time.time_ns() - changed_ns > _RECENT_NS
        if old and now_s < self._sure_at and not self._partial:
            return []
        if now_s >= self._sure_at:
            self._mark()  # the folder may be another one by now
        self._seen_ns, self._sure_at = changed_ns, now_s + timeouts.TIMEOUTS.hook_sure_s
        found: list[tuple[int, str, HookNews]] = []
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST)]
        for name in names:
            if not name.startswith(".") and name not in self._stuck:
                read = self._read(name, now_s)
                if isinstance(read, str):
                    self.problem, self.lost = f"{self._folder / name}: {read}", True
                elif read is not None:
                    found.append(read)
                if read is not None:
                    self._remove(name)
        self._partial = {name: since for name, since in self._partial.items() if name in names}
        return [heard for _, _, heard in sorted(found, key=itemgetter(0, 1)) if self._is_new(heard)]

    def _is_new(self, heard: HookNews) -> bool:
        """Remember a report; return whether it is the first of its kind for this run of its job."""
        key = (heard.what, heard.job, heard.restart)
        new = key not in self._known
        self._known[key] = None
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return new

    def _read(self, name: str, now_s: float) -> tuple[int, str, HookNews] | str | None:
        """Read a file; return its report, an error message, or ``None`` if it is missing or unfinished."""
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self.lost = True
            return None
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        try:
            about = os.fstat(file)
            if wrong := self._wrong(about):
                return wrong
            text = os.read(file, _LARGEST).decode("ascii", "replace")
        finally:
            os.close(file)
        if not text.endswith(".\n"):
            self.lost |= name not in self._partial
            late = now_s - self._partial.setdefault(name, now_s) >= timeouts.TIMEOUTS.hook_file_s
            return "was never completed: is the disk full?" if late else None  # otherwise it is still being written
        heard = read_line(text.removesuffix("\n"))
        return "has content that no hook of bftrain writes" if heard is None else (about.st_mtime_ns, name, heard)

    def _wrong(self, about: os.stat_result) -> str:
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            return "is no plain file"
        if about.st_uid not in self._trusted:
            return f"belongs to user {about.st_uid}, who is not in spool_writers"
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "users other than its owner can write to it"
        return "" if about.st_size <= _LARGEST else "is too large"

    def _remove(self, name: str) -> None:
        self._partial.pop(name, None)
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            pass
        except OSError:
            if len(self._stuck) < _MOST:
                self._stuck.add(name)


class HookListener:
    """Reads a spool in its own thread; only start and stop access the folder in the caller's.

    ``tell`` receives reports, ``note`` a message when it changes.
    """

    def __init__(
        self, spool: HookSpool, tell: Callable[[Sequence[HookNews]], None], note: Callable[[str], None]
    ) -> None:
        self._spool, self._tell, self._note = spool, tell, note
        self._end = threading.Event()
        self._opened, self._message = False, ""
        self._thread = threading.Thread(target=self._listen, name="bftrain-spool", daemon=True)

    def start(self) -> None:
        """Start; a folder that cannot be used is reported, and retried."""
        self._open()
        self._thread.start()

    def stop(self) -> None:
        """Stop, without waiting for the thread."""
        self._end.set()
        self._spool.close()

    def _open(self) -> None:
        try:
            self._spool.open()
            self._opened, self._message = True, ""
        except NotAvailable as error:
            self._say(f"messages of hooks are not received until the spool can be used: {error}")

    def _say(self, message: str) -> None:
        if message != self._message:
            self._message = message
            self._note(message)

    def _listen(self) -> None:
        often_s, seldom_s = timeouts.TIMEOUTS.hook_look_s, timeouts.TIMEOUTS.hook_sure_s
        failed = False
        while not self._end.wait(often_s if self._opened and not failed else seldom_s):
            if not self._opened:
                self._open()
                continue
            try:
                heard, failed = self._spool.look(time.monotonic()), False
            except OSError as error:  # may be transient
                self._spool.problem, heard, failed = f"the spool cannot be read: {error}", [], True
            if self._spool.lost:
                heard.append(HookNews(what="lost", job="", nodes=()))
            if heard:
                self._tell(heard)
            if self._spool.problem:
                self._say(self._spool.problem)
        self._spool.close()  # a look that was under way may have made the marker again


@contextmanager
def listening(
    folder: str, writers: Collection[str], hear: Callable[[Sequence[HookNews]], None], post: Post
) -> Iterator[None]:
    """Pass new reports to ``hear`` in the running loop while the context is open; a no-op if there is no folder."""
    if not folder:
        yield
        return
    loop = asyncio.get_running_loop()

    def soon(function: Callable[..., None], *given: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function, *given)

    try:
        spool = HookSpool(Path(folder), writers=[pwd.getpwnam(name).pw_uid for name in writers])
    except KeyError as error:  # polling continues
        post(Remark(text=f"messages of hooks are not received: spool_writers: unknown user {error.args[0]}"))
        yield
        return
    listener = HookListener(spool, lambda heard: soon(hear, heard), lambda text: soon(post, Remark(text=text)))
    listener.start()
    try:
        yield
    finally:
        listener.stop()


def unfit(folder: Path, what: str, fix: str = _FIX) -> NotAvailable:
    """Return the error for a folder that cannot be a spool."""
    return NotAvailable(what, where=str(folder), fix=fix)


def check_folder(folder: Path) -> None:
    """Raise NotAvailable if users outside the group can access the spool, or others can replace it."""
    try:
        about = os.lstat(folder)
    except OSError as error:
        raise unfit(folder, f"cannot be used as a spool: {error.strerror}") from error
    if not stat.S_ISDIR(about.st_mode):
        raise unfit(folder, "is no folder")
    if about.st_uid != os.geteuid():
        raise unfit(folder, "belongs to another user")
    if about.st_mode & stat.S_IRWXO:
        raise unfit(folder, "is open to all users", f"chmod o= {folder}")
    for above in folder.resolve().parents:
        found = above.stat()
        writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in {0, os.geteuid()} or writable:
            raise unfit(folder, f"other users could replace it: {above} is owned or writable by them")


def examine_spool(folder: str, writers: Collection[str]) -> SiteFinding:
    """Check the folder into which hooks write, and the users that may write there."""
    if not folder:
        return fine("hooks", "no spool is set, so polls find the changes")
    try:
        check_folder(Path(folder))
        for name in writers:
            pwd.getpwnam(name)
    except NotAvailable as error:
        return problem("hooks", error)
    except KeyError as error:  # its text is "getpwnam(): name not found: 'ann'"
        what = f"spool_writers: {error.args[0].removeprefix('getpwnam(): ')}"
        return problem("hooks", NotAvailable(what, where="[scheduler]", fix="correct the user name"))
    return fine("hooks", f"{folder} is ready; bftrain status of a running live run counts their reports")


def read_line(line: str) -> HookNews | None:
    """Parse a line of a hook; return ``None`` if it is not one."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    names = found["nodes"]
    try:
        # A trailing '+' marks a verbatim list, for schedulers with brackets in node names
        nodes = tuple(names.removesuffix("+").split("+")) if names.endswith("+") else tuple(expand(names))
    except ValueError:
        return None
    what = cast("What", found["what"])
    return HookNews(what=what, job=found["job"], restart=int(found["restart"]), nodes=nodes)
