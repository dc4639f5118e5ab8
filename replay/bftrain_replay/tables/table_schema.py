"""Tables: in what rows and columns a replay is written down. docs/results.md says what each column means."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """What stands in the cells of a column; any but ``sizes`` may be empty."""

    TEXT = "text"
    NUMBER = "number"  # 64-bit floating point
    WHOLE = "whole number"
    SIZES = "sizes"  # how many nodes by name of task


class Column(NamedTuple):
    """One column of a table."""

    name: str
    kind: Kind


def _columns(**kinds: Kind) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kinds.items())


DECISIONS: Final = _columns(
    number=Kind.WHOLE,
    time_s=Kind.NUMBER,
    pool=Kind.WHOLE,
    used=Kind.WHOLE,
    competing=Kind.WHOLE,
    value=Kind.NUMBER,
    bound=Kind.NUMBER,
    solver=Kind.TEXT,
    termination=Kind.TEXT,
    quality=Kind.TEXT,
    fallback=Kind.TEXT,
    sizes=Kind.SIZES,
)

TASKS: Final = _columns(
    name=Kind.TEXT,
    state=Kind.TEXT,
    submit_s=Kind.NUMBER,
    first_start_s=Kind.NUMBER,
    finish_s=Kind.NUMBER,
    starts=Kind.WHOLE,
    rescales=Kind.WHOLE,
    preemptions=Kind.WHOLE,
    waits=Kind.WHOLE,
    waited_s=Kind.NUMBER,
    node_h=Kind.NUMBER,
    work_samples=Kind.NUMBER,
    done_samples=Kind.NUMBER,
    lost_preemption_samples=Kind.NUMBER,
    lost_rescaling_samples=Kind.NUMBER,
    lost_start_up_samples=Kind.NUMBER,
    lost_unnoticed_samples=Kind.NUMBER,
    owed_samples=Kind.NUMBER,
    user=Kind.TEXT,
    campaign=Kind.TEXT,
    deadline_s=Kind.NUMBER,
    shortest_s=Kind.NUMBER,
    alone_s=Kind.NUMBER,
)

ALLOCATIONS: Final = _columns(task=Kind.TEXT, node=Kind.TEXT, from_s=Kind.NUMBER, to_s=Kind.NUMBER)

OVER_TIME: Final = _columns(
    from_s=Kind.NUMBER, to_s=Kind.NUMBER, idle=Kind.NUMBER, used=Kind.NUMBER, harvested=Kind.NUMBER
)

CAMPAIGNS: Final = _columns(
    number=Kind.WHOLE,
    user=Kind.TEXT,
    campaign=Kind.TEXT,
    created_s=Kind.NUMBER,
    tasks=Kind.WHOLE,
    tasks_finished=Kind.WHOLE,
    node_h=Kind.NUMBER,
    end_s=Kind.NUMBER,
    least_s=Kind.NUMBER,
    stretch=Kind.NUMBER,
    virtual_end_s=Kind.NUMBER,
    rivals=Kind.NUMBER,
    bound_s=Kind.NUMBER,
    stretch_bound=Kind.NUMBER,
)

TABLES: Final = {
    "decisions": DECISIONS,
    "tasks": TASKS,
    "allocations": ALLOCATIONS,
    "over_time": OVER_TIME,
    "campaigns": CAMPAIGNS,
}
