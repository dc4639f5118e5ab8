"""Folders of results: locked while in use, replaced atomically, never touching files of other origin.

A result is written into a draft folder inside its own folder. Once all of it is on disk, the draft is renamed to
``READY``: now the new result is valid, and its files are moved into place, by the next command if this process is
killed. Before that, the old result stays unchanged. ``SHA256SUMS`` lists the files; other files, and files changed
since, are detected and left alone.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from bftrain.errors import BadInput, ResultWarning, UsageError
from bftrain.files import (
    check_replaceable,
    head_of,
    overwrite_error,
    path_in_errors,
    prepare_folder,
    sync_files,
    synced_later,
    write_text,
)
from bftrain.values import wire

LOCK_FILE: Final = ".bftrain.lock"
_WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})  # some NFS and Lustre mounts
_LONGEST_COMMAND: Final = 120


def this_process() -> str:
    """Return the description of this process in a lock: "process 7 on host since TIME: COMMAND"."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # run by python -m NAME
    command = shlex.join([name or "python", *sys.argv[1:]])
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[: _LONGEST_COMMAND - 3]}..."
    since = datetime.now(tz=UTC).astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {platform.node()} since {since}: {command}"


class FolderLock:
    """A lock on ``folder`` in a ``with`` block; the kernel releases it when the process exits or is killed.

    The locked file names the holder and is removed at the end. A file system without locks leads to a
    warning instead of a lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCK_FILE
        self._file = -1

    def __enter__(self) -> Self:
        with path_in_errors(self._folder, self._path):
            while not self._locked():
                self._close()  # its owner has removed the file meanwhile
            try:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, this_process().encode(), 0)
            except OSError:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the folder may be read-only by now; the file is unlocked anyway
            self._path.unlink(missing_ok=True)  # the next process may own it after the release
        self._close()

    def _locked(self) -> bool:
        """Lock the file; return whether it is still the folder's file."""
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            # Its target would be overwritten
            raise overwrite_error(self._path, "is a link", fix="remove it, or name another folder") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                holder = os.pread(self._file, 1 << 12, 0).decode(errors="replace")
                os.close(self._file)
                if not isinstance(error, BlockingIOError):
                    raise
                what = f"is in use by {holder if holder.startswith('process ') else 'another process'}"
                fix = "wait until it exits, or name another folder"
                raise UsageError(what, where=str(self._folder), fix=fix) from error
            text = (
                "its file system has no locks: do not start a second command that writes there before this one finishes"
            )
            warnings.warn(f"{self._folder}: {text}", ResultWarning, stacklevel=3)
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        return False

    def _close(self) -> None:
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a process forked meanwhile may hold the file open
        os.close(self._file)


SUMS: Final = "SHA256SUMS"
REPORT_FILE: Final = "report.html"  # missing in SUMS, since bftrain report may redraw it; PAGE_MARK marks it as ours
PAGE_MARK: Final = '<meta name="generator" content="bftrain '
INTERRUPTED: Final = "interrupted"  # the reason for a partial result
DRAFT: Final = ".bftrain-draft"
READY: Final = ".bftrain-ready"
_OBSOLETE: Final = ".obsolete"  # folder in READY: old files that are missing in the new result
ADVICE: Final = "--overwrite replaces it, or name another folder"
IN_PYTHON: Final = "overwrite=True replaces it, or name another folder"
_MOVE_AWAY: Final = "move it away, or name another folder"


class ResultKind(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a kind of result. ``format`` in its summary is ``form`` and a version number.

    ``records`` maps files that grow during the run to their first bytes; ``prints`` are files with worker output.
    """

    title: str
    form: str
    names: frozenset[str]
    summary: str = "summary.json"
    records: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    prints: frozenset[str] = frozenset()


class ResultFolder:
    """A folder with a result of some kind, or for one; use it in a ``with`` block.

    The folder is created if it is missing, and removed again if an error leaves it empty. A finished result in it is
    rejected with ``advice``, unless ``overwrite`` is set or the new result ``continues`` it. ``holds_finished``
    states whether it contains a finished result, which an interrupted part must not replace.
    """

    def __init__(
        self, path: Path, kind: ResultKind, *, overwrite: bool = False, advice: str = ADVICE, continues: bool = False
    ) -> None:
        self.path = path
        self.holds_finished = False
        self._kind = kind
        self._overwrite = overwrite
        self._advice = advice
        self._continues = continues
        self._open = ExitStack()
        self._created = False  # created by this object

    def __enter__(self) -> Self:
        self._created = not self.path.exists()
        prepare_folder(self.path)
        with ExitStack() as opened:
            opened.enter_context(FolderLock(self.path))
            finish_replacement(self.path)
            shutil.rmtree(self.path / DRAFT, ignore_errors=True)
            self._check()
            self._open = opened.pop_all()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._open:
            finish_replacement(self.path)
            shutil.rmtree(self.path / DRAFT, ignore_errors=True)
        if error is not None and self._created:
            with suppress(OSError):  # not empty
                self.path.rmdir()

    def write_ahead(self, write: Callable[[Path], object]) -> None:
        """Call ``write`` to write some files of the next result into the draft folder."""
        draft = self.path / DRAFT
        with path_in_errors(self.path, draft):
            draft.mkdir(exist_ok=True)
            try:
                with synced_later():
                    write(draft)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise

    def replace(self, write: Callable[[Path], object]) -> None:
        """Call ``write`` to write the files of a result into the draft folder, then replace the old ones by them."""
        draft, ready = self.path / DRAFT, self.path / READY
        self.write_ahead(write)
        with path_in_errors(self.path, ready), path_in_errors(self.path, draft), synced_later():
            new = {path.name for path in draft.iterdir()}
            sums = (f"{_sha256(draft / name)}  {name}\n" for name in sorted(new - {REPORT_FILE}))
            write_text(draft / SUMS, "".join(sums))  # sha256sum format
            self._check_files(self._read_summary())  # foreign files may have appeared meanwhile
            old = {*self._kind.names, SUMS} - new - {SUMS}
            write_text(draft / _OBSOLETE, "".join(f"{name}\n" for name in sorted(old)))
            sync_files(draft.iterdir())
            draft.rename(ready)
            finish_replacement(self.path)

    def _check(self) -> None:
        summary = self._read_summary()
        # Results other than interrupted parts are finished, including runs stopped by an overload
        if summary is not None and (summary.get("complete", True) or summary.get("ended", INTERRUPTED) != INTERRUPTED):
            if not (self._overwrite or self._continues):
                raise overwrite_error(self.path, f"contains a finished {self._kind.title}", fix=self._advice)
            self.holds_finished = True
        self._check_files(summary)

    def _read_summary(self) -> Mapping[str, Any] | None:
        path = self.path / self._kind.summary
        if not os.path.lexists(path):
            return None
        try:
            summary = wire.decode(path.read_bytes(), dict[str, Any])
        except (IsADirectoryError, BadInput):
            summary = {}
        form = str(summary.get("format", ""))
        if not form.startswith(f"{self._kind.form} "):
            what = f"belongs to a '{form}'" if form.startswith("bftrain ") else "was not written by bftrain"
            raise overwrite_error(path, what, fix=_MOVE_AWAY)
        return summary

    def _check_files(self, summary: Mapping[str, Any] | None) -> None:
        """Raise an error if a file to be replaced or removed is not part of the current result."""
        sums = _read_sums(self.path / SUMS) if summary is not None else {}
        folder = self.path.stat()
        for name in sorted(self._kind.names | self._kind.prints | {SUMS}):
            path = self.path / name
            if not os.path.lexists(path):
                continue
            if not self._is_own(path, summary, sums):
                changed = name in sums
                what = "changed since bftrain wrote it" if changed else "was not written with a result of bftrain"
                raise overwrite_error(path, what, fix=_MOVE_AWAY)
            # The sticky bit of the folder lets only some users replace a file
            if folder.st_mode & stat.S_ISVTX and os.geteuid() not in {0, folder.st_uid, path.lstat().st_uid}:
                what = "belongs to another user, and only owners may replace files in this folder"
                raise overwrite_error(path, what, fix="name another folder")
        for path, begin in ((self.path / name, begin) for name, begin in self._kind.records.items()):
            # The file may end at any byte
            if os.path.lexists(path) and not (_is_plain(path) and begin.startswith(head_of(path, len(begin)))):
                raise overwrite_error(path, "was not written by bftrain", fix=_MOVE_AWAY)

    def _is_own(self, path: Path, summary: Mapping[str, Any] | None, sums: Mapping[str, str]) -> bool:
        if path.name in self._kind.prints:
            return summary is not None or any((self.path / name).exists() for name in self._kind.records)
        if summary is None or not _is_plain(path):
            return False
        if path.name == SUMS:
            return bool(sums)
        if path.name == REPORT_FILE:
            return is_own_page(path)
        return sums[path.name] == _sha256(path) if path.name in sums else not sums


def complete_replacement(folder: Path) -> None:
    """Complete the replacement of a result after its command was killed; call before reading the result."""
    if not (folder / READY).is_dir():
        return
    try:
        with FolderLock(folder):
            finish_replacement(folder)
    except PermissionError as error:
        what = f"the command that replaced its result was killed, and you cannot finish that: {error.strerror}"
        raise BadInput(what, where=str(folder), fix="ask its owner to run bftrain report on it") from error


@contextmanager
def locked_result(folder: Path) -> Iterator[None]:
    """Lock a result against replacement while a page is drawn from it and written next to it."""
    prepare_folder(folder)
    with FolderLock(folder):
        finish_replacement(folder)
        yield


def finish_replacement(folder: Path) -> None:
    """Move the files of a new, ready result into place, if any; the summary is last."""
    ready = folder / READY
    if not ready.is_dir():
        return
    inside = sorted(path.name for path in ready.iterdir())
    obsolete = ready / _OBSOLETE
    for name in inside:
        if name != _OBSOLETE and not name.endswith(".json"):
            (ready / name).replace(folder / name)
    for name in obsolete.read_text(encoding="utf-8").splitlines() if _OBSOLETE in inside else ():
        (folder / name).unlink(missing_ok=True)
    for name in inside:
        if name.endswith(".json"):
            (ready / name).replace(folder / name)
    obsolete.unlink(missing_ok=True)
    ready.rmdir()


def is_own_page(path: Path) -> bool:
    """Return whether a file is a page written by bftrain."""
    return _is_plain(path) and PAGE_MARK.encode() in head_of(path)


def write_page(path: Path, text: str) -> None:
    """Write a page; raise an error instead of replacing a file not written by bftrain."""
    check_replaceable(path, is_own_page, "page")
    write_text(path, text)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _read_sums(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if _is_plain(path) else ()
    except UnicodeDecodeError:
        return {}
    return {name: value for value, _, name in (line.partition("  ") for line in lines) if name}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
