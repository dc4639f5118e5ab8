"""Tables: in what rows and columns a replay is written down. docs/results.md says what each column means."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import fields

from bftrain_replay.tables.replayed_task import TaskRecord


class ColumnType(StrEnum):
    """What stands in the cells of a column; any but ``sizes`` may be empty."""

    TEXT = "text"
    NUMBER = "number"  # 64-bit floating point
    WHOLE = "whole number"
    SIZES = "sizes"  # how many nodes by name of task


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    kind: ColumnType


def _columns(**kinds: ColumnType) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(name, kind) for name, kind in kinds.items())


DECISIONS: Final = _columns(
    number=ColumnType.WHOLE,
    time_s=ColumnType.NUMBER,
    pool=ColumnType.WHOLE,
    used=ColumnType.WHOLE,
    competing=ColumnType.WHOLE,
    value=ColumnType.NUMBER,
    bound=ColumnType.NUMBER,
    solver=ColumnType.TEXT,
    termination=ColumnType.TEXT,
    quality=ColumnType.TEXT,
    fallback=ColumnType.TEXT,
    sizes=ColumnType.SIZES,
)


def _columns_of(record: type[msgspec.Struct], **instead: str) -> Iterator[TableColumn]:
    """Make a column of each field; ``instead`` names columns that stand for a field."""
    for field in fields(record):
        kind = ColumnType.WHOLE if field.type is int else ColumnType.NUMBER
        if isinstance(field.type, type) and issubclass(field.type, str):
            kind = ColumnType.TEXT
        yield TableColumn(instead.get(field.name, field.name), kind)


TASKS: Final = tuple(_columns_of(TaskRecord, node_s="node_h"))

ALLOCATIONS: Final = _columns(
    task=ColumnType.TEXT, node=ColumnType.TEXT, from_s=ColumnType.NUMBER, to_s=ColumnType.NUMBER
)

OVER_TIME: Final = _columns(
    from_s=ColumnType.NUMBER,
    to_s=ColumnType.NUMBER,
    idle=ColumnType.NUMBER,
    used=ColumnType.NUMBER,
    harvested=ColumnType.NUMBER,
)

CAMPAIGNS: Final = _columns(
    number=ColumnType.WHOLE,
    user=ColumnType.TEXT,
    campaign=ColumnType.TEXT,
    created_s=ColumnType.NUMBER,
    tasks=ColumnType.WHOLE,
    tasks_finished=ColumnType.WHOLE,
    node_h=ColumnType.NUMBER,
    end_s=ColumnType.NUMBER,
    least_s=ColumnType.NUMBER,
    stretch=ColumnType.NUMBER,
    virtual_end_s=ColumnType.NUMBER,
    rivals=ColumnType.NUMBER,
    bound_s=ColumnType.NUMBER,
    stretch_bound=ColumnType.NUMBER,
)

TABLES: Final = {
    "decisions": DECISIONS,
    "tasks": TASKS,
    "allocations": ALLOCATIONS,
    "over_time": OVER_TIME,
    "campaigns": CAMPAIGNS,
}
