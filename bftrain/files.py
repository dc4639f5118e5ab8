"""Reading and writing files: UTF-8 text, lines with bounded memory, and atomic writes."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Final, TypeVar

from bftrain.errors import BadInput, UsageError, suggestion

T = TypeVar("T")

LONGEST_LINE_BYTES: Final = 1 << 20
LARGEST_TEXT_BYTES: Final = 1 << 28
UNPACKED_BYTES: Final = 1 << 26  # any file may unpack to this size
UNPACKED_RATIO: Final = 200  # limit for larger files, as a multiple of their size; the published log of Summit has 73
HEAD_BYTES: Final = 4096
BYTE_ORDER_MARK: Final = "\ufeff"
NOT_TEXT: Final = "it must be UTF-8 text; check that this is the right file, and that it is not compressed"


def by_suffix(path: Path, known: Mapping[str, T], kind: str, *, advice: str = "") -> T:
    """Return the entry of ``known`` for the suffix of the file name; ``kind`` is the sort of file, for the error."""
    suffix = path.suffix.lower()
    if suffix not in known:
        what = f"its name ends in '{suffix}'" if suffix else "its name has no suffix"
        raise BadInput(f"not a {kind}: {what}", where=str(path), fix=advice + suggestion(suffix, known))
    return known[suffix]


def existing(path: Path) -> Path:
    """Return ``path``; raise ``BadInput`` if there is no such file."""
    if not path.exists():
        raise BadInput("no such file", where=str(path), fix="check the name and the folder")
    return path


def check_unpacked(unpacked: int, packed: int, *, where: str, fix: str) -> None:
    """Raise an error if a packed file unpacks to suspiciously many bytes, before memory or hours are spent."""
    most = max(UNPACKED_BYTES, UNPACKED_RATIO * packed)
    if unpacked > most:
        what = f"unpacks to more than {most:,} bytes, suspicious for a file of {packed:,}"
        raise BadInput(what, where=where, fix=f"check its origin; if it is correct, {fix}")


_synced_later: ContextVar[bool] = ContextVar("_synced_later", default=False)


@contextmanager
def synced_later() -> Iterator[None]:
    """Leave it to the caller to sync the whole files that are written in the block, with ``sync_files``."""
    before = _synced_later.set(True)
    try:
        yield
    finally:
        _synced_later.reset(before)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until files are on the disk.

    They are written in parallel threads: a file system then takes a tenth of the time.
    """
    errors: list[OSError] = []

    def sync(path: Path) -> None:
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            errors.append(OSError(error.errno, error.strerror, str(path)))

    threads = [Thread(target=sync, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that appears under its name complete, or not at all."""
    # A killed writer's draft must not block later writers
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    with path_in_errors(path, draft):
        try:
            with draft.open("xb") as file:
                yield file
                file.flush()
                if not _synced_later.get():
                    os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def overwrite_error(path: Path, what: str, fix: str = "move it away, or name another file") -> UsageError:
    """Return the error of every command that would have to overwrite ``path``; ``what`` is the reason to leave it."""
    return UsageError(f"{what}, and is left unchanged", where=str(path), fix=fix)


def check_replaceable(path: Path, is_own: Callable[[Path], bool], kind: str) -> None:
    """Raise an error, before any work, unless ``path`` is new, empty, or a ``kind`` of file that bftrain wrote."""
    if os.path.lexists(path) and not (path.is_file() and (not path.stat().st_size or is_own(path))):
        raise overwrite_error(path, f"is not a {kind} that bftrain wrote")


def head_of(path: Path, count: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a file, to recognise files written by bftrain."""
    with path.open("rb") as file:
        return file.read(count)


@contextmanager
def path_in_errors(path: Path, hidden: Path | None = None) -> Iterator[None]:
    """Add ``path`` to an ``OSError`` that has no file name (such as a full disk) or the ``hidden`` path."""
    try:
        yield
    except OSError as error:
        name, inside = str(error.filename or ""), str(hidden or "")
        if error.errno is None or (name and not (inside and name.startswith(inside))):
            raise
        raise OSError(error.errno, error.strerror, f"{path}{name.removeprefix(inside)}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears complete or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


def prepare_folder(folder: Path) -> None:
    """Create ``folder`` if missing, to detect an unwritable path before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        what = "is a broken link" if not folder.exists() else "is a file, not a folder"
        raise BadInput(what, where=str(folder), fix="name another folder") from error
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise  # the folder itself is fine
        what = f"cannot be written to: {error.strerror}"
        raise BadInput(what, where=str(folder), fix="name another folder") from error


def user_cache() -> Path | None:
    """Return bftrain's folder for what can be made again; ``None`` if this user has none."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        place = named if named.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # no home directory
        return None
    return place / "bftrain" if place.is_absolute() else None


def whole_text(path: Path, kind: str) -> str:
    """Return the content of a text file; ``kind`` describes it in the error for a file above the size limit."""
    size = path.stat().st_size
    if size > LARGEST_TEXT_BYTES:
        what = f"{size:,} bytes exceed the limit of a {kind}"
        raise BadInput(what, where=str(path), fix="check that it is the right file")
    return "\n".join(line for _, line in text_lines(path))


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, stripped of line ends; raise an error with the line if it is not text."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE_BYTES), b""), start=1):
            where = f"{path}:{number}"
            if b"\0" in line:
                raise BadInput("not a text file: it contains zero bytes", where=where, fix=NOT_TEXT)
            if len(line) == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
                raise BadInput(f"a line of more than {LONGEST_LINE_BYTES} bytes", where=where, fix=NOT_TEXT)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                what = f"not UTF-8 text at byte {error.start} of the line"
                raise BadInput(what, where=where, fix=NOT_TEXT) from error
            yield number, (text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text).rstrip("\r\n")


class CsvFile:
    """A CSV file with ``#`` comments before its header; ``rows()`` yields the cells after that.

    ``line`` is the number of the last line read; blank lines are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.comments: list[tuple[int, str]] = []
        self._lines = text_lines(path)
        self._cells = csv.reader(self._content(), strict=True)
        self.header = next(self.rows(), [])

    @property
    def where(self) -> str:
        """The file and the line read last."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each further row."""
        try:
            for row in self._cells:
                if row:
                    yield row
        except csv.Error as error:
            raise BadInput(f"not a CSV row: {error}", where=self.where, fix='check the quotes (")') from error

    def _content(self) -> Iterator[str]:
        in_head = True
        for number, text in self._lines:
            self.line = number
            if in_head and text.startswith("#"):
                self.comments.append((number, text[1:].strip()))
                continue
            in_head = in_head and not text.strip()
            yield text
