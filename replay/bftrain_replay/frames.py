"""The tables of a replay as pandas DataFrames, in the columns that the files have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadInput
from bftrain_replay import tables
from bftrain_replay.campaigns import rows as campaign_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas import DataFrame

    from bftrain_replay.result import Result
    from bftrain_replay.tables import Column


def decisions(result: Result) -> DataFrame:
    """Give one row a decision; ``sizes`` holds a dict in each."""
    return _frame(tables.DECISIONS, tables.decision_rows(result))


def tasks(result: Result) -> DataFrame:
    """Give one row a task."""
    return _frame(tables.TASKS, tables.task_rows(result))


def allocations(result: Result) -> DataFrame:
    """Give one row for each node that a task held without a break; names are categories, since there are many rows."""
    import pandas as pd  # noqa: PLC0415 - heavy, and only who asks for a frame needs it

    taken = result.allocations
    if taken is None:
        raise BadInput(
            "allocations were not taken down", where="replay", fix="ask the replay itself, not its yardsticks"
        )
    blocks = list(taken.blocks())

    def joined(name: str, kind: type) -> np.ndarray:
        return np.concatenate([np.empty(0, kind), *(getattr(block, name) for block in blocks)])

    return pd.DataFrame(
        {
            "task": pd.Categorical.from_codes(joined("task", np.int32), categories=pd.Index(taken.tasks)),
            "node": pd.Categorical.from_codes(joined("node", np.int32), categories=pd.Index(taken.nodes)),
            "from_s": joined("from_s", np.float64),
            "to_s": joined("to_s", np.float64),
        }
    )


def over_time(result: Result) -> DataFrame:
    """Give one row for each stretch of time."""
    return _frame(tables.OVER_TIME, tables.over_time_rows(result))


def campaigns(result: Result) -> DataFrame:
    """Give one row a campaign."""
    return _frame(tables.CAMPAIGNS, campaign_rows(result))


def _frame(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> DataFrame:
    import pandas as pd  # noqa: PLC0415 - as above

    frame = pd.DataFrame(list(rows), columns=[column.name for column in columns])
    kinds = {tables.Kind.NUMBER: "float64", tables.Kind.WHOLE: "int64"}
    return frame.astype({column.name: kinds[column.kind] for column in columns if column.kind in kinds})
