"""Each format is recognised by its own reader, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import registry
from bftrain_datasets.importing.pipeline import LogReader
from tests.helpers.records import imported
from tests.helpers.samples import PICKLES, SAMPLES

CASES = [(name, sample) for name, samples in SAMPLES.items() for sample in samples]
BESIDE = {"slurm-events", "slurm-reservations", "pbs-events"}
OTHER = [
    b"hello\n",
    b"a,b,c\n1,2,3\n",
    b'{"jobs": {}}',
    b"time,value\n1,2\n",
    b"\x80\x04N.",
    b"\0" * 100,
    b"2026-01-05 00:00:00 INFO all is well\n",
    *(path.read_bytes() for path in sorted(PICKLES.glob("*-bounds.pkl"))),
]


def readers() -> dict[str, LogReader]:
    return {name: part.load() for name, part in registry.parts("reader").items()}


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_each_format_by_its_own_reader_alone(name: str, sample: bytes) -> None:
    assert [each for each, reader in readers().items() if reader.recognises(sample)] == [name]


@pytest.mark.parametrize("sample", OTHER)
def test_anything_else_by_none(sample: bytes) -> None:
    assert [each for each, reader in readers().items() if reader.recognises(sample)] == []


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_a_beginning_that_is_cut_anywhere_is_never_taken_for_another(name: str, sample: bytes) -> None:
    cuts = {*range(0, len(sample), max(1, len(sample) // 15)), len(sample) - 1}
    for cut in sorted(cuts):
        assert {each for each, reader in readers().items() if reader.recognises(sample[:cut])} <= {name}


@pytest.mark.parametrize(("name", "sample"), [case for case in CASES if case[0] not in BESIDE])  # no log alone
def test_the_samples_are_read(tmp_path: Path, name: str, sample: bytes) -> None:
    found = imported(tmp_path, sample)
    assert found.format == name
    assert found.rows.used > 0


def test_readers_say_who_they_are() -> None:
    for name, reader in readers().items():
        assert reader.name == name
        assert reader.about.isprintable()
