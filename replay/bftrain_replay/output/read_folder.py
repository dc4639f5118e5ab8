"""A replay read back from its folder, table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BadInput
from bftrain.files import CsvFile
from bftrain.result_folder import complete_replacement
from bftrain.values import wire
from bftrain_replay import tables
from bftrain_replay.accounting.allocations import StoredAllocations
from bftrain_replay.output import parquet_tables
from bftrain_replay.output.plain_allocations import plain_allocations
from bftrain_replay.provenance import FORMAT
from bftrain_replay.tables import ColumnType, TableColumn

_READ_AGAIN: Final = "run the replay again, and leave its files as they are"
_RUN_AGAIN: Final = "run the replay again with this version"
_ALLOCATION: Final = tuple(column.name for column in tables.ALLOCATIONS)
_IN_ROUNDS: Final = "a run in rounds has figures, tables and a page: docs/how-to/rounds.md; this is for replays"
_PARSERS: Final[Mapping[ColumnType, Callable[[str], Any]]] = {
    ColumnType.TEXT: str,
    ColumnType.NUMBER: float,
    ColumnType.WHOLE: int,
    ColumnType.SIZES: lambda text: wire.decode(text, dict[str, int]),
}


def _fix_of(form: object) -> str:
    figures = str(form)
    if figures.startswith("bftrain rounds"):
        return _IN_ROUNDS
    return _RUN_AGAIN if figures.startswith("bftrain replay") else "name the folder of a replay"


class SavedReplay:
    """The folder of a replay; or of another run whose ``form`` and tables (name -> columns) are given."""

    def __init__(
        self, folder: Path, form: str = FORMAT, known: Mapping[str, Sequence[TableColumn]] = tables.TABLES
    ) -> None:
        complete_replacement(folder)
        path = folder / "summary.json"
        if not path.is_file():
            raise BadInput("holds no summary.json", where=str(folder), fix="name the folder of a replay")
        self._folder, self._known = folder, known
        self.summary = wire.decode(path.read_bytes(), dict[str, Any], where=str(path), fix=_READ_AGAIN)
        if self.summary.get("format") != form:
            what = f"is of the format {self.summary.get('format')!r}, not '{form}'"
            raise BadInput(what, where=str(path), fix=_fix_of(self.summary.get("format")))

    @staticmethod
    def form_of(folder: Path) -> str:
        """Return the format that a folder's ``summary.json`` names; "" if it names none."""
        try:
            figures = wire.decode((folder / "summary.json").read_bytes(), dict[str, Any])
        except (OSError, BadInput):
            return ""
        return str(figures.get("format", ""))

    def rows(self, name: str, *columns: str) -> Iterator[Sequence[Any]]:
        """Yield these columns of a table, row by row; ``None`` where there is no value."""
        path = self._folder / f"{name}.csv"
        if not path.is_file():
            path = self._folder / f"{name}.parquet"
            if not path.is_file():
                figures = name.replace("_", " ")
                raise BadInput(f"holds no table of {figures}", where=str(self._folder), fix="run the replay again")
            yield from parquet_tables.rows(path, columns)
            return
        kinds = {column.name: column.kind for column in self._known[name]}
        file = CsvFile(path)
        missing = [column for column in columns if column not in file.header and column not in tables.LATER]
        if missing:
            raise BadInput(f"has no column '{missing[0]}'", where=file.where, fix=_READ_AGAIN)
        wanted = [
            (file.header.index(column), _PARSERS[kinds[column]], kinds[column] is ColumnType.TEXT)
            if column in file.header
            else (None, str, False)
            for column in columns
        ]
        width = len(file.header)
        for row in file.rows():
            if len(row) != width:
                raise BadInput(f"{len(row)} cells in a row of {width}", where=file.where, fix=_READ_AGAIN)
            try:
                yield [
                    parse(row[place]) if place is not None and (is_text or row[place]) else None
                    for place, parse, is_text in wanted
                ]
            except ValueError as error:
                raise BadInput(f"not what its column says: {error}", where=file.where, fix=_READ_AGAIN) from error

    def holdings(self) -> StoredAllocations:
        """Read the table of allocations into a temporary file."""
        path = self._folder / "allocations.csv"
        if path.is_file():
            found = plain_allocations(path)
            if found is not None:
                return found
        elif (columns := path.with_suffix(parquet_tables.SUFFIX)).is_file():
            return parquet_tables.stored_allocations(columns)
        rows = StoredAllocations.new_rows()
        task, node, from_s, to_s = (rows.last[name] for name in _ALLOCATION)
        tasks: dict[str, int] = {}
        nodes: dict[str, int] = {}
        for task_name, node_name, begin_s, end_s in self.rows("allocations", *_ALLOCATION):
            if begin_s is None or end_s is None:
                what = "a row of the table of allocations has an empty cell"
                raise BadInput(what, where=str(self._folder), fix=_READ_AGAIN)
            task.append(tasks.setdefault(task_name, len(tasks)))
            node.append(nodes.setdefault(node_name, len(nodes)))
            from_s.append(begin_s)
            to_s.append(end_s)
            rows.add_block_if_full()
        return StoredAllocations(tasks=tuple(tasks), nodes=tuple(nodes), rows=rows)
