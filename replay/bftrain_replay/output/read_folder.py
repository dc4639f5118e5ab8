"""A replay read back from its folder, table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BadInput
from bftrain.result_folder import complete_replacement
from bftrain.values import wire
from bftrain_datasets import result_tables
from bftrain_datasets.result_tables import TableColumn
from bftrain_replay import tables
from bftrain_replay.accounting.allocations import StoredAllocations
from bftrain_replay.output import allocation_files
from bftrain_replay.provenance import FORMAT

_READ_AGAIN: Final = "run the replay again, and do not edit its files"
_RUN_AGAIN: Final = "run the replay again with this version"
_IN_ROUNDS: Final = "a run in rounds has figures, tables and a page: docs/how-to/rounds.md; this is for replays"


def _fix_of(form: object) -> str:
    figures = str(form)
    if figures.startswith("bftrain rounds"):
        return _IN_ROUNDS
    return _RUN_AGAIN if figures.startswith("bftrain replay") else "name the folder of a replay"


class SavedReplay:
    """The folder of a replay, or of another run with a given ``form`` and tables (name -> columns)."""

    def __init__(
        self, folder: Path, form: str = FORMAT, known: Mapping[str, Sequence[TableColumn]] = tables.TABLES
    ) -> None:
        complete_replacement(folder)
        path = folder / "summary.json"
        if not path.is_file():
            raise BadInput("contains no summary.json", where=str(folder), fix="name the folder of a replay")
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
        """Yield these columns of a table, row by row; ``None`` where a value is missing."""
        known = {column.name: column for column in self._known[name]}
        wanted = [known[column] for column in columns]
        return result_tables.read_rows(self._folder, name, wanted, tables.LATER)

    def holdings(self) -> StoredAllocations:
        """Read the table of allocations into a temporary file."""
        return allocation_files.read(self._folder)
