"""Tables as CSV: UTF-8, one header line, shortest numbers without loss, no empty values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.files import whole_file
from bftrain.values import wire
from bftrain_replay import tables
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.tables import ColumnType, TableColumn

SUFFIX: Final = ".csv"


def write(result: ReplayResult, folder: Path) -> None:
    """Write all tables; each appears complete or not at all."""
    for name, rows in result.table_rows().items():
        write_rows(folder / f"{name}{SUFFIX}", tables.TABLES[name], rows)
    if result.allocations is not None:
        write_allocations(folder / "allocations.csv", result.allocations)


def write_rows(path: Path, columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> None:
    """Write a table row by row; it appears complete or not at all."""
    sizes = {place for place, column in enumerate(columns) if column.kind is ColumnType.SIZES}
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in columns)
        if sizes:
            rows = (
                [wire.encode(cell).decode() if place in sizes else cell for place, cell in enumerate(row)]
                for row in rows
            )
        writer.writerows(rows)
        text.detach()


def write_allocations(path: Path, allocations: AllocationRecorder) -> None:
    """Write the table of allocations, block by block: it may have very many rows with few names and times."""
    task_names, node_names = _cells(allocations.tasks), _cells(allocations.nodes)
    with whole_file(path) as file:
        file.write((",".join(column.name for column in tables.ALLOCATIONS) + "\n").encode())
        for block in allocations.blocks():
            rows = zip(
                map(task_names.__getitem__, block.task.tolist()),
                map(node_names.__getitem__, block.node.tolist()),
                _numbers(block.from_s),
                _numbers(block.to_s),
                strict=True,
            )
            file.write("".join(f"{task},{node},{from_s},{to_s}\n" for task, node, from_s, to_s in rows).encode())


def _cells(names: Iterable[str]) -> list[str]:
    """Return names as CSV cells, quoted where necessary."""
    cells = []
    for name in names:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow((name, ""))
        cells.append(line.getvalue().removesuffix(","))
    return cells


def _numbers(column: NDArray[np.float64]) -> list[str]:
    """Format each distinct number once, as most of them are repeated."""
    different, places = np.unique(column, return_inverse=True)
    return list(map(list(map(repr, different.tolist())).__getitem__, places.tolist()))
