"""The tables of a replay as pandas DataFrames, in the columns that the files have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadInput
from bftrain_replay.accounting.campaign_stretch import rows as campaign_rows
from bftrain_replay.output import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas import DataFrame

    from bftrain_replay.accounting.result import Result
    from bftrain_replay.output.table_schema import Column


def decisions(result: Result) -> DataFrame:
    """Give one row a decision; ``sizes`` holds a dict in each."""
    return _frame(table_schema.DECISIONS, table_schema.decision_rows(result))


def tasks(result: Result) -> DataFrame:
    """Give one row a task."""
    return _frame(table_schema.TASKS, table_schema.task_rows(result))


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
    return _frame(table_schema.OVER_TIME, table_schema.over_time_rows(result))


def campaigns(result: Result) -> DataFrame:
    """Give one row a campaign."""
    return _frame(table_schema.CAMPAIGNS, campaign_rows(result))


def _frame(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> DataFrame:
    import pandas as pd  # noqa: PLC0415 - as above

    frame = pd.DataFrame(list(rows), columns=[column.name for column in columns])
    kinds = {table_schema.Kind.NUMBER: "float64", table_schema.Kind.WHOLE: "int64"}
    return frame.astype({column.name: kinds[column.kind] for column in columns if column.kind in kinds})
