"""The table of allocations as a file, block by block: it may have very many rows with few names and times."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets import result_tables
from bftrain_datasets.result_tables import CSV, RUN_AGAIN
from bftrain_replay.accounting.allocations import AllocationRows
from bftrain_replay.run.tables import ALLOCATIONS

NAME = "allocations"


def write(held: AllocationRows, folder: Path, form: str, file_format: str) -> None:
    """Write the table as csv or parquet."""
    with result_tables.created(folder, NAME, form) as file:
        if form == CSV:
            names = _cells(held.tasks), _cells(held.nodes)
            file.write((",".join(column.name for column in ALLOCATIONS) + "\n").encode())
            for block in held.blocks():
                cells = names[0][block.task], names[1][block.node], _numbers(block.from_s), _numbers(block.to_s)
                rows = zip(*(column.tolist() for column in cells), strict=True)
                file.write("".join(f"{row}\n" for row in map(",".join, rows)).encode())
            return
        import pyarrow as pa  # noqa: PLC0415 - takes a moment

        task_names, node_names = pa.array(held.tasks, pa.string()), pa.array(held.nodes, pa.string())
        with result_tables.parquet_writer(file, ALLOCATIONS, file_format) as (writer, schema):
            for block in held.blocks():
                named = [
                    pa.DictionaryArray.from_arrays(pa.array(places), names)
                    for places, names in ((block.task, task_names), (block.node, node_names))
                ]
                writer.write_table(pa.table([*named, pa.array(block.from_s), pa.array(block.to_s)], schema=schema))


def _cells(names: Iterable[str]) -> NDArray[np.object_]:
    """Return names as CSV cells, quoted where necessary."""
    cells = []
    for name in names:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow((name, ""))
        cells.append(line.getvalue().removesuffix(","))
    return np.array(cells, dtype=np.object_)


def _numbers(column: NDArray[np.float64]) -> NDArray[np.object_]:
    """Format each distinct number once, as most are repeated."""
    different, places = np.unique(column, return_inverse=True)
    return np.array(list(map(repr, different.tolist())), dtype=np.object_)[places]


def read(folder: Path) -> AllocationRows:
    """Read the table into a temporary file."""
    found = AllocationRows.new_columns()
    numbers: dict[str, dict[str, int]] = {"task": {}, "node": {}}  # numbers by first appearance
    for batch in result_tables.read(folder, NAME, ALLOCATIONS):
        if any(column.null_count for column in batch.columns):
            what = "a row of the table of allocations has an empty cell"
            raise BadInput(what, where=str(folder), fix=RUN_AGAIN)
        for name, known in numbers.items():
            found.last[name].frombytes(_numbered(batch.column(name), known).tobytes())
        for name in ("from_s", "to_s"):
            found.last[name].frombytes(batch.column(name).to_numpy().tobytes())
        found.add_block_if_full()
    return AllocationRows.stored(numbers["task"], numbers["node"], found)


def _numbered(column: Any, known: dict[str, int]) -> NDArray[np.int32]:  # noqa: ANN401 - a module without types
    """Return the number of each name; new names are added to the ``known`` ones."""
    named = column if hasattr(column, "indices") else column.dictionary_encode()
    places, first, which = np.unique(named.indices.to_numpy(), return_index=True, return_inverse=True)
    numbers = np.empty(len(places), dtype=np.int32)
    for each in np.argsort(first).tolist():
        numbers[each] = known.setdefault(named.dictionary[int(places[each])].as_py(), len(known))
    return numbers[which]
