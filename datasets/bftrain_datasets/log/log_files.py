"""Log files: load and save an EventLog, in the format given by the suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain.errors import BadInput
from bftrain.files import by_suffix, check_replaceable, existing, head_of, whole_file
from bftrain_datasets.log import npz_log, parquet_log, table_log
from bftrain_datasets.log.eventlog import FORMAT, EventLog

PARQUET: Final = ".parquet"
LOADERS: Final = {".npz": npz_log.load, ".csv": table_log.load, PARQUET: parquet_log.load}
SAVERS: Final = {".npz": npz_log.save, ".csv": table_log.save, PARQUET: parquet_log.save}
# First bytes of log files: a zip archive, a Parquet file, and the comment in a CSV file
_PARQUET_MARK: Final = b"PAR1"
_CSV_MARK: Final = f"# {FORMAT}".encode()
_MARKS: Final = (b"PK\x03\x04", _PARQUET_MARK, _CSV_MARK)
_MARK_BYTES: Final = max(map(len, _MARKS))


def load_log(path: Path | str) -> EventLog:
    """Load the log in the file at ``path``, with the suffix ``.npz``, ``.csv`` or ``.parquet``.

    Raises :class:`bftrain.errors.BadInput` for an invalid or damaged file, and ``OSError`` if it is unreadable.

    >>> from bftrain import load_log
    >>> load_log("log.npz").idle_node_s / 3600
    3.0
    """
    path = Path(path)
    load = by_suffix(path, LOADERS, "log file", advice="bftrain import converts a scheduler's records; ")
    return load(existing(path))


def save_log(log: EventLog, path: Path | str) -> None:
    """Save ``log`` in the file at ``path``, with the suffix ``.npz``, ``.csv`` or ``.parquet``.

    The file appears complete or not at all. Equal logs lead to equal bytes. Raises :class:`bftrain.errors.BadInput` for
    another suffix, and ``OSError`` if the file cannot be written.

    >>> from bftrain import load_log, save_log
    >>> save_log(load_log("log.npz"), "copy.csv")
    """
    path = Path(path)
    save = by_suffix(path, SAVERS, "log file")
    with whole_file(path) as file:
        save(log, file)


def check_log_name(path: Path) -> None:
    """Raise an error if the name is not a log file name, the folder is missing, or the file is foreign."""
    by_suffix(path, SAVERS, "log file")
    if not path.parent.is_dir():
        raise BadInput("no such folder", where=str(path.parent), fix="create it first, for example by mkdir -p")
    check_replaceable(path, is_own_log, "log")


def is_own_log(path: Path) -> bool:
    """Return whether bftrain wrote the log in this file, by its first bytes or, in Parquet, its last bytes."""
    head = head_of(path)
    if head.startswith(_PARQUET_MARK):
        return parquet_log.is_own(path)
    return head.startswith(_CSV_MARK) or npz_log.is_own(head)


def holds_log(path: Path) -> bool:
    """Return whether the file is a bftrain log, by its first bytes, and not a scheduler's records."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(_MARK_BYTES).startswith(_MARKS)
    except OSError:  # the next reader reports it
        return False
