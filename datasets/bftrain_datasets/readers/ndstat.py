"""The published replayer's log, ``ndstat-*.pkl``, also in its ``.tar.gz``: a table pickled by pandas.

Nothing in the pickle is executed.

| column | required | meaning |
|---|---|---|
| row labels | yes | times; the last of several equal ones counts |
| each column | yes | a node: 1 is idle, 0 is busy |
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.log.eventlog import BUSY, IDLE
from bftrain_datasets.log.log_columns import is_node_name
from bftrain_datasets.published.frame import SavedFrame, load_frame, seconds_of

name: Final = "ndstat"
about: Final = "the published replayer: ndstat-*.pkl, a pickled table of nodes and events"

_PROTOCOL: Final = 0x80  # the first operation of a pickle; the next byte is its protocol
_PROTOCOLS: Final = range(2, 6)
_MARKS: Final = (b"pandas", b"DataFrame")
_TASK_MARK: Final = b"Tsub"  # a column of the pickled tables of tasks
_BEGINNING: Final = 1 << 10
COLUMNS_AT_ONCE: Final = 64  # number of nodes compared in one step, to need little memory
REMEDY: Final = "rows are events by time, columns are nodes, values are 1 for idle and 0 for busy"


def recognises(head: bytes) -> bool:
    """Return whether this is a pickled table other than a task table."""
    if len(head) < 2 or head[0] != _PROTOCOL or head[1] not in _PROTOCOLS:  # noqa: PLR2004 - the two bytes looked at
        return False
    return all(mark in head[:_BEGINNING] for mark in _MARKS) and _TASK_MARK not in head


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read the whole table; its rows are the events."""
    add_table(load_frame(file.binary(), file.name), intake)


def add_table(frame: SavedFrame, intake: RecordIntake) -> None:
    """Add the changes of all nodes; raise ``BadInput`` at the first value other than 0 and 1.

    The table is processed in pieces, to need little additional memory.
    """
    where = frame.where
    if not len(frame.index) or not frame.columns:
        raise BadInput("the table is empty", where=where, fix=REMEDY)
    for name in frame.columns:
        if not is_node_name(name):
            raise BadInput(f"a column is called {name!r}, which is not a node name", where=where, fix=REMEDY)
    moments = seconds_of(frame.index, f"{where}: row labels")
    steps = np.diff(moments)
    order = np.argsort(moments, kind="stable") if (steps < 0).any() else None
    sorted_s = moments if order is None else moments[order]
    parts = [
        _piece((block.places[at : at + COLUMNS_AT_ONCE], block.values[at : at + COLUMNS_AT_ONCE]), order, frame)
        for block in frame.blocks
        for at in range(0, block.places.size, COLUMNS_AT_ONCE)
    ]
    rows, nodes, states = map(np.concatenate, zip(*parts, strict=True))
    intake.table(moments.size, frame.columns, sorted_s[rows], nodes, states)
    intake.observed(float(sorted_s[-1]))
    if order is not None:
        intake.note("notation", count=int((steps < 0).sum()))
    repeated = int((np.diff(sorted_s) == 0).sum())
    if repeated:
        intake.unuse("repeated", intake.where, repeated, 0.0)


def _piece(
    piece: tuple[NDArray[np.int64], NDArray[Any]], order: NDArray[np.intp] | None, frame: SavedFrame
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int8]]:
    """Return rows, nodes and states of the changes of some nodes; the first row changes every node."""
    places, values = piece
    values = _bits(values, places, frame)
    if order is not None:
        values = values[:, order]
    changed = np.ones(values.shape, dtype=np.bool_)
    np.not_equal(values[:, 1:], values[:, :-1], out=changed[:, 1:])
    which, rows = np.divmod(np.flatnonzero(changed), values.shape[1])  # eight times as fast as nonzero
    states = np.where(values[which, rows], IDLE, BUSY).astype(np.int8)
    return rows, places[which].astype(np.int32), states


def _bits(values: NDArray[Any], places: NDArray[np.int64], frame: SavedFrame) -> NDArray[np.bool_]:
    """Return values as booleans; raise ``BadInput`` unless they are 0 and 1."""
    if values.dtype.kind == "b":
        values = values.view(np.uint8)  # booleans in a file may have bytes other than 0 and 1
    elif values.dtype.kind not in "iuf":
        _reject(values, np.ones(values.shape, dtype=np.bool_), places, frame)
    bits: NDArray[np.bool_] = values == 1
    if np.count_nonzero(bits) + np.count_nonzero(values == 0) != values.size:
        _reject(values, ~bits & (values != 0), places, frame)
    return np.ascontiguousarray(bits)


def _reject(values: NDArray[Any], wrong: NDArray[np.bool_], places: NDArray[np.int64], frame: SavedFrame) -> NoReturn:
    column, row = (int(place[0]) for place in np.nonzero(wrong))
    found = "an object" if values.dtype.kind == "O" else str(values[column, row])
    what = f"row {row + 1}, node '{frame.columns[places[column]]}': {found} is neither 0 nor 1"
    raise BadInput(what, where=frame.where, fix=REMEDY)
