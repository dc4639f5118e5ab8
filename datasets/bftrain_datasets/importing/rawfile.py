"""A file as a scheduler left it: compressed or not, or standard input; read once, in blocks, hashed on the way."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import tarfile
import zlib
from typing import IO, TYPE_CHECKING, Final, Protocol

from bftrain.errors import BadInput
from bftrain_datasets.provenance import Source, tellable
from bftrain_datasets.storage import BYTE_ORDER_MARK, LONGEST_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from bftrain_datasets.importing.findings import Tally

HEAD_BYTES: Final = 1 << 16  # from which a format is recognised
_BLOCK_BYTES: Final = 1 << 20
_TAR_MARK: Final = slice(257, 262)  # where a tar archive says "ustar"
_UNKNOWN_PACKING: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x9d": "compress", b"7z\xbc\xaf": "7z"}
_LOOK_BYTES: Final = 512
_PACKING: Final[dict[bytes, Callable[[IO[bytes]], io.BufferedIOBase]]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_PACKED_WRONG: Final = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, tarfile.TarError)


class _Hashing(io.RawIOBase):
    """Hashes all that is read through it, and tells how much that was."""

    def __init__(self, inner: IO[bytes], tell: Callable[[int], object] | None) -> None:
        self._inner = inner
        self._tell = tell
        self.digest = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which this is
        block = self._inner.read(len(buffer))
        buffer[: len(block)] = block
        self.digest.update(block)
        self.size += len(block)
        if self._tell is not None:
            self._tell(len(block))
        return len(block)


class RawFile:
    """One input. ``head`` is how its content begins; ``lines()`` or ``binary()`` gives all of it, once.

    What is wrong with the bytes themselves, such as a cut-off archive, is counted in the ``tally``.
    """

    def __init__(self, path: Path | None, tally: Tally, tell: Callable[[int], object] | None = None) -> None:
        self.name = "stdin" if path is None else tellable(path.name)
        self._tally = tally
        where = str(path) if path else "stdin"
        self._outer = sys.stdin.buffer if path is None else path.open("rb")
        self._owned = path is not None
        self._raw = _Hashing(self._outer, tell)
        self._archive: tarfile.TarFile | None = None
        try:
            self._stream, self._archive = _unpacked(io.BufferedReader(self._raw, _BLOCK_BYTES), where)
            self.head, self._stream = _look(self._stream, HEAD_BYTES)
        except (*_PACKED_WRONG, OSError) as error:
            self.__exit__(None, None, None)
            raise BadInput(f"cannot be unpacked: {error}", where=where, fix="fetch the file again") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._outer.close()

    def binary(self) -> IO[bytes]:
        """Give the unpacked content."""
        return self._stream

    def lines(self) -> Iterator[tuple[int, str]]:
        """Give each line with its number, without its end; memory stays bounded whatever the file holds."""
        number, rest = 0, b""
        for block in self._blocks():
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                number += 1
                yield number, self._text(line, number)
            if len(rest) > LONGEST_LINE_BYTES:
                number += 1
                rest = self._pass_over(number)
        if rest:
            yield number + 1, self._text(rest, number + 1)

    def source(self) -> Source:
        """Describe the file, once it has been read; what the reader left is read for its hash."""
        if self._archive is not None:
            further = sum(1 for member in self._archive if member.isfile())
            if further:
                self._tally.note("more_members", count=further)
        while self._raw.read(_BLOCK_BYTES):
            pass
        return Source(name=self.name, sha256=self._raw.digest.hexdigest(), size_bytes=self._raw.size)

    def _blocks(self) -> Iterator[bytes]:
        while True:
            try:
                block = self._stream.read1(_BLOCK_BYTES)
            except _PACKED_WRONG:
                self._tally.note("truncated")
                return
            if not block:
                return
            yield block

    def _pass_over(self, number: int) -> bytes:
        """Leave out the rest of a line that is too long; give back what comes after it in the same block."""
        self._tally.row(number)
        self._tally.set_aside("overlong")
        for block in self._blocks():
            _, end, rest = block.partition(b"\n")
            if end:
                return rest
        return b""

    def _text(self, line: bytes, number: int) -> str:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self._tally.line = number
            self._tally.note("not_utf8")
            text = line.decode(errors="replace")
        return (text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text).rstrip("\r")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Rejoined(io.RawIOBase):
    """The rest of a stream with what was read of it put back before."""

    def __init__(self, head: bytes, rest: _Readable) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which this is
        block, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        block = block or self._rest.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _look(stream: _Readable, count: int) -> tuple[bytes, io.BufferedReader]:
    """Give the first bytes of a stream, and the stream with them still in it; a pipe may bring them in pieces."""
    head = stream.read(count)
    return head, io.BufferedReader(_Rejoined(head, stream), _BLOCK_BYTES)


def _unpacked(stream: io.BufferedReader, where: str) -> tuple[io.BufferedReader, tarfile.TarFile | None]:
    """Unpack by content, whatever the name says."""
    head, stream = _look(stream, _LOOK_BYTES)
    for mark, kind in _UNKNOWN_PACKING.items():
        if head.startswith(mark):
            raise BadInput(f"packed with {kind}", where=where, fix="unpack it first, for example into standard input")
    opener = next((opener for mark, opener in _PACKING.items() if head.startswith(mark)), None)
    if opener is not None:
        head, stream = _look(opener(stream), _LOOK_BYTES)
    return _first_member(stream, where) if head[_TAR_MARK] == b"ustar" else (stream, None)


def _first_member(stream: io.BufferedReader, where: str) -> tuple[io.BufferedReader, tarfile.TarFile]:
    """Open the first file in an archive, as a stream: nothing is ever put on disk."""
    archive = tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK_BYTES)  # noqa: SIM115 - it lives as long as we do
    for member in archive:
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            return _look(file, 0)[1], archive
    raise BadInput("an archive without a file in it", where=where, fix="give the file that should be read")
