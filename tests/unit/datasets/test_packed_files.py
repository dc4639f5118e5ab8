"""Files as they are found: packed, cut off, too large, or through a slow pipe."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import itertools
import lzma
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bftrain import BadInput, Imported, files, import_logs
from tests.helpers.records import imported, kinds

DAY = 1_700_000_000
HEADER = b"JobID|JobName|Start|End|NodeList\n"


def jobs(count: int) -> bytes:
    """Write jobs with names that cannot be packed much, so that a cut-off archive has many of them."""
    names = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(count))
    rows = (f"{number}|{name}|{DAY + number}|{DAY + number + 1}|n1\n" for number, name in enumerate(names))
    return HEADER + "".join(rows).encode()


def tarred(*contents: bytes, mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]  # any mode that writes
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for number, content in enumerate(contents):
            member = tarfile.TarInfo(f"folder/{number}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def sparse(size: int) -> bytes:
    """Return an archive with a file that is nothing but a hole."""
    member = tarfile.TarInfo("hole")
    member.pax_headers = {"GNU.sparse.size": str(size), "GNU.sparse.map": f"{size},0"}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    return file.getvalue()


def xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=0)


TEXT = jobs(1500)
PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "bz2": bz2.compress(TEXT),
    "xz": xz(TEXT),
    "tar": tarred(TEXT),
    "tar.gz": tarred(TEXT, mode="w:gz"),
    "tar.bz2": tarred(TEXT, mode="w:bz2"),
    "tar.xz": tarred(TEXT, mode="w:xz"),
    "several gzip members": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "gzip with zeros after it": gzip.compress(TEXT) + bytes(1000),
}


class Pipe(io.RawIOBase):
    """A pipe whose writer sends blocks of these sizes in turn."""

    def __init__(self, content: bytes, sizes: tuple[int, ...]) -> None:
        self._content, self._position, self._sizes = content, 0, itertools.cycle(sizes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which this is
        block = self._content[self._position : self._position + min(len(buffer), next(self._sizes))]
        self._position += len(block)
        buffer[: len(block)] = block
        return len(block)


def pipe(content: bytes, sizes: tuple[int, ...]) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(Pipe(content, sizes)))


def source_of(found: Imported) -> tuple[str, str, int]:
    (source,) = found.log.provenance.sources
    return source.name, source.sha256, source.size_bytes


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED)
def test_any_packing_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    found = imported(tmp_path, content)
    assert found.rows.used == 1500
    assert "truncated" not in kinds(found)
    digest = hashlib.sha256(content).hexdigest()
    assert source_of(found) == ("0", digest, len(content))
    monkeypatch.setattr(sys, "stdin", pipe(content, (7, 1)))
    piped = import_logs("-")
    assert source_of(piped) == ("stdin", digest, len(content))
    assert piped.log.sha256 == found.log.sha256


@pytest.mark.parametrize("pack", [gzip.compress, xz, tarred, bz2.compress, lambda text: gzip.compress(tarred(text))])
def test_a_file_that_is_cut_off_is_used_as_far_as_it_goes(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    rows = 20_000  # bz2 packs blocks of 900 kB, whole or not at all
    packed = pack(jobs(rows))
    found = imported(tmp_path, packed[: len(packed) * 3 // 4])
    assert "truncated" in kinds(found)
    assert rows // 3 < found.rows.used < rows


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, xz], ids=["gzip", "bz2", "xz"])
def test_damage_is_found(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = bytearray(pack(jobs(20_000)))
    packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 400] = bytes(400)
    assert "truncated" in kinds(imported(tmp_path, bytes(packed)))


def test_a_wrong_checksum_at_the_end_is_found(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    packed[-6] ^= 1
    assert "truncated" in kinds(imported(tmp_path, bytes(packed)))


def test_an_archive_with_several_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"0: an archive with 3 files \(unpack it, and name its files\)"):
        imported(tmp_path, tarred(TEXT, b"second", b"third", mode="w:gz"))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x28\xb5\x2f\xfd" + bytes(50), "cannot be unpacked"),
        (b"\x1f\x9d" + bytes(50), "an archive or a workbook"),
        (b"7z\xbc\xaf\x27\x1c", "an archive or a workbook"),
        ("JobID|Start|End".encode("utf-16"), "UTF-16"),
        (b"JobID|Start|End\r1|2|3\r", "CR alone"),
        (gzip.compress(TEXT, mtime=0)[:12], "fetch the file again"),
        (b"\x1f\x8bnot gzip at all", "cannot be unpacked"),
        (b"BZh9 nor bzip2", "cannot be unpacked"),
        (b"\xfd7zXZ\0 nor xz", "cannot be unpacked"),
        (tarred(), "an archive that contains no file"),
        (tarred(TEXT)[:500].ljust(512, b"\xff"), "cannot be unpacked|without a file"),
        *((pack(b""), "empty") for pack in (bytes, partial(gzip.compress, mtime=0), lzma.compress)),
    ],
)
def test_a_file_that_cannot_be_opened(tmp_path: Path, content: bytes, word: str) -> None:
    with pytest.raises(BadInput, match=rf"/0: .*({word})"):
        imported(tmp_path, content)


@pytest.mark.parametrize("more", [1, 2 * files.LONGEST_LINE_BYTES + 17])
@pytest.mark.parametrize("before", [HEADER, jobs(9000)], ids=["first", "later"])
def test_a_line_that_is_too_long_is_one_row(tmp_path: Path, before: bytes, more: int) -> None:
    found = imported(tmp_path, before + b"x" * (files.LONGEST_LINE_BYTES + more) + b"\n" + TEXT[len(HEADER) :])
    assert found.rows.aside["malformed"] == 1
    assert found.rows.used >= 1500
    place = next(each.first for each in found.findings if each.name == "malformed")
    assert place == f"0:{before.count(bytes([10])) + 1}"


def test_a_line_of_100_mb_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", pipe(HEADER + b"x" * 100_000_000 + b"\n" + TEXT[len(HEADER) :], (1 << 16,)))
    tracemalloc.start()
    try:
        found = import_logs("-")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.rows.aside["malformed"] == 1
    assert peak_bytes < 20_000_000


def test_a_disk_error_is_reported_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: object) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Broken())))
    with pytest.raises(BadInput, match=r"stdin: .*Input/output error"):
        import_logs("-")


SAME = HEADER + b"12|zeros|1700000000|1700000009|n0000000000000000000000000000000000000000\n" * 20_000
BOMBS = {
    "gzip": gzip.compress(SAME),
    "bz2": bz2.compress(SAME),
    "xz": lzma.compress(HEADER + bytes(2 << 20)),
    "tar.gz": tarred(HEADER, bytes(2 << 20), mode="w:gz"),
    "sparse tar": sparse(1 << 40),
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_a_file_that_unpacks_to_far_more_is_rejected(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"0: unpacks to more than [12],0"):
            imported(tmp_path, content, format="sacct")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20  # lines are read in blocks
    finally:
        tracemalloc.stop()


def test_a_large_file_may_unpack_to_more_than_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1)
    assert imported(tmp_path, PACKED["tar.gz"]).rows.used == 1500
