"""Task files: the tasks of a study, as TOML or CSV that people can read and write."""

from __future__ import annotations

import csv
import io
from itertools import takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from bftrain import toml_io
from bftrain.errors import BadConfig, BadInput, UnknownName
from bftrain.files import CsvFile, by_suffix, check_replaceable, existing, head_of, whole_file, whole_text
from bftrain.taskfiles.records import COLUMNS, COUNTS, NUMBERS, record_of, tasks_of
from bftrain.values.checks import repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bftrain.values.task import TaskSpec

    Record = dict[str, Any]
    Reader = Callable[[Path], Iterator[tuple[str, Record]]]
    Writer = Callable[[list[Record], IO[str]], None]

KIND: Final = "task file"
MADE_BY: Final = "made by bftrain"  # part of the top comment in generated files
_PROFILES: Final = b"[[profile]]"
TABLE_REMEDY: Final = "write it as in a .toml task file; docs/reference/formats.md has examples"
POINTS_REMEDY: Final = "write points as size:rate with spaces between, such as 1:100 2:190 4:370"
KINDS_REMEDY: Final = "write kind=points with semicolons between, such as v100=1:100 2:190; k80=1:30 2:55"
_PARTS: Final = frozenset("=;")  # separators of kinds and points in a cell
TABLES: Final = frozenset({"batch", "spread", "resources"})  # cells with values in TOML


def load_tasks(path: Path | str) -> tuple[TaskSpec, ...]:
    """Load the tasks in the file at ``path``, in sequence; its suffix is ``.toml`` or ``.csv``.

    Raises :class:`bftrain.errors.BadInput` for an invalid file or another suffix, and ``OSError`` if it is unreadable.

    >>> from bftrain import load_tasks
    >>> [task.name for task in load_tasks("tasks.toml")]
    ['a']
    """
    path = Path(path)
    read, _ = by_suffix(path, _FORMATS, KIND)
    return tasks_of(read(existing(path)), str(path))


def save_tasks(tasks: Iterable[TaskSpec], path: Path | str, *, note: str = "") -> None:
    """Save ``tasks`` in a file at ``path`` (``.toml`` or ``.csv``); ``note`` becomes a comment at the top.

    Raises :class:`bftrain.errors.BadInput` for another suffix, and ``OSError`` if the file cannot be written.

    >>> from bftrain import load_tasks, save_tasks
    >>> save_tasks(load_tasks("tasks.toml"), "copy.csv")
    """
    path = Path(path)
    _, save = by_suffix(path, _FORMATS, KIND)
    records = [record_of(task) for task in tasks]
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        text.writelines(f"# {line}\n" for line in note.splitlines())
        save(records, text)
        text.detach()


def check_task_name(path: Path) -> None:
    """Raise an error, before any work, for a file name that tasks cannot be saved under, or a foreign file."""
    by_suffix(path, _FORMATS, KIND)
    check_replaceable(path, is_own_tasks, "task file")


def is_own_tasks(path: Path) -> bool:
    """Return whether a command wrote this task file, by its comment; hand-written files lack the comment."""
    return _is_own(path, profiles=False)


def is_own_profiles(path: Path) -> bool:
    """Return whether a command wrote this profile file."""
    return _is_own(path, profiles=True)


def _is_own(path: Path, *, profiles: bool) -> bool:
    head = head_of(path)
    comments = takewhile(lambda line: line.startswith(b"#"), head.splitlines())
    return (_PROFILES in head) is profiles and any(MADE_BY.encode() in line for line in comments)


def toml_records(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the tasks of a file, each with its place: several as ``[[task]]``, or one at the top level."""
    document = toml_io.parse(whole_text(path, KIND), str(path), fix="see docs/reference/formats.md for an example")
    if document and "task" not in document and not any(map(_is_tables, document.values())):
        yield str(path), document
        return
    for key, value in document.items():
        if key != "task" and _is_tables(value):
            raise UnknownName.among("table of a task file", key, ("task",), where=str(path))
        if key != "task":
            what = f"'{key}' is outside the [[task]] tables"
            raise BadInput(what, where=str(path), fix="write one task without [[task]], or several with [[task]]")
    entries = document.get("task", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("task: must be a list of tables", where=str(path), fix="start every task with [[task]]")
    for number, entry in enumerate(entries, start=1):
        yield f"{path}: task {number}", entry


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def _save_toml(records: list[Record], text: IO[str]) -> None:
    for record in records:
        text.write("\n[[task]]\n")
        text.writelines(f"{key} = {toml_io.value(value, _number)}\n" for key, value in record.items())


def _number(value: object) -> str:
    """Return a number in its short form, 1.3e8 instead of 130000000.0, if both are exactly equal."""
    brief = f"{value:.6g}".replace("e+0", "e").replace("e+", "e") if isinstance(value, float) else ""
    return brief if "e" in brief and float(brief) == value else repr(value)


def _csv_records(path: Path) -> Iterator[tuple[str, Record]]:
    rows = CsvFile(path)
    header = [cell.strip() for cell in rows.header]
    for column in header:
        if column not in COLUMNS:
            raise UnknownName.among("column of a task file", column, COLUMNS, where=rows.where)
    if twice := repeated(header):
        raise BadInput(f"the column '{twice}' occurs twice", where=rows.where)
    for cells in rows.rows():
        if len(cells) != len(header):
            what = f"the row has {len(cells)} cells, the header {len(header)}"
            raise BadInput(
                what, where=rows.where, fix="write the same number of cells in every row; cells may be empty"
            )
        filled = {key: cell.strip() for key, cell in zip(header, cells, strict=True) if cell.strip()}
        yield rows.where, {key: _cell(key, cell, rows.where) for key, cell in filled.items()}


def _cell(key: str, cell: str, where: str) -> object:
    try:
        if key in COUNTS:
            return int(cell)
        if key in NUMBERS:
            return float(cell)
        if key == "curve":
            return _points(cell)
    except ValueError:
        wanted = "a whole number" if key in COUNTS else "a number"
        problem = f"{key}: {cell!r} is not a {'list of points' if key == 'curve' else wanted.partition(' ')[2]}"
        raise BadInput(problem, where=where, fix=POINTS_REMEDY if key == "curve" else f"give {wanted}") from None
    if key == "curves":
        return _curves(cell, where)
    if key not in TABLES:
        return cell
    try:
        return toml_io.parse(f"{key} = {cell}", where)[key]
    except BadConfig:
        raise BadInput(f"{key}: {cell!r:.60} cannot be read", where=where, fix=TABLE_REMEDY) from None


def _points(cell: str) -> dict[str, list[Any]]:
    points = [point.partition(":") for point in cell.split()]
    return {"nodes": [int(size) for size, _, _ in points], "rate": [float(rate) for _, _, rate in points]}


def _curves(cell: str, where: str) -> dict[str, dict[str, list[Any]]]:
    """Parse ``v100=1:100 2:190; k80=1:30``."""
    found: dict[str, dict[str, list[Any]]] = {}
    for part in filter(None, map(str.strip, cell.split(";"))):
        kind, parted, points = part.partition("=")
        kind = kind.strip()
        if kind in found:
            raise BadInput(f"curves: '{kind}' occurs twice", where=where, fix=KINDS_REMEDY)
        try:
            found[kind] = _points(points)
        except ValueError:
            parted = ""
        if not parted or not kind:
            raise BadInput(f"curves: {part!r:.60} is not kind=points", where=where, fix=KINDS_REMEDY)
    return found


def _save_csv(records: list[Record], text: IO[str]) -> None:
    used = [key for key in COLUMNS if any(key in record for record in records)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(used)
    for record in records:
        writer.writerow([_written(key, record[key]) if key in record else "" for key in used])


def _written(key: str, value: Any) -> str:  # noqa: ANN401 - any value of a record
    if key == "curves":
        for kind in value:
            if _PARTS & set(kind):
                what = f"the kind '{kind}' does not fit a cell: '=' and ';' are separators"
                raise BadInput(what, where="curves", fix="save the tasks as .toml, or rename the kind")
        return "; ".join(f"{kind}={_written('curve', points)}" for kind, points in value.items())
    if key == "curve":
        return " ".join(f"{size}:{rate!r}" for size, rate in zip(value["nodes"], value["rate"], strict=True))
    if key in TABLES:
        return toml_io.value(value)
    return value if isinstance(value, str) else _number(value)


_FORMATS: Final[dict[str, tuple[Reader, Writer]]] = {
    ".toml": (toml_records, _save_toml),
    ".csv": (_csv_records, _save_csv),
}
