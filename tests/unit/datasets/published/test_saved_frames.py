"""Tables out of pickles: every part is checked before it is made, and what any pandas wrote is read."""

from __future__ import annotations

import io
import struct

import numpy as np
import pandas as pd
import pytest

from bftrain import BadInput
from tests.helpers import pickles
from tests.helpers.pickles import array, asked, blob, called, dtype, listed, load, number, refused, text, tupled, whole
from tests.helpers.samples import PICKLES

PANDAS = ("0.25", "1.1", "1.5", "2.2", "3.1")
ZEROS = array(dtype("i1"), (2, 2), blob(bytes(4)))


# Arrays


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (array(dtype("i1"), (2, 2), blob(bytes(5))), "5 bytes are not an array of 4 values"),
        (array(dtype("i1"), (1 << 40, 1 << 40), blob(b"")), "0 bytes are not an array"),
        (array(dtype("i1"), (-1, 2), blob(b"")), "an impossible shape"),
        (array(dtype("i1"), (1, 2, 2), blob(bytes(4))), "an impossible shape"),
        (array(dtype("i1"), (2, 2), text("abcd")), "another value in place of bytes"),
        (array(dtype("O8"), (2, 2), blob(bytes(32))), "needs 4 values"),
        (array(dtype("O8"), (2, 2), listed(b"N")), "needs 4 values"),
        (array(dtype("V8"), (2, 2), blob(bytes(32))), "an unknown type"),
        (array(dtype("M8"), (2, 2), blob(bytes(32))), "an unknown type"),
        (array(dtype("i3"), (2, 2), blob(bytes(12))), "an unknown type"),
        (array(dtype("i8", "="), (2, 2), blob(bytes(32))), "an unknown type"),
        (array(text("i1"), (2, 2), blob(bytes(4))), "an unknown type"),
        (number(1), "values of an unknown type"),
        (called(asked("numpy", "ndarray"), tupled(number(1 << 30))), "values of an unknown type"),
    ],
)
def test_arrays_are_checked_before_they_are_made(values: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load(pickles.table(values))


AB, TWO_ROWS, BOTH = pickles.names("a", "b"), pickles.times(1, 2), pickles.places(0, 2)
NO_NAME = pickles.labels(array(dtype("O8"), (1,), listed(b"N")))
FAR_AWAY = array(dtype("i8", "<"), (2,), blob(struct.pack("<2q", 5 << 30, 7 << 30)))  # where pandas would write
NO_ROW = array(dtype("i1"), (1, 0), blob(b""))


@pytest.mark.parametrize(
    ("columns", "index", "blocks", "says"),
    [
        (AB, TWO_ROWS, [], "does not have each column once"),
        (pickles.names("a"), TWO_ROWS, [(ZEROS, pickles.places(0, 1))], "does not fit 1 columns of 2 rows"),
        (AB, pickles.times(1), [(ZEROS, BOTH)], "does not fit 2 columns of 1 rows"),
        (pickles.names(*"abcd"), TWO_ROWS, [(ZEROS, BOTH), (ZEROS, BOTH)], "does not have each column once"),
        (pickles.names("a", "a"), TWO_ROWS, [(ZEROS, BOTH)], "have the same name"),
        (AB, number(1), [(ZEROS, BOTH)], "labels of an unknown kind"),
        (AB, TWO_ROWS, [(ZEROS, number(1))], "of an unknown type"),
        (AB, TWO_ROWS, [(ZEROS, pickles.places(0, 2, 0))], "does not fit 0 columns"),
        (AB, TWO_ROWS, [(ZEROS, called(asked("builtins", "slice"), text("x")))], "no number"),
        (NO_NAME, pickles.times(), [(NO_ROW, pickles.places(0, 1))], "neither text nor a number"),
        (AB, TWO_ROWS, [(ZEROS, FAR_AWAY)], "does not have each column once"),
    ],
)
def test_the_parts_of_a_table_must_fit(
    columns: bytes, index: bytes, blocks: list[tuple[bytes, bytes]], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        load(whole(pickles.frame(columns, index, *blocks)))


@pytest.mark.parametrize("size", [1 << 40, 1 << 100])
def test_a_range_is_not_made_into_labels_unless_there_are_values_for_it(size: int) -> None:
    kind = asked("pandas", "RangeIndex")
    octets_of_size = size.to_bytes(15, "little")
    ends = pickles.mapped(start=number(0), stop=b"\x8a\x0f" + octets_of_size, step=number(1), name=b"N")
    huge = called(asked("pandas.core.indexes.base", "_new_Index"), kind, ends)
    assert refused(whole(pickles.frame(huge, pickles.times(1, 2), (ZEROS, pickles.places(0, 2)))))
    assert refused(whole(pickles.frame(pickles.names("a", "b"), huge, (ZEROS, pickles.places(0, 2)))))


# What is read


@pytest.mark.parametrize("version", PANDAS)
def test_tables_of_every_pandas_are_read_alike(version: str) -> None:
    nodes = load((PICKLES / f"pandas-{version}-nodes.pkl").read_bytes())
    assert nodes.columns == ("n1", "n2", "n3")
    assert [nodes.column(name).tolist() for name in nodes.columns] == [[1, 1, 0, 1, 1], [0, 1, 1, 1, 0], [0] * 5]
    moments = np.asarray(nodes.index).astype("M8[ms]").astype(np.int64) - 1612951200000
    assert moments.tolist() == [0, 30_000, 120_000, 120_500, 600_000]
    bounds = load((PICKLES / f"pandas-{version}-bounds.pkl").read_bytes())
    assert np.asarray(bounds.index).tolist() == ["one", "two", "three"]
    assert bounds.column("Pmax").tolist() == [1.3e8, 5e6, 2e6]
    assert bounds.column("Tsub").astype("M8[s]").tolist()[2].isoformat() == "2021-02-10T12:00:00"
    speeds = load((PICKLES / f"pandas-{version}-speeds.pkl").read_bytes())
    assert speeds.column("Ns")[2] == [0, 2, 4]
    assert speeds.column("Ps")[2] == [0, 30.0, 50.0]
    assert type(speeds.column("Ps")[2][1]) is float


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(np.array([[1, 0], [0, 0], [1, 1]]), index=[5, 6, 9], columns=["a", "b"]),
        pd.DataFrame(np.asfortranarray([[1.0, 0], [0, 0.5], [1, 1]]), columns=["a", "b"]),
        pd.DataFrame({"a": [True, False], "b": [1, 2]}, index=pd.date_range("2021", periods=2, freq="min", tz="UTC")),
        pd.concat([pd.DataFrame({"a": [1, 0]}), pd.DataFrame({"b": [0, 1]})], axis=1),
        pd.DataFrame({"a": ["x", "y"], "b": ["ä", ""]}, dtype=object),
        pd.DataFrame(np.zeros((3, 2), dtype=">i2")),
        pd.DataFrame({"a": [], "b": []}),
    ],
    ids=["integers", "reals", "truths", "blocks", "texts", "big-endian", "empty"],
)  # fmt: skip
def test_what_this_pandas_writes_is_read(table: pd.DataFrame, protocol: int) -> None:
    stream = io.BytesIO()
    table.to_pickle(stream, protocol=protocol)
    found = load(stream.getvalue())
    assert list(found.columns) == [str(name) for name in table.columns]
    assert len(found.index) == len(table.index)
    for name, given in zip(found.columns, table.columns, strict=True):
        assert found.column(name).tolist() == table[given].tolist()


def arrow(count: int, ends: tuple[int, ...], texts: bytes, *, kind: str = "large_string", nulls: int = 0) -> bytes:
    """Describe an index of texts as Arrow lays them out."""
    width = {"large_string": "q", "string": "i"}.get(kind, "q")
    buffers = [struct.pack(f"<{len(ends)}{width}", *ends), texts]
    pushed = [called(asked("pyarrow.lib", "py_buffer"), blob(buffer)) for buffer in buffers]
    of_kind = called(asked("pyarrow.lib", "type_for_alias"), text(kind))
    parts = tupled(of_kind, number(count), number(nulls), number(0), listed(b"N", *pushed), b"]", b"N")
    made = called(asked("pyarrow.lib", "_restore_array"), parts)
    empty = called(asked("pandas.arrays", "ArrowStringArray"))
    return pickles.labels(pickles.with_state(empty, pickles.mapped(_pa_array=made)))


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_texts_as_arrow_lays_them_out(kind: str) -> None:
    columns = arrow(2, (0, 1, 4), b"ab\xc3\xa9", kind=kind)
    assert load(whole(pickles.frame(columns, TWO_ROWS, (ZEROS, BOTH)))).columns == ("a", "bé")


@pytest.mark.parametrize(
    "columns",
    [
        arrow(2, (0, 1), b"ab"),
        arrow(2, (0, 1, 3), b"ab"),
        arrow(2, (-1, 1, 2), b"ab"),
        arrow(2, (0, 2, 1), b"ab"),
        arrow(-2, (0, 1, 2), b"ab"),
        arrow(2, (0, 1, 2), b"ab", nulls=1),
        arrow(2, (0, 1, 2), b"ab", kind="binary"),
    ],
    ids=["too few", "beyond the end", "before the begin", "falling", "less than none", "missing", "other type"],
)
def test_texts_that_arrow_would_not_lay_out_so_are_refused(columns: bytes) -> None:
    assert "text in an unknown encoding" in refused(whole(pickles.frame(columns, TWO_ROWS, (ZEROS, BOTH))))


SCALAR = asked("numpy.core.multiarray", "scalar")


@pytest.mark.parametrize(
    ("scalar", "says"),
    [
        (called(SCALAR, dtype("i1")), "has no type"),
        (called(SCALAR, dtype("O8"), blob(b"")), "has no type"),
        (called(SCALAR, dtype("f8", "<"), blob(b"1")), "1 bytes are not an array of 1 values"),
        (called(SCALAR, dtype("i1"), called(asked("_codecs", "encode"), text("€"), text("latin1"))), "no bytes"),
    ],
)
def test_a_number_of_numpy_must_be_one(scalar: bytes, says: str) -> None:
    assert says in refused(pickles.table(array(dtype("O8"), (2, 2), listed(scalar, *[number(1)] * 3))))
