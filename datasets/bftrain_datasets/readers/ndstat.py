"""The log of the published replayer, ``ndstat-*.pkl``: a table that pandas pickled; nothing in it is ever run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_datasets.published.frame import load_frame
from bftrain_datasets.published.log import transitions_of

if TYPE_CHECKING:
    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "ndstat"
about: Final = "the published replayer: ndstat-*.pkl, a pickled table of nodes and events"

_PROTOCOL: Final = 0x80  # the operation that begins a pickle; its protocol is the next byte
_PROTOCOLS: Final = range(2, 6)
_MARKS: Final = (b"pandas", b"DataFrame")
_TASK_MARK: Final = b"Tsub"  # a column of the pickled tables of tasks
_BEGINNING: Final = 1 << 10


def recognises(head: bytes) -> bool:
    """Say whether this is a pickle of a table, and not one of tasks."""
    if len(head) < 2 or head[0] != _PROTOCOL or head[1] not in _PROTOCOLS:  # noqa: PLR2004 - the two bytes looked at
        return False
    return all(mark in head[:_BEGINNING] for mark in _MARKS) and _TASK_MARK not in head


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read the whole table; its rows are the events."""
    table = transitions_of(load_frame(file.binary(), file.name))
    intake.table(table.rows, table.node_names, table.times, table.nodes, table.states)
    intake.observed(table.end_s)
    if table.unsorted:
        intake.note("unsorted", count=table.unsorted)
    if table.repeated_times:
        intake.tally.unuse("superseded", intake.tally.where, table.repeated_times, 0.0)
