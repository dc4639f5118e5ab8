"""A scheduler's file: compressed or not, or standard input. It is read once, in blocks, and hashed while reading."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Final, Protocol, Self, cast

from bftrain.errors import BadInput
from bftrain.files import BYTE_ORDER_MARK, LONGEST_LINE_BYTES, check_unpacked, existing, head_of
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.log.provenance import ProvenanceSource, tellable

STDIN: Final = "-"  # the path that stands for standard input
HEAD_BYTES: Final = 1 << 16  # used to recognise the format
_BLOCK_BYTES: Final = 1 << 20
LARGE_BLOCK_BYTES: Final = 1 << 23  # read size for parsing many lines together
_BYTE_ORDER_MARK: Final = BYTE_ORDER_MARK.encode()
_TAR_MARK: Final = slice(257, 262)  # the position of "ustar" in a tar archive
_UNPACK: Final = "unpack it first, for example into standard input"
_UTF_16: Final = ("written in UTF-16", "convert it to UTF-8 first: iconv -f UTF-16 -t UTF-8")
_PAGES: Final = (b"<!doctype html", b"<html")
_ARCHIVE: Final = ("an archive or a workbook", f"{_UNPACK}; save a sheet as CSV")
_ZIP: Final = b"PK"
_UNREADABLE: Final = {
    b"\x1f\x9d": _ARCHIVE,  # files of compress
    b"7z\xbc\xaf": _ARCHIVE,
    _ZIP: _ARCHIVE,  # zip archives include workbooks
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}
_FIRST_BYTES: Final = 512  # used to recognise packed files; a tar header has this size
_TAR_BYTES: Final = 1 << 14  # tarfile copies its buffer at each read
_MEMBER_BYTES: Final = 1 << 13  # block size in archives: the last block of a truncated archive is lost
_LOG_MEMBER: Final = b".npy"  # member suffix of a bftrain log, which is also a zip archive
_PACKING: Final[dict[bytes, Callable[[IO[bytes]], _Buffered]]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda stream: import_module("pyarrow").CompressedInputStream(stream, "zstd"),
}
# bz2 raises OSError, without an errno, for damaged data
_DAMAGED: Final = (OSError, lzma.LZMAError, zlib.error, EOFError, tarfile.TarError)


class _Stream(io.RawIOBase):
    """A stream that ``fill`` writes into a buffer; it returns the number of bytes, 0 at the end."""

    def __init__(self, fill: Callable[[memoryview], int]) -> None:
        self._fill = fill

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer is accepted
        return self._fill(buffer)


class RawFile:
    """An input. ``head`` is the start of its content; ``lines()`` or ``binary()`` returns the whole content, once.

    A byte order mark is not part of the content. Damage, such as a truncated archive, is counted in the ``tally``; the
    content stops there.
    """

    def __init__(self, path: Path | None, tally: FindingsTally, tell: Callable[[int], object] | None = None) -> None:
        self.name = "stdin" if path is None else tellable(path.name)
        self._tally = tally
        self._tell = tell
        where = self.where = str(path) if path else "stdin"
        self._path = path
        self._closing = ExitStack()
        self._outer = sys.stdin.buffer if path is None else self._closing.enter_context(existing(path).open("rb"))
        size = path.stat().st_size if path is not None else 0
        self._digest, self._size_bytes = hashlib.sha256(), 0
        self._raw = _Stream(self._fill_raw)
        self._damage: list[Exception] = []
        self._archive: tarfile.TarFile | None = None

        def check(unpacked: int) -> None:
            check_unpacked(unpacked, max(size, self._size_bytes), where=where, fix=_UNPACK)

        try:
            stream: io.BufferedReader = io.BufferedReader(self._raw, _BLOCK_BYTES)
            self._stream, self._archive = _unpacked(stream, where, self._damage, check)
            head = self._stream.peek(HEAD_BYTES)[:HEAD_BYTES]
            if self._damage and not head:
                raise self._damage[0]
            if head.startswith(_BYTE_ORDER_MARK):
                self._stream.read(len(_BYTE_ORDER_MARK))
            self.head = head.removeprefix(_BYTE_ORDER_MARK)
            _check_format(self.head, where)
        except (BadInput, *_DAMAGED) as error:
            self._closing.close()
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"cannot be unpacked: {error}", where=where, fix="fetch the file again") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def _fill_raw(self, buffer: memoryview) -> int:
        """Read a block of the packed file, hash it, and report its size."""
        try:
            block = self._outer.read(len(buffer))
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", where=self.where) from error
        self._digest.update(block)
        self._size_bytes += len(block)
        if self._tell is not None:
            self._tell(len(block))
        buffer[: len(block)] = block
        return len(block)

    def binary(self) -> IO[bytes]:
        """Return the unpacked content."""
        return self._stream

    def seekable(self) -> IO[bytes]:
        """Return the unpacked content as a seekable file: the file itself, or a copy."""
        if (
            self._path is not None
            and self._archive is None
            and head_of(self._path, _FIRST_BYTES) == self.head[:_FIRST_BYTES]
        ):
            return self._closing.enter_context(self._path.open("rb"))
        return _copied(self._stream, self._closing)

    def blocks(self, joined_bytes: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole lines with the number of their first line; memory is bounded for any content.

        Blocks are joined until they are longer than ``joined_bytes``.
        """
        first, pieces = 1, list[bytes]()
        for number, piece, ended in self._pieces():
            if pieces and (piece is None or not ended or sum(map(len, pieces)) > joined_bytes):
                yield first, b"\n".join(pieces)
                pieces.clear()
            if piece is None:
                self._tally.row(number)
                self._tally.set_aside("malformed")
                continue
            if not (ended or self._damage):  # damage is reported separately
                self._tally.note_unended(f"{self.name}:{number}")
            first = first if pieces else number
            pieces.append(piece)
        if pieces:
            yield first, b"\n".join(pieces)

    def _pieces(self) -> Iterator[tuple[int, bytes | None, bool]]:
        """Yield whole lines as they are read, None for an overlong line, and whether the last line is complete."""
        number, rest, overlong = 1, b"", False
        while block := self._stream.read1(_BLOCK_BYTES):
            whole, end, last = block.rpartition(b"\n")
            if end:
                whole = rest + whole
                if overlong or len(whole.partition(b"\n")[0]) > LONGEST_LINE_BYTES:  # no other line is that long
                    yield number, None, True
                    number += 1
                    _, end, whole = whole.partition(b"\n")
                if end:
                    yield number, whole, True
                    number += whole.count(b"\n") + 1
                overlong, rest = False, b""
            rest += last
            if overlong or len(rest) > LONGEST_LINE_BYTES:
                overlong, rest = True, b""
        if overlong or rest:
            yield number, None if overlong else rest, False

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield each non-empty line with its number, without its line end; memory is bounded for any content."""
        for first, block in self.blocks():
            for number, line in enumerate(block.split(b"\n"), first):
                if line:
                    yield number, self.text(line, number)

    def source(self) -> ProvenanceSource:
        """Describe the file after reading; reads the rest to complete the hash."""
        while self._stream.read1(_BLOCK_BYTES):  # read on to find later damage
            pass
        if self._archive is not None:
            self._check_members(self._archive)
        while self._raw.read(_BLOCK_BYTES):
            pass
        if self._damage:
            self._tally.is_cut_off = True
            self._tally.note("truncated")
        return ProvenanceSource(name=self.name, sha256=self._digest.hexdigest(), size_bytes=self._size_bytes)

    def _check_members(self, archive: tarfile.TarFile) -> None:
        try:
            # Iteration starts again at the first member, which was already read
            count = sum(member.isfile() for member in archive)
        except _DAMAGED as error:
            self._damage.append(error)
            return
        if count > 1:
            raise BadInput(f"an archive with {count:,} files", where=self.where, fix="unpack it, and name its files")

    def text(self, line: bytes, number: int) -> str:
        """Return a line as text, without its line end."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self._tally.line = number
            self._tally.note("truncated")
            text = line.decode(errors="replace")
        return text.rstrip("\r")


class _Buffered(Protocol):
    """Interface of the standard library's decompressed files."""

    def read1(self, size: int, /) -> bytes: ...


def _unpacking(
    packed: _Buffered, check: Callable[[int], object], damage: list[Exception], most: int = _BLOCK_BYTES
) -> _Stream:
    """Return the unpacked stream, which stops at any damage; ``damage`` receives the error.

    ``check`` is called with the number of bytes so far.
    """
    count, has_ended = 0, False

    def fill(buffer: memoryview) -> int:
        nonlocal count, has_ended
        filled = 0
        while filled < len(buffer) and not has_ended:
            try:
                # Not read(), which would lose data before the damage
                block = packed.read1(min(len(buffer) - filled, most))
            except _DAMAGED as error:
                damage.append(error)
                block = b""
            buffer[filled : filled + len(block)] = block
            filled += len(block)
            count += len(block)
            has_ended = not block
            check(count)
        return filled

    return _Stream(fill)


def _check_format(head: bytes, where: str) -> None:
    """Raise ``BadInput`` for content packed twice, text in UTF-16 or with old line ends, and web pages."""
    begin = head[:_FIRST_BYTES]
    problem: tuple[str, str] | None = None
    if begin.startswith((*_PACKING, _ZIP)) and _LOG_MEMBER not in begin:
        problem = "packed twice", "unpack it once"
    elif len(begin) >= len(_PAGES[0]) and any(begin[::2]) != any(begin[1::2]):
        problem = _UTF_16
    elif b"\0" not in begin and b"\n" not in begin and begin.count(b"\r") > 1:
        problem = "lines that end in CR alone, as on old Macs", "convert it first: tr '\\r' '\\n' < FILE"
    elif begin.lstrip().lower().startswith(_PAGES):
        problem = "a web page (HTML), not a file of records", "save its table as CSV"
    if problem is not None:
        raise BadInput(problem[0], where=where, fix=problem[1])


def _unpacked(
    stream: io.BufferedReader, where: str, damage: list[Exception], check: Callable[[int], object]
) -> tuple[io.BufferedReader, tarfile.TarFile | None]:
    """Unpack by content, not by name; ``damage`` receives later errors, ``check`` the number of bytes so far."""
    head = stream.peek(_FIRST_BYTES)[:_FIRST_BYTES]
    for mark, (what, fix) in _UNREADABLE.items():
        if head.startswith(mark) and _LOG_MEMBER not in head:
            raise BadInput(what, where=where, fix=fix)
    opener = next((opener for mark, opener in _PACKING.items() if head.startswith(mark)), None)
    if opener is not None:
        stream = io.BufferedReader(_unpacking(opener(stream), check, damage), _BLOCK_BYTES)
        head = stream.peek(_FIRST_BYTES)[:_FIRST_BYTES]
    return _first_member(stream, where, damage, check) if head[_TAR_MARK] == b"ustar" else (stream, None)


def _copied(stream: IO[bytes], closing: ExitStack) -> IO[bytes]:
    """Copy a stream into an unnamed temporary file."""
    copy: IO[bytes] = closing.enter_context(TemporaryFile())  # noqa: SIM115 - closed by the stack
    shutil.copyfileobj(stream, copy, _BLOCK_BYTES)
    copy.seek(0)
    return copy


def _first_member(
    stream: io.BufferedReader, where: str, damage: list[Exception], check: Callable[[int], object]
) -> tuple[io.BufferedReader, tarfile.TarFile]:
    """Open the first file in an archive as a stream, so no data is written to disk."""
    archive = tarfile.open(fileobj=stream, mode="r|", bufsize=_TAR_BYTES)  # noqa: SIM115 - closed with this object
    for member in archive:
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            content = _unpacking(cast("_Buffered", file), check, damage, _MEMBER_BYTES)
            return io.BufferedReader(content, _BLOCK_BYTES), archive
    raise BadInput("an archive that contains no file", where=where, fix="pass the file that should be read")
