"""The published replayer's log: a table of 0 and 1 becomes transitions, and what is anything else is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bftrain import BadInput, Imported, import_logs
from tests.helpers.records import finding
from tests.helpers.samples import PICKLES


def read(folder: Path, table: pd.DataFrame) -> Imported:
    table.to_pickle(folder / "nd.pkl")
    return import_logs(folder / "nd.pkl")


@pytest.mark.parametrize("version", ["0.25", "1.1", "1.5", "2.2", "3.1"])
def test_a_log_of_any_pandas(version: str) -> None:
    found = import_logs(PICKLES / f"pandas-{version}-nodes.pkl")
    assert found.rows.used == 5
    log = found.log
    zero = 1612951200.0
    assert [(at - zero, gone, come) for at, gone, come in log.pool_changes()] == [
        (0.0, (), ("n1",)),
        (30.0, (), ("n2",)),
        (120.0, ("n1",), ()),
        (120.5, (), ("n1",)),
        (600.0, ("n2",), ()),
    ]
    assert (log.start_s, log.end_s, log.node_names) == (zero, zero + 600, ("n1", "n2", "n3"))


@pytest.mark.parametrize("kind", ["i1", "u1", "i8", "f4", "f8", "b1", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_type_of_numbers_and_either_order(tmp_path: Path, kind: str, order: str) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.integers(0, 2, (40, 73))
    expected = read(tmp_path, pd.DataFrame(matrix, index=range(100, 140))).log
    typed = np.array(matrix, dtype=kind, order=order)  # type: ignore[call-overload]  # "C" or "F"
    log = read(tmp_path, pd.DataFrame(typed, index=range(100, 140))).log
    assert log.sha256 == expected.sha256
    sizes = dict(zip(log.times.tolist(), log.pool_sizes().tolist(), strict=True))
    assert sizes == {100.0 + row: int(count) for row, count in enumerate(matrix.sum(axis=1))}


def test_columns_of_several_types_keep_their_names(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.array([1, 0], "i1"), "b": [0.0, 1.0], "c": [True, True], 7: np.array([0, 1], "i1")})
    log = read(tmp_path, table).log
    assert log.node_names == ("a", "b", "c", "7")
    assert list(log.pool_changes()) == [(0.0, (), ("a", "c")), (1.0, ("a",), ("b", "7"))]


def test_rows_in_disorder_are_sorted_and_counted(tmp_path: Path) -> None:
    matrix = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    jumbled = read(tmp_path, pd.DataFrame(matrix, index=[30, 10, 20, 5], columns=["a", "b"]))
    tidy = read(tmp_path, pd.DataFrame(matrix[[3, 1, 2, 0]], index=[5, 10, 20, 30], columns=["a", "b"]))
    assert finding(jumbled, "notation").count == 2
    assert jumbled.log.sha256 == tidy.log.sha256


def test_of_several_rows_at_one_time_the_last_one_holds(tmp_path: Path) -> None:
    found = read(tmp_path, pd.DataFrame({"a": [0, 1, 0, 1, 1]}, index=[0, 10, 10, 20, 20]))
    assert finding(found, "repeated").count == 2
    assert list(found.log.pool_changes()) == [(20.0, (), ("a",))]


@pytest.mark.parametrize(
    ("index", "seconds"),
    [
        (pd.DatetimeIndex(["2021-02-10T10:00:00.123456789", "2021-02-11"]), [1612951200.123456789, 1613001600.0]),
        (pd.DatetimeIndex(["2021-02-10", "2021-02-11"], tz="UTC"), [1612915200.0, 1613001600.0]),
        (pd.DatetimeIndex(["1969-12-31T23:59:59.5", "1970-01-01"]), [-0.5, 0.0]),
        (pd.Index([1.5, 2.5]), [1.5, 2.5]),
        (pd.RangeIndex(7, 9), [7.0, 8.0]),
    ],
    ids=["nanoseconds", "zone", "before 1970", "reals", "range"],
)  # fmt: skip
def test_times_become_seconds(tmp_path: Path, index: pd.Index[float], seconds: list[float]) -> None:
    found = read(tmp_path, pd.DataFrame({"a": [1, 0]}, index=index)).log
    assert found.times.tolist() == seconds
    assert (found.start_s, found.end_s) == tuple(seconds)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame({"a": [0, 1], "b": [0, 2]}), "row 2, node 'b': 2 is neither 0 nor 1"),
        (pd.DataFrame({"a": [0.0, float("nan")]}), "row 2, node 'a': nan is neither 0 nor 1"),
        (pd.DataFrame({"a": [0.5, 1.0]}), "row 1, node 'a': 0.5 is neither"),
        (pd.DataFrame({"a": [-1, 0]}), "row 1, node 'a': -1 is neither"),
        (pd.DataFrame({"a": ["idle", "busy"]}, dtype=object), "row 1, node 'a': an object is neither 0 nor 1"),
        (pd.DataFrame({"a": pd.DatetimeIndex(["2021-01-01"])}), "row 1, node 'a': 2021-01-01.* is neither"),
        (pd.DataFrame({"a": [0, 1]}, index=["x", "y"]), "row labels: the values are not times"),
        (pd.DataFrame({"a": [0, 1]}, index=[0.0, float("inf")]), "row 2 has no time"),
        (pd.DataFrame({"a": [0, 1]}, index=pd.DatetimeIndex(["2021-01-01", "NaT"])), "row 2 has no time"),
        (pd.DataFrame({"a": []}), "the table is empty"),
        (pd.DataFrame(index=[1, 2]), "the table is empty"),
        (pd.DataFrame({"a ": [0, 1]}), "a column is called 'a ', which is not a node name"),
    ],
)
def test_what_is_no_log_is_refused_with_its_place(tmp_path: Path, table: pd.DataFrame, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        read(tmp_path, table)
    assert "nd.pkl" in str(caught.value.where)


def test_a_truth_that_is_neither_is_found(tmp_path: Path) -> None:
    path = tmp_path / "nd.pkl"
    pd.DataFrame({"a": [True, False, True]}).to_pickle(path)
    path.write_bytes(path.read_bytes().replace(b"\x01\x00\x01", b"\x01\x00\x02"))
    with pytest.raises(BadInput, match="row 3, node 'a': 2 is neither 0 nor 1"):
        import_logs(path)
