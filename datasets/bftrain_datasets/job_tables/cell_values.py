"""Values of a table's cells: times, durations, counts, names and nodes, in guessed or given units.

A column is an array of numbers, or an Arrow array of texts. A list in a cell becomes a text with one line per entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.job_columns import BAD_TIME
from bftrain_datasets.importing.machine_nodes import checked_names, nodes_in
from bftrain_datasets.importing.text_columns import Texts, by_text, coded, contains, times_of, without
from bftrain_datasets.log.arrow_arrays import Column, arrow_texts, numpy_of
from bftrain_datasets.log.time_formats import LARGEST_S, RecordClock, span_s

Cells = Column | NDArray[np.float64]

ISO: Final = "iso"
TEXT: Final = "d-hh:mm:ss"
INTERVALS: Final = "intervals"
NODE_SET: Final = "node set"
EPOCHS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
SPANS: Final = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86_400.0}
NOTHING: Final = frozenset({"", "unknown", "none", "n/a", "na", "nan", "nat", "null", "none assigned", "(null)", "[]"})

_THOUSANDS: Final = re.compile(r"\s*\d{1,3}(?:,\d{3})+\s*\Z")
_DATE: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d")
_INTERVALS: Final = re.compile(r"\d+(?:-\d+)?(?:[ ,]+\d+(?:-\d+)?)*\Z")
_DECIMAL_COMMA: Final = re.compile(r"\A\s*(\d+),(\d+)\s*\Z")


def cell_text(cell: object) -> str:
    """Return a cell as text; a list has one line per entry."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list):
        return "".join(f"{cell_text(each)}\n" for each in cell)
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell)


def column_of(cells: Sequence[object]) -> Column:
    """Return a column of texts."""
    return arrow_texts(list(map(cell_text, cells)))


def number_of(cell: object) -> float | None:
    """Return a cell as a number, or None."""
    if isinstance(cell, bool):
        return None
    try:
        return float(cell)  # type: ignore[arg-type]  # float() raises for other types
    except (TypeError, ValueError, OverflowError):
        return None


def is_nothing(cell: object) -> bool:
    """Return whether a cell has no value."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in NOTHING) or cell != cell  # noqa: PLR0124 - NaN


def only_numbers(cells: Iterable[object]) -> list[float]:
    """Return all cells as numbers; empty unless all cells with a value are numbers."""
    known = [number_of(cell) for cell in cells if not is_nothing(cell)]
    found = [each for each in known if each is not None and math.isfinite(each)]
    return found if len(found) == len(known) else []


def time_unit(cells: Iterable[object]) -> str | None:
    """Guess the unit of times: ``iso``, or epochs in s, ms, us or ns; None if they are not times."""
    known = [cell for cell in cells if not is_nothing(cell)]
    if any(isinstance(cell, str) and _DATE.match(cell.strip()) for cell in known):
        return ISO
    found = [each for each in only_numbers(known) if each > 0]
    if not found:
        return None
    typical = median(found)
    return next((unit for unit, factor in EPOCHS.items() if typical * factor < LARGEST_S), None)


def span_unit(cells: Iterable[object]) -> str | None:
    """Guess the unit of durations: seconds, or the form D-HH:MM:SS; None if they are not durations."""
    known = [cell for cell in cells if not is_nothing(cell)]
    if known and all(_span_number(cell) is not None for cell in known):
        return "s"
    spans = known and all(isinstance(cell, str) and span_s(cell.strip()) is not None for cell in known)
    return TEXT if spans else None


def node_form(cells: Iterable[object]) -> str | None:
    """Guess the notation of nodes; None if there are no cells, or all are plain numbers, which are counts."""
    known = [cell for cell in cells if not is_nothing(cell)]
    if not known or only_numbers(known):
        return None
    if all(isinstance(cell, str) and _INTERVALS.match(cell.strip()) for cell in known):
        return INTERVALS
    return NODE_SET


def _as_numbers(cells: Cells) -> NDArray[np.float64] | None:
    """Return a column of numbers, NaN for empty cells; None if any cell is not a number."""
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64)
    texts = without(cells, NOTHING)
    try:
        return np.where(numpy_of(texts.is_valid()), numpy_of(texts.cast(pa.float64())), np.nan)
    except pa.ArrowException:
        return None


def read_times(cells: Cells, unit: str, clock: RecordClock, *, zero_is_none: bool) -> NDArray[np.float64]:
    """Return times in seconds UTC: NaN for missing ones, ``BAD_TIME`` for unreadable ones."""
    factor = EPOCHS.get(unit, 0.0)
    texts: Column = cells
    found = _as_numbers(cells) if factor or isinstance(cells, np.ndarray) else None
    if found is not None:
        found *= factor or 1.0
    elif factor:
        found = np.array([_time(text, factor, clock) for text in texts.to_pylist()], dtype=np.float64)
    else:
        found, read, local = times_of(texts, clock)
        clock.count_local(int(local.sum()))
        for row in np.flatnonzero(~read).tolist():
            found[row] = _time(texts[row].as_py(), factor, clock)
    found[(found == 0) & zero_is_none] = np.nan
    found[(found < 0) & (found > -2)] = np.nan  # noqa: PLR2004 - -1 means none
    found[(found < 0) | (found >= LARGEST_S)] = BAD_TIME
    return found


def _time(cell: str, factor: float, clock: RecordClock) -> float:
    number = number_of(cell) if factor else None
    if number is not None:
        return number * factor
    text = cell.strip()
    try:
        return math.nan if text == "-1" or text.lower() in NOTHING else clock.seconds(text)
    except (ValueError, OverflowError):
        return BAD_TIME


def read_spans(cells: Cells, unit: str) -> NDArray[np.float64]:
    """Return durations in seconds: NaN for missing or unreadable ones."""
    factor = SPANS.get(unit, 1.0)
    found = _as_numbers(cells)
    found = by_text(coded(cells), partial(_span, factor=factor), np.float64) if found is None else found * factor
    found[~((found >= 0) & (found < LARGEST_S))] = np.nan
    return found


def _span_number(cell: object) -> float | None:
    """Return a duration as a number, also with a decimal comma; a comma before three digits separates thousands."""
    if not isinstance(cell, str):
        return number_of(cell)
    return number_of(_DECIMAL_COMMA.sub(r"\1.\2", _without_commas(cell)))


def _span(cell: str, factor: float) -> float:
    number = _span_number(cell)
    if number is not None:
        return number * factor
    seconds = span_s(cell.strip())
    return math.nan if seconds is None else seconds


def read_counts(cells: Cells) -> NDArray[np.int64]:
    """Return numbers of nodes, cores or GPUs, rounded up; for a list, its length.

    The number is 0 if missing, and ``MOST_NODES + 1`` if larger than any machine.
    """
    found = _as_numbers(cells)
    if found is None:
        found = by_text(coded(cells), _count, np.float64)
    found = np.nan_to_num(np.ceil(found - 1e-9), nan=0.0, posinf=MOST_NODES + 1, neginf=-1)
    return np.clip(found, -1, MOST_NODES + 1).astype(np.int64)


def _count(text: str) -> float:
    number = float(text.count("\n")) if "\n" in text else number_of(_without_commas(text))
    return math.nan if number is None else number


def read_names(cells: Cells) -> list[str]:
    """Return a text for each cell, for columns with few repetitions; numbers are whole."""
    if isinstance(cells, np.ndarray):
        return list(map(str, np.nan_to_num(cells, nan=-1).astype(np.int64).tolist()))
    texts: list[str] = cells.to_pylist()
    return texts


def read_texts(cells: Cells) -> Texts:
    """Return texts; the entries of a list are separated by blanks."""
    if isinstance(cells, np.ndarray):
        numbers, codes = np.unique(cells, return_inverse=True)
        return Texts(codes.astype(np.int32), read_names(numbers))
    found = coded(cells)
    if contains(cells, "\n").any():
        return Texts(found.codes, [" ".join(text.split("\n")).rstrip() for text in found.texts])
    return found


def read_nodes(cells: Cells) -> Column:
    """Return node sets as written, one name per line if the cell is a list; null for none."""
    column = compute.utf8_trim_whitespace(column_of(read_names(cells)) if isinstance(cells, np.ndarray) else cells)
    if contains(column, "\n").any():
        texts = ("\n".join(each for each in text.split("\n") if not is_nothing(each)) for text in column.to_pylist())
        column = arrow_texts(list(texts))
    return without(column, NOTHING | {"-1"})


def _without_commas(text: str) -> str:
    """Return a number without thousands separators, which spreadsheets write."""
    return text.replace(",", "") if _THOUSANDS.match(text) else text


def intervals_in(text: str) -> list[str]:
    """Expand numbers and ranges of numbers, such as ``0-3 7``."""
    names: list[str] = []
    for part in text.replace(",", " ").split():
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= high - low < MOST_NODES - len(names):
            raise ValueError(f"{text[:60]!r} is not a set of numbers")
        names += map(str, range(low, high + 1))
    return checked_names(names)


EXPAND: Final[dict[str, Callable[[str], Sequence[str]]]] = {NODE_SET: nodes_in, INTERVALS: intervals_in}
