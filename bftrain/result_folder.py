"""Folders of results: locked while in use, replaced as a whole, and files of others stay untouched.

A result is written into a draft folder inside its own folder. When all of it is on the disk, the draft is renamed to
``READY``: from then on the new result counts, and its files are moved into place, by the next command if this one is
killed. Until then the old one stays as it is. ``SHA256SUMS`` lists the files, so that a file which was not written
with the result, or was changed since, is recognised and left alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from bftrain.errors import BadInput, UsageError
from bftrain.files import check_replaceable, head_of, prepare_folder, write_text
from bftrain.folder_lock import FolderLock
from bftrain.values import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SUMS: Final = "SHA256SUMS"
REPORT_FILE: Final = "report.html"  # not in SUMS, since bftrain report may redraw it; PAGE_MARK says that it is ours
PAGE_MARK: Final = '<meta name="generator" content="bftrain '
INTERRUPTED: Final = "interrupted"  # why a part ended
DRAFT: Final = ".bftrain-draft"
READY: Final = ".bftrain-ready"
_OBSOLETE: Final = ".obsolete"  # in READY: names of files of the old result that the new one does not have
ADVICE: Final = "--overwrite replaces it, or name another folder"
IN_PYTHON: Final = "overwrite=True replaces it, or name another folder"
_MOVE_AWAY: Final = "move it away, or name another folder"


@dataclass(frozen=True, kw_only=True)
class ResultKind:
    """The files of a kind of result. ``format`` in its summary is ``form`` and a number.

    ``records`` maps files that grow during the run to their first bytes; files in ``prints`` may hold anything.
    """

    title: str
    form: str
    names: frozenset[str]
    summary: str = "summary.json"
    records: Mapping[str, bytes] = field(default_factory=dict)
    prints: frozenset[str] = frozenset()


class ResultFolder:
    """A folder with a result of some kind, or for one; use it in a ``with`` block.

    The folder is created if it is missing. A finished result in it is refused with ``advice``, unless ``overwrite`` is
    set or the new result ``goes_on`` with it. ``holds_finished`` says whether there is a finished result: an
    interrupted part must not replace it.
    """

    def __init__(
        self,
        path: Path,
        kind: ResultKind,
        *,
        overwrite: bool = False,
        advice: str = ADVICE,
        goes_on: bool = False,
    ) -> None:
        self.path = path
        self.holds_finished = False
        self._kind = kind
        self._overwrite = overwrite
        self._advice = advice
        self._goes_on = goes_on
        self._open = ExitStack()

    def __enter__(self) -> Self:
        prepare_folder(self.path)
        with ExitStack() as opened:
            opened.enter_context(FolderLock(self.path))
            finish_replacement(self.path)
            shutil.rmtree(self.path / DRAFT, ignore_errors=True)
            self._check()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._open:
            finish_replacement(self.path)
            shutil.rmtree(self.path / DRAFT, ignore_errors=True)

    def replace(self, write: Callable[[Path], object]) -> None:
        """Let ``write`` write all files of a result into a draft folder, then put them in the place of the old ones."""
        draft = self.path / DRAFT
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir()
            write(draft)
            new = {path.name for path in draft.iterdir()}
            write_text(draft / SUMS, _sums(draft, new - {REPORT_FILE}))
            self._check_files(self._read_summary())  # files of others may have come meanwhile
            old = {*self._kind.names, SUMS} - new - {SUMS}
            write_text(draft / _OBSOLETE, "".join(f"{name}\n" for name in sorted(old)))
        except OSError as error:
            raise _of_file(error, draft, self.path) from error
        draft.rename(self.path / READY)
        finish_replacement(self.path)

    def _check(self) -> None:
        summary = self._read_summary()
        if summary is not None and _is_finished(summary):
            if not (self._overwrite or self._goes_on):
                what = f"holds a finished {self._kind.title}"
                raise UsageError(what, where=str(self.path), fix=self._advice)
            self.holds_finished = True
        self._check_files(summary)

    def _read_summary(self) -> Mapping[str, Any] | None:
        """Read the summary of the result that is there; refuse a summary of anything else."""
        path = self.path / self._kind.summary
        if not os.path.lexists(path):
            return None
        try:
            summary = wire.decode(path.read_bytes(), dict[str, Any])
        except (IsADirectoryError, BadInput):
            summary = {}
        form = str(summary.get("format", ""))
        if not form.startswith(f"{self._kind.form} "):
            what = f"is of a '{form}'" if form.startswith("bftrain ") else "was not written by bftrain"
            raise BadInput(f"{what}, and is left as it is", where=str(path), fix=_MOVE_AWAY)
        return summary

    def _check_files(self, summary: Mapping[str, Any] | None) -> None:
        """Refuse to go on if a file that would be replaced or removed is not of the result that is there."""
        sums = _read_sums(self.path / SUMS) if summary is not None else {}
        for name in sorted(self._kind.names | self._kind.prints | {SUMS}):
            path = self.path / name
            if os.path.lexists(path) and not self._is_own(path, summary, sums):
                changed = name in sums
                what = "was changed since bftrain wrote it" if changed else "was not written with a result of bftrain"
                raise BadInput(f"{what}, and is left as it is", where=str(path), fix=_MOVE_AWAY)
            if os.path.lexists(path) and not _may_replace(path):
                what = "belongs to another user, and the folder lets only owners replace their files"
                raise BadInput(what, where=str(path), fix="name another folder")
        for name, begin in self._kind.records.items():
            path = self.path / name
            if os.path.lexists(path) and not _begins(path, begin):  # it may be cut off at any byte
                what = "was not written by bftrain, and is left as it is"
                raise BadInput(what, where=str(path), fix=_MOVE_AWAY)

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


def settle(folder: Path) -> None:
    """Finish the replacement of a result whose command was killed during it; call it before reading the result."""
    if not (folder / READY).is_dir():
        return
    try:
        with FolderLock(folder):
            finish_replacement(folder)
    except PermissionError as error:
        what = f"the command that replaced its result was killed, and you cannot finish that: {error.strerror}"
        raise BadInput(what, where=str(folder), fix="have its owner run bftrain report on it") from error


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Keep a result in place while a page is drawn from it and written beside it: no command replaces it meanwhile."""
    prepare_folder(folder)
    with FolderLock(folder):
        finish_replacement(folder)
        yield


def _may_replace(path: Path) -> bool:
    """Return whether the sticky bit of the folder, if it has one, lets this user replace the file."""
    folder = path.parent.stat()
    return not folder.st_mode & stat.S_ISVTX or os.geteuid() in {0, folder.st_uid, path.lstat().st_uid}


def _is_finished(summary: Mapping[str, Any]) -> bool:
    """Return whether a result is more than an interrupted part; a run that ended with an overload is finished too."""
    return bool(summary.get("complete", True)) or summary.get("ended", INTERRUPTED) != INTERRUPTED


def finish_replacement(folder: Path) -> None:
    """Move the files of a new result that is ready into place, if there is one; the summary comes last."""
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
    """Return whether a file is a page that bftrain wrote."""
    return _is_plain(path) and PAGE_MARK.encode() in head_of(path)


def write_page(path: Path, text: str) -> None:
    """Write a page; refuse to replace a file that bftrain did not write."""
    check_replaceable(path, is_own_page)
    write_text(path, text)


def _begins(path: Path, begin: bytes) -> bool:
    """Return whether a file begins with these bytes, or ends within them."""
    return _is_plain(path) and begin.startswith(head_of(path, len(begin)))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _sums(folder: Path, names: set[str]) -> str:
    """Return the sums in the form of ``sha256sum``."""
    return "".join(f"{_sha256(folder / name)}  {name}\n" for name in sorted(names))


def _read_sums(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if _is_plain(path) else ()
    except UnicodeDecodeError:
        return {}
    return {name: value for value, _, name in (line.partition("  ") for line in lines) if name}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_file(error: OSError, draft: Path, folder: Path) -> OSError:
    """Name the file that was to be written, instead of the one in the draft folder."""
    if error.errno is None or error.filename is None:
        return error
    name = str(error.filename)
    if name.startswith(str(draft)):
        name = f"{folder}{name.removeprefix(str(draft))}"
    return OSError(error.errno, error.strerror, name)
