"""Counts of rows: read = used + set aside, for any reader."""

from __future__ import annotations

import pytest

from bftrain.errors import Fault
from bftrain_datasets.importing.findings import HAZARDS, FindingsTally, is_doubt, ordered
from bftrain_datasets.log.provenance import LogFinding


@pytest.fixture
def tally() -> FindingsTally:
    made = FindingsTally()
    made.file = "jobs"
    return made


def test_every_row_is_used_or_set_aside(tally: FindingsTally) -> None:
    for line in range(1, 6):
        tally.row(line)
        if line % 2:
            tally.use()
        else:
            tally.set_aside("zero_length", 5.0)
    rows = tally.rows()
    assert (rows.read, rows.used, rows.aside) == (5, 3, {"zero_length": 2})
    (found,) = tally.findings()
    assert (found.name, found.count, found.node_s, found.first) == ("zero_length", 2, 10.0, "jobs:2")
    assert found.done == HAZARDS["zero_length"].done


def test_rows_can_be_set_aside_later(tally: FindingsTally) -> None:
    for line in (1, 2, 3):
        tally.row(line)
        tally.use()
    tally.unuse("duplicate", "jobs:2", 2, 7.0)
    rows = tally.rows()
    assert (rows.read, rows.used, rows.aside) == (3, 1, {"duplicate": 2})


def test_a_reader_that_forgets_a_row_is_found_out(tally: FindingsTally) -> None:
    tally.row(1)
    with pytest.raises(Fault, match="jobs:1: a reader neither used a row nor set it aside"):
        tally.row(2)
    with pytest.raises(Fault, match="its last row"):
        tally.rows()


def test_a_reader_that_settles_a_row_twice_or_none_is_found_out(tally: FindingsTally) -> None:
    with pytest.raises(Fault, match="had not begun"):
        tally.use()
    tally.row(1)
    tally.use()
    for settle in (tally.use, lambda: tally.set_aside("step")):
        with pytest.raises(Fault, match="did so twice"):
            settle()


def test_only_reasons_for_whole_rows_set_one_aside(tally: FindingsTally) -> None:
    tally.row(1)
    with pytest.raises(Fault, match="'shared' is no reason to set a row aside"):
        tally.set_aside("shared")


def test_a_hazard_that_is_not_in_the_table_is_a_mistake(tally: FindingsTally) -> None:
    with pytest.raises(KeyError):
        tally.note("made_up")


def test_books_that_do_not_balance_are_no_books(tally: FindingsTally) -> None:
    tally.read = 1
    with pytest.raises(Fault, match="of 1 rows 0 were used and 0 set aside"):
        tally.rows()


def test_the_first_place_is_kept_and_the_rest_is_summed(tally: FindingsTally) -> None:
    for line in (4, 9):
        tally.row(line)
        tally.note("repeated_hosts", count=3, node_s=2.5)
        tally.use()
    tally.note("nodes_inferred", where="", done="in words of its own")
    first, second = tally.findings()
    assert (first.name, first.count, first.node_s, first.first) == ("repeated_hosts", 6, 5.0, "jobs:4")
    assert (second.first, second.done) == ("", "in words of its own")


def test_a_rounding_error_is_no_negative_time(tally: FindingsTally) -> None:
    tally.note("marked_down", node_s=-1e-9)
    assert tally.findings()[0].node_s == 0.0


def test_before_the_first_row_the_file_is_the_place(tally: FindingsTally) -> None:
    tally.note("truncated")
    assert tally.findings()[0].first == "jobs"


def test_doubts_come_first_and_then_as_in_the_table() -> None:
    found = [LogFinding(name=name, count=1) for name in ("unsorted", "from_the_future", "shared", "duplicate")]
    assert [each.name for each in ordered(found)] == ["duplicate", "from_the_future", "unsorted", "shared"]
    assert is_doubt(found[1])  # what we do not know we do not trust


def test_every_hazard_has_its_words() -> None:
    for name, hazard in HAZARDS.items():
        assert name == name.lower()
        assert hazard.says
        assert hazard.done
        assert not hazard.says.endswith(".")
        assert not hazard.done.endswith(".")
        if hazard.aside:
            assert "row set aside" in hazard.done
