"""Tables as pandas DataFrames, in the columns that the files have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_replay.tables.table_schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas import DataFrame

    from bftrain_replay.accounting.allocations import AllocationRecorder
    from bftrain_replay.tables.table_schema import TableColumn

_DTYPES: Final = {ColumnType.NUMBER: "float64", ColumnType.WHOLE: "int64"}


def frame(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> DataFrame:
    """Return rows as a DataFrame with the names and types of ``columns``."""
    import pandas as pd  # noqa: PLC0415 - heavy, and only those who ask for a frame need it

    table = pd.DataFrame(list(rows), columns=[column.name for column in columns])
    return table.astype({column.name: _DTYPES[column.kind] for column in columns if column.kind in _DTYPES})


def allocations_frame(allocations: AllocationRecorder) -> DataFrame:
    """Return one row for each node that a task held without a break; names are categories, for there are many rows."""
    import pandas as pd  # noqa: PLC0415 - as above

    blocks = list(allocations.blocks())

    def joined(name: str, kind: type) -> np.ndarray:
        return np.concatenate([np.empty(0, kind), *(getattr(block, name) for block in blocks)])

    return pd.DataFrame(
        {
            "task": pd.Categorical.from_codes(joined("task", np.int32), categories=pd.Index(allocations.tasks)),
            "node": pd.Categorical.from_codes(joined("node", np.int32), categories=pd.Index(allocations.nodes)),
            "from_s": joined("from_s", np.float64),
            "to_s": joined("to_s", np.float64),
        }
    )
