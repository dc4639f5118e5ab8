"""Finding the reader for a file: by the name that the user gives, or by what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain import registry
from bftrain.errors import BadInput

if TYPE_CHECKING:
    from bftrain.registry import RegisteredPart
    from bftrain_datasets.importing.log_reader import LogReader

ZIP: Final = b"PK\x03\x04"
PARQUET: Final = b"PAR1"


def reader_for(head: bytes, where: str, wanted: str | None) -> LogReader:
    """Load the reader that ``wanted`` names, or else the first one that recognises how the file begins."""
    if wanted is not None:
        reader: LogReader = registry.load("reader", wanted)
        return reader
    if not head.strip():
        raise BadInput("the file is empty", where=where, fix="give what the scheduler wrote")
    if head.startswith((ZIP, PARQUET)):
        what, fix = "not what a scheduler writes: this may be a log already", "try bftrain inspect"
        fix += ", or unpack it first if it is a zip archive of records" if head.startswith(ZIP) else ""
        raise BadInput(what, where=where, fix=fix)
    parts = registry.parts("reader")
    for part in parts.values():
        if not part.problem and _recognises(part, head):
            found: LogReader = part.load()
            return found
    what = "a binary file that no reader knows" if b"\0" in head else "no reader recognises how it begins"
    known = ", ".join(name for name, part in parts.items() if not part.problem)
    raise BadInput(what, where=where, fix=f"name the format with --format, one of: {known}")


def _recognises(part: RegisteredPart, head: bytes) -> bool:
    """Ask a reader. A broken plug-in must not stand in the way of the others; bftrain doctor tells of it."""
    try:
        return bool(part.load().recognises(head))
    except Exception:
        if part.origin == "bftrain":
            raise
        return False
