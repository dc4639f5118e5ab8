"""Any pickle gives a table, or a refusal in words. Never a traceback, and nothing is ever run."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bftrain import BadInput, registry
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.published.frame import ADMITTED, load_frame
from tests.helpers import pickles

SAVED = sorted((Path(__file__).parents[1] / "unit/datasets/pickles").glob("*.pkl"))
WHOLE = [path.read_bytes() for path in SAVED]
OPERATIONS = [bytes([code]) for code in b"(0NtRb)]}aesu\x81\x85\x86\x87\x88\x89\x94.K\x00Cq"]
PIECES = st.one_of(
    st.sampled_from(OPERATIONS),
    st.sampled_from(sorted(ADMITTED)).map(lambda pair: pickles.asked(*pair)),
    st.integers(-(2**31), 2**31 - 1).map(pickles.number),
    st.sampled_from(["i1", "O8", "M8", "<", "_mgr", "data", "axes", "blocks", "0.14.1", "values"]).map(pickles.text),
    st.binary(max_size=12).map(pickles.blob),
    st.just(pickles.dtype("i1")),
    st.just(pickles.array(pickles.dtype("i1"), (2, 2), pickles.blob(bytes(4)))),
    st.just(pickles.names("a", "b")),
    st.just(pickles.times(1, 2)),
)


def read(content: bytes) -> object:
    """Read this as a log; a refusal says where, and counts as nothing."""
    try:
        frame = load_frame(io.BytesIO(content), "x.pkl")
        return registry.load("reader", "ndstat").add_table(frame, RecordIntake())
    except BadInput as error:
        refusal = error
    assert refusal.where.partition(":")[0] == "x.pkl"
    return None


@given(st.sampled_from(WHOLE), st.data())
def test_a_damaged_table(whole: bytes, data: st.DataObject) -> None:
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    read(whole[:begin] + data.draw(st.binary(max_size=6)) + whole[end:])


@given(st.sampled_from(WHOLE), st.data())
def test_a_table_with_a_wrong_byte(whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    read(whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :])


@given(st.lists(PIECES, max_size=30))
def test_operations_in_any_order(pieces: list[bytes]) -> None:
    read(pickles.whole(*pieces))


@given(st.binary(max_size=60))
def test_any_bytes(content: bytes) -> None:
    read(content)
    read(b"\x80\x04" + content)
