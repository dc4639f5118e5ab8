"""Any bytes give a log, or a refusal in words; every row in the books; in bounded time.

Readers of other packages are tried too, if they are installed. ``HYPOTHESIS_PROFILE=explore`` looks for new examples;
what it found stands below, so that it is tried for ever.
"""

from __future__ import annotations

import gzip
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import BadInput, ImportOptions, registry
from bftrain_datasets.importing.pipeline import import_files
from tests.helpers.samples import SAMPLES

READERS: Final = sorted(registry.parts("reader"))
WHOLE: Final = [sample for samples in SAMPLES.values() for sample in samples]
PATIENCE_S: Final = 20.0
# What stands where a number, a time, a name or a separator is expected
STRANGE: Final = [
    *[b"-1", b"0", b"1e400", b"-1e400", b"nan", b"Infinity", b"1" * 400, b"9" * 5000, b"18446744073709551616", b"0x10"],
    *[b"2147483648", b"99999999999999", b"1_000", "\u0661".encode(), b"0001-01-01T00:00:00", b"9999-12-31T23:59:60"],
    *[b"", b" ", b"\0", b"\0" * 70, b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b'"', b"'", b"\\"],
    *[b"|", b",", b";", b":", b"\t", b"#", b"[", b"]", b"{", b"}", b"=", b"+", b"*", b"%", b"/", b"..", b"\x1b[31m"],
    *[b"n[", b"n[1-", b"n[1-9999999]", b"n[9-1]", b"n[1-2]x[1-2]", b"n" * 300, b"@all", b"None assigned", b"Unknown"],
    *[b"[" * 5000, b'{"a":' * 2000, b"x" * 2000, b"RUNNING", b"idle", b"null", b"true", b"\x80\x04\x95", b"PK\x03\x04"],
]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Take a sample, or two of different formats, and spoil it: bytes, pieces, lines, ends."""
    content = draw(st.sampled_from(WHOLE))[:20_000]
    for _ in range(draw(st.integers(1, 5))):
        content = draw(st.sampled_from([_flip, _splice, _cut, _lines, _double, _other]))(draw, content)
    return content


def _place(draw: st.DrawFn, content: bytes) -> int:
    return draw(st.integers(0, max(len(content) - 1, 0)))


def _flip(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] + bytes([draw(st.integers(0, 255))]) + content[place + 1 :]


def _splice(draw: st.DrawFn, content: bytes) -> bytes:
    """Put something strange in the place of a word, wherever it ends."""
    begin = _place(draw, content)
    end = begin + draw(st.integers(0, 24))
    return content[:begin] + draw(st.one_of(st.sampled_from(STRANGE), st.binary(max_size=8))) + content[end:]


def _cut(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] if draw(st.booleans()) else content[place:]


def _lines(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)[:200]
    return b"".join(draw(st.permutations(lines))) + b"".join(content.splitlines(keepends=True)[200:])


def _double(draw: st.DrawFn, content: bytes) -> bytes:
    begin = _place(draw, content)
    end = begin + draw(st.integers(0, 400))
    return content[:end] + content[begin:end] * draw(st.integers(1, 3)) + content[end:]


def _other(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] + draw(st.sampled_from(WHOLE))[:2000] + content[place:]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "counts": st.booleans(),
        "timezone": st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "-11:30"]),
        "nodes": st.sampled_from([("n1",), ("a", "b", "n2"), ("1", "2", "3")]),
        "node_count": st.sampled_from([1, 4, 1000]),
        "window": st.sampled_from([(None, 1_600_000_030.0), (1_600_000_010.0, None), (0.0, 2e9), (5e10, 6e10)]),
        "down": st.sampled_from([((None, None),), ((1_600_000_000.0, 1_600_000_020.0),)]),
        "down_suspected": st.booleans(),
        "min_gap_s": st.sampled_from([0.0, 10.0, 1e12]),
        "preemptible": st.sampled_from([("main",), ("night", "default")]),
        "columns": st.sampled_from([("JobID", "Start", "End"), ("JobID", "State", "Start", "End", "NodeList")]),
        "downtime_after_s": st.sampled_from([1e-9, 1e300]),
    },
)


def survives(contents: list[bytes], options: dict[str, Any]) -> None:
    """Import; a refusal must be of what came from outside, and nothing else may happen."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        begin = time.perf_counter()
        with suppress(BadInput):
            made = import_files(paths, ImportOptions(**options))
            assert made.rows.read == made.rows.used + sum(made.rows.aside.values())
            assert made.log.span_s >= 0
            assert 0 <= made.log.idle_share <= 1 + 1e-9
            assert {each.name for each in made.findings} >= set(made.rows.aside)
        assert time.perf_counter() - begin < PATIENCE_S


@given(content=spoilt(), options=OPTIONS)
def test_spoilt_samples(content: bytes, options: dict[str, Any]) -> None:
    survives([content], options)


@given(content=spoilt(), name=st.sampled_from(READERS), options=OPTIONS)
def test_every_reader_on_everything(content: bytes, name: str, options: dict[str, Any]) -> None:
    """Also on what is of another format altogether."""
    survives([content], options | {"format": name})


@given(content=st.binary(max_size=300), name=st.sampled_from(READERS), options=OPTIONS)
def test_every_reader_on_noise(content: bytes, name: str, options: dict[str, Any]) -> None:
    survives([content], options | {"format": name})


@given(name=st.sampled_from(sorted(SAMPLES)), data=st.data(), options=OPTIONS)
def test_several_files(name: str, data: st.DataObject, options: dict[str, Any]) -> None:
    contents = [data.draw(st.sampled_from(SAMPLES[name])) for _ in range(2)] + [data.draw(spoilt())]
    survives(data.draw(st.permutations(contents)), options | {"format": name})


@given(sample=st.sampled_from([each for each in WHOLE if len(each) < 5000]), data=st.data())
def test_spoilt_archives(sample: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(sample, mtime=0)
    place = data.draw(st.integers(0, len(packed) - 1))
    other = bytes([data.draw(st.integers(0, 255))])
    spoils = [packed[:place], packed[:place] + other + packed[place + 1 :], packed + other]
    survives([data.draw(st.sampled_from(spoils))], {})


FOUND: Final[list[tuple[str, bytes, dict[str, Any]]]] = [
    ("sinfo", b"1600000000\nidle n1\n", {"columns": ("JobID", "Start", "End")}),
    ("sacct", b'JobID,Start,End,NodeList\n1,"5"\r6,7,n1\n', {}),
    ("sacct", b"JobID|Start|End|NodeList\n1|5|9|n" + b"9" * 5000 + b"\n", {}),
    ("sacct", b"JobID|Start|End|NodeList\n1|5|9|n[" + b",".join([b"0-999999"] * 9000) + b"]\n", {}),
    ("sacct", b"JobID|Start|End|NodeList\n1|5|9|n[1-999999999]x[1-2]\n", {}),
    ("sacct", b"JobID|Start|End|NodeList\n1|5|9|" + b"n," * 250_000 + b"[\n", {}),
]


@pytest.mark.parametrize(("name", "content", "options"), FOUND)
def test_what_was_found_once_stays_mended(name: str, content: bytes, options: dict[str, Any]) -> None:
    survives([content], options | {"format": name})
    survives([content], options)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\0", b"\xff" * 100, b"x" * 2_000_000, b"," * 100_000, b"[" * 100_000]
)
def test_plain_nonsense(name: str, content: bytes) -> None:
    survives([content], {"format": name})
    survives([content], {"format": name, "counts": True})
