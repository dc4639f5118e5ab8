"""The Parquet log: what others write is read, what is damaged is refused, and what is missing is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bftrain import BadInput, EventLog, NodeState, load_log, sample_log, save_log
from bftrain_datasets.log.provenance import ProvenanceSource
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


def small_log() -> EventLog:
    return log_from_transitions([(0, "a", IDLE), (5, "a", DOWN), (7.5, "c", IDLE)], node_names="ba", end_s=9)


def other(path: Path, time: object, node: object, state: object) -> Path:
    parquet.write_table(pa.table({"time": time, "node": node, "state": state}), path)
    return path


def test_the_file_opens_as_a_plain_table(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    save_log(small_log(), path)
    table = pd.read_parquet(path).astype({"node": str, "state": str})
    assert list(table.columns) == ["time", "node", "state"]
    assert table.to_numpy().tolist() == [
        [0.0, "b", "busy"],
        [0.0, "a", "idle"],
        [0.0, "c", "busy"],
        [5.0, "a", "down"],
        [7.5, "c", "idle"],
    ]


def test_the_metadata_are_those_of_the_csv_comments(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    log = small_log()
    save_log(log, path)
    metadata = parquet.read_schema(path).metadata
    assert metadata[b"bftrain.format"] == b"bftrain event log 1"
    assert metadata[b"bftrain.end_s"] == b"9.0"
    assert metadata[b"bftrain.sha256"] == log.sha256.encode()
    assert metadata[b"bftrain.provenance"].startswith(b'{"made_by":"hand"')


def test_a_table_of_another_program_is_read_and_its_source_is_reported(tmp_path: Path) -> None:
    path = other(tmp_path / "theirs.parquet", [20, 10, 10, 25], ["a", "a", "b", "b"], ["busy", "idle", "busy", "idle"])
    log = load_log(path)
    assert log.node_names == ("a", "b")
    assert (log.start_s, log.end_s, log.idle_node_s) == (10.0, 25.0, 10.0)
    assert log.provenance.made_by == "reader parquet"
    assert log.provenance.sources == (ProvenanceSource.of(path),)
    assert log.provenance.counts["transitions"] == 4


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_may_be_timestamps(tmp_path: Path, unit: str, zone: str | None) -> None:
    moments = pa.array([1612951200, 1612951260], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, zone))
    log = load_log(other(tmp_path / "t.parquet", moments, ["a", "a"], ["idle", "busy"]))
    assert log.times.tolist() == [1612951200.0, 1612951260.0]


def test_what_pandas_writes_is_read_for_any_order_of_columns_and_names(tmp_path: Path) -> None:
    count = 70_000  # more than are read at once
    rng = np.random.default_rng(1)
    names = np.array([f"n{number}" for number in range(50)])
    table = pd.DataFrame({
        "state": np.where(np.arange(count) % 2, "busy", "idle"),
        "node": names[rng.integers(0, 50, count)],
        "time": np.arange(count) / 4,
    })  # fmt: skip
    table.to_parquet(tmp_path / "p.parquet", index=False)
    table[["time", "node", "state"]].to_csv(tmp_path / "p.csv", index=False)
    assert load_log(tmp_path / "p.parquet").sha256 == load_log(tmp_path / "p.csv").sha256
    assert load_log(tmp_path / "p.parquet").node_names == tuple(dict.fromkeys(table["node"]))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"time": [1.0, None], "node": ["a", "a"], "state": ["idle", "busy"]}, "row 2 has no time"),
        ({"time": [1.0, 2.0], "node": [None, "a"], "state": ["idle", "busy"]}, "row 1 has no node"),
        ({"time": [1.0, 2.0], "node": ["a", "a"], "state": ["idle", None]}, "row 2 has no state"),
        (
            {"time": [1.0, float("nan")], "node": ["a", "a"], "state": ["idle", "busy"]},
            "row 2: time: nan is not a time",
        ),
        ({"time": ["x", "y"], "node": ["a", "a"], "state": ["idle", "busy"]}, "time: string is not a type of times"),
        ({"time": [1, 2], "node": [1, 2], "state": ["idle", "busy"]}, "node: int64 is not text"),
        ({"time": [1, 2], "node": ["a", " b"], "state": ["idle", "busy"]}, "node: ' b' is not a name"),
        ({"time": [1, 2], "node": ["a", ""], "state": ["idle", "busy"]}, "node: '' is not a name"),
        ({"time": [1, 2], "node": ["a", "b"], "state": ["idle", "bus"]}, "'bus' is not a state .*did you mean 'busy'"),
        ({"time": [], "node": [], "state": []}, "node: null is not text|no node changes its state"),
        ({"time": [1], "node": ["a"], "state": ["idle"], "more": [1]}, "the columns are time, node, state, more"),
        ({"time": [1], "node": ["a"]}, "the columns are time, node"),
    ],
)
def test_what_is_no_log_is_refused_with_its_place(tmp_path: Path, columns: dict[str, list[Any]], says: str) -> None:
    path = tmp_path / "bad.parquet"
    parquet.write_table(pa.table(columns), path)
    with pytest.raises(BadInput, match=says) as caught:
        load_log(path)
    assert str(path) in (caught.value.where or "")


def test_a_node_without_a_name_in_a_later_batch_is_counted_from_the_first_row(tmp_path: Path) -> None:
    nodes = ["a"] * 70_000 + [None]
    path = other(tmp_path / "x.parquet", list(range(70_001)), nodes, ["idle"] * 70_001)
    with pytest.raises(BadInput, match="row 70001 has no node"):
        load_log(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({b"bftrain.sha256": b"00"}, "the rows differ from the saved ones"),
        ({b"bftrain.end_s": b"soon"}, "bftrain.end_s: b'soon' is not a time"),
        ({b"bftrain.end_s": b"inf"}, "is not a time"),
        ({b"bftrain.end_s": b"3"}, "stops at 3.0, before"),
        ({b"bftrain.provenance": b"{"}, "not valid JSON"),
        ({b"bftrain.provenance": b"\xff"}, "not valid JSON"),
    ],
)
def test_metadata_are_checked(tmp_path: Path, changes: dict[bytes, bytes], says: str) -> None:
    path = tmp_path / "log.parquet"
    save_log(small_log(), path)
    table = parquet.read_table(path)
    parquet.write_table(table.replace_schema_metadata({**table.schema.metadata, **changes}), path)
    with pytest.raises(BadInput, match=says):
        load_log(path)


def test_an_edited_table_without_its_checksum_is_read_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    save_log(small_log(), path)
    table = parquet.read_table(path)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"bftrain.sha256"}
    parquet.write_table(table.slice(0, 4).replace_schema_metadata(metadata), path)
    assert load_log(path).provenance.steps == ("read from a Parquet file with no checksum",)
    parquet.write_table(table.slice(0, 4), path)
    with pytest.raises(BadInput, match="differ from the saved ones"):
        load_log(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    save_log(sample_log(), path)
    whole = path.read_bytes()
    for damaged in (
        b"",
        b"PAR1",
        whole[1:],
        whole[: len(whole) // 2],
        whole[:-30],
        b"text\n",
        whole[:100] + whole[200:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="not a readable Parquet file"):
            load_log(path)


def test_a_flipped_byte_anywhere_is_an_error_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    log = small_log()
    save_log(log, path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = load_log(path)
        except BadInput:
            continue
        # What says so does not make a log another one: only the name of a piece of metadata may have changed
        assert (
            found.sha256 == log.sha256
            or "without a checksum" in str(found.provenance.steps)
            or found.end_s != log.end_s
        )


def test_what_unpacks_to_far_more_than_logs_do_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    rows = 20_000_000
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["idle"]))
    parquet.write_table(pa.table({"time": pa.array(np.zeros(rows)), "node": same, "state": same}), path)
    with pytest.raises(BadInput, match=r"log\.parquet: unpacks to more than 67,108,864 bytes, .*save it as \.csv"):
        load_log(path)
