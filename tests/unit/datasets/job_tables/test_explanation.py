"""What ``--explain`` says of a table is how the table is read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from bftrain import BadInput, ImportOptions
from bftrain_datasets.commands.import_ import command
from bftrain_datasets.job_tables.explanation import explain
from tests.helpers.samples import SAMPLES

ROWS: Final = Path(__file__).parents[3] / "data" / "public_jobs"


def test_each_column_its_meaning_unit_and_reason() -> None:
    found = explain(ROWS / "accre.csv", ImportOptions())
    uses = {use["meaning"]: (use["column"], use["unit"]) for use in found.columns}
    assert uses["start"] == ("BEGIN", "iso")
    assert uses["elapsed"] == ("USEDTIME", "d-hh:mm:ss")
    assert uses["count"] == ("NODES", "")
    assert "REQMEM" in found.unused
    assert all(use["why"] for use in found.columns)


def test_a_format_with_a_reader_of_its_own_needs_no_explanation(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_bytes(SAMPLES["kubernetes"][0])
    with pytest.raises(BadInput, match="this is kubernetes, whose fields have fixed meanings"):
        explain(path, ImportOptions())
    path.write_text('{"a": 1}')
    with pytest.raises(BadInput, match="recognised: no column"):
        explain(path, ImportOptions())


def test_first_rows_as_understood() -> None:
    found = explain(ROWS / "philly.json", ImportOptions())
    assert (found.public_set, found.timezone) == ("philly", "America/Los_Angeles")
    assert [(row["start"], row["nodes"], row["gpus"]) for row in found.rows] == [
        ("2017-10-07 08:12:09 UTC", "m47", 8),
        ("2017-10-07 08:13:30 UTC", "m412", 8),
    ]


def test_units_of_run_times_are_what_end_minus_start_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("start,end,duration,hosts\n1600000000,1600000600,10,a\n1600000000,1600001200,20,b\n")
    (use,) = [each for each in explain(path, ImportOptions()).columns if each["meaning"] == "elapsed"]
    assert (use["unit"], use["why"]) == ("min", "by its name; equals end minus start")


def test_explain_writes_nothing_and_an_import_needs_a_file_to_write() -> None:
    shown = CliRunner().invoke(command, [str(ROWS / "eagle.csv"), "--explain"])
    assert shown.exit_code == 0
    assert "This is eagle." in shown.output
    refused = CliRunner().invoke(command, [str(ROWS / "eagle.csv")])
    assert refused.exit_code == 2
    assert "Missing option '-o' / '--output'" in refused.output
