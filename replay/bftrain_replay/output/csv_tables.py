"""Tables as CSV: UTF-8, one header line, shortest numbers without loss, no empty values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
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
_MOST_PIECES: Final = 200_000


def write(result: ReplayResult, folder: Path) -> None:
    """Write all tables; each appears complete or not at all."""
    for name, rows in result.table_rows().items():
        write_rows(folder / f"{name}{SUFFIX}", tables.TABLES[name], rows)
    if result.allocations is not None:
        write_allocations(folder / "allocations.csv", result.allocations)


def write_rows(path: Path, columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> None:
    """Write a table row by row; it appears complete or not at all. Only its last column may be sizes."""
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        csv.writer(text, lineterminator="\n").writerow(column.name for column in columns)
        if columns[-1].kind is ColumnType.SIZES:
            pieces, writer = _PiecesOfSizes(), csv.writer(text, lineterminator=",")
            sizes, end = object(), ""
            for row in rows:
                if row[-1] is not sizes:  # decisions that change nothing share theirs
                    sizes = row[-1]
                    end = pieces.cell(sizes) + "\n"  # type: ignore[arg-type]  # sizes, as the column says
                writer.writerow(row[:-1])
                text.write(end)
        else:
            csv.writer(text, lineterminator="\n").writerows(rows)
        text.detach()


class _PiecesOfSizes(dict[tuple[str, int], str]):
    """The sizes of tasks as parts of JSON in a quoted cell; a run of a million decisions has few different ones."""

    def __missing__(self, item: tuple[str, int]) -> str:
        if len(self) >= _MOST_PIECES:
            self.clear()
        self[item] = piece = wire.encode(dict([item])).decode()[1:-1].replace('"', '""')
        return piece

    def cell(self, sizes: Mapping[str, int]) -> str:
        """Return the cell as the csv module writes it."""
        return f'"{{{",".join(map(self.__getitem__, sizes.items()))}}}"' if sizes else "{}"


def write_allocations(path: Path, allocations: AllocationRecorder) -> None:
    """Write the table of allocations, block by block: it may have very many rows with few names and times."""
    task_names, node_names = _cells(allocations.tasks), _cells(allocations.nodes)
    with whole_file(path) as file:
        file.write((",".join(column.name for column in tables.ALLOCATIONS) + "\n").encode())
        for block in allocations.blocks():
            cells = (task_names[block.task], node_names[block.node], _numbers(block.from_s), _numbers(block.to_s))
            rows = zip(*(column.tolist() for column in cells), strict=True)
            file.write("".join(f"{row}\n" for row in map(",".join, rows)).encode())


def _cells(names: Iterable[str]) -> NDArray[np.object_]:
    """Return names as CSV cells, quoted where necessary."""
    cells = []
    for name in names:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow((name, ""))
        cells.append(line.getvalue().removesuffix(","))
    return np.array(cells, dtype=np.object_)


def _numbers(column: NDArray[np.float64]) -> NDArray[np.object_]:
    """Format each distinct number once, as most of them are repeated."""
    different, places = np.unique(column, return_inverse=True)
    return np.array(list(map(repr, different.tolist())), dtype=np.object_)[places]
