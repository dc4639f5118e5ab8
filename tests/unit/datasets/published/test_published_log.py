"""The published replayer's log: a table of 0 and 1 becomes transitions, and what is anything else is named."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from bftrain import BadInput, EventLog
from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.published.frame import load_frame
from bftrain_datasets.readers.ndstat import COLUMNS_AT_ONCE, NodeTransitions, transitions_of
from tests.helpers.samples import PICKLES


def from_pickle(table: pd.DataFrame) -> NodeTransitions:
    stream = io.BytesIO()
    table.to_pickle(stream)
    stream.seek(0)
    return transitions_of(load_frame(stream, "nd.pkl"))


def log_of(found: NodeTransitions) -> EventLog:
    builder = LogBuilder(found.node_names)
    builder.add_columns(found.times, found.nodes, found.states)
    return builder.build(begin_s=found.begin_s, end_s=found.end_s)


@pytest.mark.parametrize("version", ["0.25", "1.1", "1.5", "2.2", "3.1"])
def test_a_log_of_any_pandas(version: str) -> None:
    with (PICKLES / f"pandas-{version}-nodes.pkl").open("rb") as file:
        found = transitions_of(load_frame(file, "x"))
    assert (found.rows, found.unsorted, found.repeated_times) == (5, 0, 0)
    log = log_of(found)
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
def test_every_type_of_numbers_and_either_order(kind: str, order: str) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.integers(0, 2, (40, COLUMNS_AT_ONCE + 9))
    expected = log_of(from_pickle(pd.DataFrame(matrix, index=range(100, 140))))
    typed = np.array(matrix, dtype=kind, order=order)  # type: ignore[call-overload]  # "C" or "F"
    log = log_of(from_pickle(pd.DataFrame(typed, index=range(100, 140))))
    assert log.sha256 == expected.sha256
    sizes = dict(zip(log.times.tolist(), log.pool_sizes().tolist(), strict=True))
    assert sizes == {100.0 + row: int(count) for row, count in enumerate(matrix.sum(axis=1))}


def test_columns_of_several_types_keep_their_names() -> None:
    table = pd.DataFrame({"a": np.array([1, 0], "i1"), "b": [0.0, 1.0], "c": [True, True], 7: np.array([0, 1], "i1")})
    log = log_of(from_pickle(table))
    assert log.node_names == ("a", "b", "c", "7")
    assert list(log.pool_changes()) == [(0.0, (), ("a", "c")), (1.0, ("a",), ("b", "7"))]


def test_rows_in_disorder_are_sorted_and_counted() -> None:
    matrix = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    jumbled = from_pickle(pd.DataFrame(matrix, index=[30, 10, 20, 5], columns=["a", "b"]))
    tidy = from_pickle(pd.DataFrame(matrix[[3, 1, 2, 0]], index=[5, 10, 20, 30], columns=["a", "b"]))
    assert (jumbled.unsorted, tidy.unsorted) == (2, 0)
    assert log_of(jumbled).sha256 == log_of(tidy).sha256


def test_of_several_rows_at_one_time_the_last_one_holds() -> None:
    found = from_pickle(pd.DataFrame({"a": [0, 1, 0, 1, 1]}, index=[0, 10, 10, 20, 20]))
    assert found.repeated_times == 2
    assert list(log_of(found).pool_changes()) == [(20.0, (), ("a",))]
    assert log_of(found).provenance.counts["superseded"] == 1


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
def test_times_become_seconds(index: pd.Index[float], seconds: list[float]) -> None:
    found = from_pickle(pd.DataFrame({"a": [1, 0]}, index=index))
    assert found.times.tolist() == seconds
    assert (found.begin_s, found.end_s) == tuple(seconds)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame({"a": [0, 1], "b": [0, 2]}), "row 2, node 'b': 2 is neither 0 nor 1"),
        (pd.DataFrame({"a": [0.0, float("nan")]}), "row 2, node 'a': nan is neither 0 nor 1"),
        (pd.DataFrame({"a": [0.5, 1.0]}), "row 1, node 'a': 0.5 is neither"),
        (pd.DataFrame({"a": [-1, 0]}), "row 1, node 'a': -1 is neither"),
        (pd.DataFrame({"a": ["idle", "busy"]}, dtype=object), "row 1, node 'a': an object is neither 0 nor 1"),
        (pd.DataFrame({"a": pd.DatetimeIndex(["2021-01-01"])}), "row 1, node 'a': 2021-01-01.* is neither"),
        (pd.DataFrame({"a": [0, 1]}, index=["x", "y"]), "the rows are not labelled with times"),
        (pd.DataFrame({"a": [0, 1]}, index=[0.0, float("inf")]), "row 2 has no time"),
        (pd.DataFrame({"a": [0, 1]}, index=pd.DatetimeIndex(["2021-01-01", "NaT"])), "row 2 has no time"),
        (pd.DataFrame({"a": []}), "the table is empty"),
        (pd.DataFrame(index=[1, 2]), "the table is empty"),
        (pd.DataFrame({"a ": [0, 1]}), "a column is called 'a ', which is not a node name"),
    ],
)
def test_what_is_no_log_is_refused_with_its_place(table: pd.DataFrame, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        from_pickle(table)
    assert caught.value.where == "nd.pkl"


def test_a_truth_that_is_neither_is_found() -> None:
    stream = io.BytesIO()
    pd.DataFrame({"a": [True, False, True]}).to_pickle(stream)
    damaged = stream.getvalue().replace(b"\x01\x00\x01", b"\x01\x00\x02")
    with pytest.raises(BadInput, match="row 3, node 'a': 2 is neither 0 nor 1"):
        transitions_of(load_frame(io.BytesIO(damaged), "x"))
