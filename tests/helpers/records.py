"""Records as a scheduler would write them, read in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bftrain import EventLog, Imported, ImportOptions
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.provenance import LogFinding


def imported(folder: Path, *texts: str | bytes, **options: Any) -> Imported:  # noqa: ANN401 - see ImportOptions
    """Import these texts, one file each, with these options; the files are called 0, 1, ..."""
    paths = [folder / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    found = import_files(paths, ImportOptions(**options))
    assert found.rows.read == found.rows.used + sum(found.rows.aside.values())
    return found


def finding(found: Imported, name: str) -> LogFinding:
    """Return the finding of this name; there must be one."""
    return {each.name: each for each in found.findings}[name]


def kinds(found: Imported) -> set[str]:
    return {each.name for each in found.findings}


def busy_node_s(log: EventLog) -> float:
    """Node-seconds in which nodes are not idle."""
    return log.span_s * len(log.node_names) - log.idle_node_s
