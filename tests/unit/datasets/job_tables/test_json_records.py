"""Records of JSON in each form in which programs write them, and where the file is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables import json_records

SOME = [{"id": 1, "nodes": ["a", "b"]}, {"id": 2, "inner": {"x": [1, {"y": 2}]}}, {"id": 3, "text": '{["}'}]
SHOWN = {
    "lines": "".join(json.dumps(each) + "\n" for each in SOME),
    "objects over several lines": "\n".join(json.dumps(each, indent=2) for each in SOME),
    "objects without anything between": "".join(json.dumps(each) for each in SOME),
    "an array": json.dumps(SOME, indent=1),
    "an array in an object": json.dumps({"meta": {"a": [1]}, "jobs": SOME, "errors": []}, indent=1),
    "several such objects": (
        json.dumps({"items": SOME[:1]}, indent=1) + json.dumps({"kind": "List", "items": SOME[1:]})
    ),
}


def read(folder: Path, text: str) -> list[object]:
    path = folder / "records.json"
    path.write_text(text)
    intake = RecordIntake()
    with RawFile(path, intake) as file:
        return [record for _, record in json_records.records(file, intake)]


@pytest.mark.parametrize("form", SHOWN)
def test_each_form_has_the_same_records(tmp_path: Path, form: str) -> None:
    assert read(tmp_path, SHOWN[form]) == SOME


@pytest.mark.parametrize(
    "text",
    ['{\n"id": 1,', '{\n"id": 1, "x"\n: ', '[{"id": 1},\n', '{\n"id" 1}', '{\n"jobs": [{"id": 1}', '{\n"id": 1\n'],
)
def test_what_is_cut_off_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="incomplete JSON"):
        read(tmp_path, text)


def test_a_record_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "LONGEST_RECORD", 1000)
    fields = ",\n".join(f'"field{number}": "{"x" * 20}"' for number in range(100))
    with pytest.raises(BadInput, match="a record of more than 1,000 letters"):
        read(tmp_path, "{\n" + fields + "}")


def test_formats_are_known_by_their_keys_alone() -> None:
    for name, sets in json_records.KNOWN_BY.items():
        for keys in sets:
            head = json.dumps(dict.fromkeys(keys)).encode()
            assert json_records.format_of(head) == name
    assert json_records.format_of(b'{"start": 1, "end": 2, "nodes": []}') == ""
