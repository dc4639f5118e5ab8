"""Files as they are found: packed, cut off, binary, endless, or through a pipe in crumbs."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain import BadInput, files
from bftrain.files import LONGEST_LINE_BYTES
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile

TEXT = "".join(f"{number}|row\n" for number in range(50_000)).encode()


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


PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "bz2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "tar": tarred(TEXT),
    "tar.gz": tarred(TEXT, mode="w:gz"),
    "tar.bz2": tarred(TEXT, mode="w:bz2"),
    "tar.xz": tarred(TEXT, mode="w:xz"),
    "several gzip members": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "gzip with zeros after it": gzip.compress(TEXT) + bytes(1000),
}


class Read:
    """What came out of one file."""

    def __init__(self, path: Path | None, least: int = sys.maxsize) -> None:
        self.tally = FindingsTally()
        self.tally.file = "f"
        with RawFile(path, self.tally) as file:
            self.head = file.head
            self.lines = [line for _, (_, line) in zip(range(least), file.lines(), strict=False)]
            self.source = file.source()
        self.found = {each.name: each.count for each in self.tally.findings()}


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], Read]:
    def reading(content: bytes) -> Read:
        path = tmp_path / "f"
        path.write_bytes(content)
        return Read(path)

    return reading


Reading = "Callable[[bytes], Read]"


def text_of(read: Read) -> bytes:
    return "".join(f"{line}\n" for line in read.lines).encode()


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED)
def test_any_packing_by_content(read: Reading, content: bytes) -> None:
    found = read(content)
    assert text_of(found) == TEXT
    assert found.head == TEXT[: 1 << 16]
    assert found.source.sha256 == hashlib.sha256(content).hexdigest()
    assert (found.source.name, found.source.size_bytes) == ("f", len(content))
    assert found.found == {}


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED)
def test_the_whole_file_is_hashed_though_the_reader_stops_early(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    found = Read(tmp_path / "f", least=3)
    assert found.lines == ["0|row", "1|row", "2|row"]
    assert found.source.sha256 == hashlib.sha256(content).hexdigest()
    assert found.source.size_bytes == len(content)


class Crumbs(io.RawIOBase):
    """A pipe whose writer is slow: one byte at a time, then seven."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which this is
        size = min(len(buffer), 1 if self._at % 2 else 7)
        block = self._content[self._at : self._at + size]
        self._at += len(block)
        buffer[: len(block)] = block
        return len(block)


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED)
def test_standard_input_in_crumbs(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Crumbs(content))))
    found = Read(None)
    assert text_of(found) == TEXT
    assert found.source.name == "stdin"
    assert found.source.sha256 == hashlib.sha256(content).hexdigest()


def noise(count: int) -> bytes:
    """Make bytes that cannot be packed much, so that a cut-off archive has much in it."""
    return b"".join(hashlib.sha256(str(at).encode()).hexdigest().encode() + b"\n" for at in range(count))


def xz(content: bytes) -> bytes:
    """Pack as the program of that name does, without looking long for what repeats."""
    return lzma.compress(content, preset=0)


@pytest.mark.parametrize(
    ("pack", "rows"),
    [
        *[(gzip.compress, 1000), (xz, 1000), (tarred, 1000)],
        *[(gzip.compress, 20_000), (xz, 20_000), (tarred, 20_000)],
        (bz2.compress, 40_000),  # which packs blocks of 900 kB, whole or not at all
    ],
)
def test_a_file_that_is_cut_off_is_used_as_far_as_it_goes(
    read: Reading, pack: Callable[[bytes], bytes], rows: int
) -> None:
    whole = noise(rows)
    packed = pack(whole)
    found = read(packed[: len(packed) * 3 // 4])
    assert found.found == {"truncated": 1}
    assert len(found.lines) > rows // 2
    assert whole.startswith(text_of(found)[:-70])


def test_a_cut_off_tar_gz(read: Reading) -> None:
    whole = noise(20_000)
    for content in (gzip.compress(tarred(whole)), gzip.compress(tarred(whole, whole))):
        found = read(content[: len(content) * 3 // 4])
        assert found.found == {"truncated": 1}
        assert len(found.lines) > 9_000


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, xz], ids=["gzip", "bz2", "xz"])
def test_damage_in_the_middle(read: Reading, pack: Callable[[bytes], bytes]) -> None:
    packed = bytearray(pack(noise(40_000)))
    packed[len(packed) // 2 : len(packed) // 2 + 400] = bytes(400)
    assert read(bytes(packed)).found == {"truncated": 1}


def test_a_check_sum_that_is_wrong_at_the_very_end(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    packed[-6] ^= 1
    (tmp_path / "f").write_bytes(packed)
    assert Read(tmp_path / "f").found == {"truncated": 1}
    assert Read(tmp_path / "f", least=1).found == {"truncated": 1}


def test_further_files_of_an_archive_are_reported(read: Reading) -> None:
    found = read(tarred(TEXT, b"second", b"third", mode="w:gz"))
    assert text_of(found) == TEXT
    assert found.found == {"more_members": 2}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x28\xb5\x2f\xfd" + bytes(50), "cannot be unpacked: .*fetch the file again"),
        (b"\x1f\x9d" + bytes(50), "packed with compress"),
        (b"7z\xbc\xaf\x27\x1c", "packed with 7z"),
        ("JobID|Start|End".encode("utf-16"), "written in UTF-16 .*iconv"),
        (b"JobID|Start|End\r1|2|3\r", "lines that end in CR alone.*convert it"),
        (gzip.compress(TEXT, mtime=0)[:12], "cannot be unpacked: .*ended before.* .fetch the file again"),
        (b"\x1f\x8bnot gzip at all", "cannot be unpacked"),
        (b"BZh9 nor bzip2", "cannot be unpacked"),
        (b"\xfd7zXZ\0 nor xz", "cannot be unpacked"),
        (tarred(), "an archive without a file in it"),
        (tarred(TEXT)[:500].ljust(512, b"\xff"), "cannot be unpacked|without a file"),
    ],
)
def test_what_cannot_be_opened_says_why(read: Reading, content: bytes, what: str) -> None:
    with pytest.raises(BadInput, match=rf"/f: {what}"):
        read(content)


def test_an_empty_file_has_nothing_in_it(read: Reading) -> None:
    for content in (b"", gzip.compress(b""), lzma.compress(b"")):
        found = read(content)
        assert (found.head, found.lines, found.found) == (b"", [], {})


def test_lines_end_as_they_may(read: Reading) -> None:
    assert read(b"a\r\nb\nc").lines == ["a", "b", "c"]
    assert read(b"a\n\n\r\nb\n").lines == ["a", "", "b"], "empty ones are passed over"
    assert read(b"nul\x00in it\n").lines == ["nul\x00in it"]


def test_the_mark_of_windows_is_no_part_of_the_text(read: Reading) -> None:
    found = read("\ufeffJobID|Start\n\ufeffx\n".encode())
    assert found.head.startswith(b"JobID")
    assert found.lines == ["JobID|Start", "\ufeffx"]


def test_what_is_not_utf8_is_read_and_counted(read: Reading) -> None:
    found = read(b"plain\nM\xfcller\nM\xc3\xbcller\n\xff\xfe\n")
    assert found.lines == ["plain", "M\ufffdller", "M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller", "\ufffd\ufffd"]
    assert found.found == {"not_utf8": 2}
    assert next(iter(found.tally.findings())).first == "f:2"


@pytest.mark.parametrize("more", [1, 10, LONGEST_LINE_BYTES, 3 * LONGEST_LINE_BYTES + 17])
@pytest.mark.parametrize("before", [b"", b"a\n" * 300_000])
def test_a_line_that_is_too_long_is_one_row_wherever_it_stands(read: Reading, before: bytes, more: int) -> None:
    longest = b"x" * LONGEST_LINE_BYTES
    many = before.count(b"\n")
    found = read(before + longest + b"\n" + longest + b"x" * more + b"\nshort\nlast")
    assert [len(line) for line in found.lines[many:]] == [LONGEST_LINE_BYTES, 5, 4]
    assert found.tally.aside == {"overlong": 1}
    assert found.tally.findings()[0].first == f"f:{many + 2}"
    assert read(before + longest + b"x" * more).tally.aside == {"overlong": 1}


class Endless(io.RawIOBase):
    """A line of 100 MB."""

    left = 100_000_000

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which this is
        size = min(len(buffer), self.left)
        self.left -= size
        buffer[:size] = b"x" * size
        return size


def test_a_line_of_100_mb_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    tracemalloc.start()
    found = Read(None)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.lines, found.tally.aside) == ([], {"overlong": 1})
    assert found.source.size_bytes == 100_000_000
    assert most < 20_000_000


def test_progress_is_reported_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(PACKED["gzip"])
    read_bytes: list[int] = []
    with RawFile(path, FindingsTally(), read_bytes.append) as file:
        list(file.lines())
    assert sum(read_bytes) == len(PACKED["gzip"])


def test_a_disc_that_fails_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: object) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Broken())))
    with pytest.raises(BadInput, match="stdin: cannot be read: Input/output error"):
        Read(None)


def test_binary_gives_what_is_inside(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(PACKED["tar.gz"])
    with RawFile(tmp_path / "f", FindingsTally()) as file:
        assert file.binary().read() == TEXT


SAME = b"12|row|of|zeros|0000000000000000000000000000000000000000000000000000000000\n" * 50_000
ENDLESS = {
    "gzip": gzip.compress(SAME),
    "bz2": bz2.compress(SAME),
    "xz": lzma.compress(bytes(4 << 20)),
    "tar.gz": tarred(b"a\n", bytes(4 << 20), mode="w:gz"),
    "sparse tar": sparse(1 << 40),
}


@pytest.mark.parametrize("content", ENDLESS.values(), ids=ENDLESS)
def test_what_unpacks_to_far_more_than_logs_do_is_refused(
    read: Reading, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_BYTES", 3 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"f: unpacks to more than 3,145,728 bytes, .*unpack it first"):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20  # lines are read in blocks
    finally:
        tracemalloc.stop()


def test_a_large_file_may_unpack_to_more_than_a_small_one(read: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1)
    assert text_of(read(PACKED["tar.gz"])) == TEXT
