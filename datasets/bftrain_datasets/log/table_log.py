"""What the ``.csv`` and the ``.parquet`` log share: columns, what a cell may hold, and the story beside the rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as replace_struct

from bftrain.errors import BadInput, suggestion
from bftrain.values import wire
from bftrain_datasets.log.eventlog import STATE_WORDS, EventLog, NodeState
from bftrain_datasets.log.log_checks import is_node_name
from bftrain_datasets.log.provenance import LogProvenance, ProvenanceSource

if TYPE_CHECKING:
    from pathlib import Path

    from bftrain_datasets.log.builder import LogBuilder

COLUMNS: Final = ("time", "node", "state")
KIND_COLUMN: Final = "kind"  # a fourth one where kinds of nodes are distinguished
REMEDY: Final = "the columns are time, node and state, and kind where nodes differ; docs/formats.md describes them"
TIME_REMEDY: Final = "times are seconds since 1970-01-01 UTC, such as 1612915732.0"
_STATES: Final = {word: NodeState(number) for number, word in enumerate(STATE_WORDS)}

Note = tuple["str | bytes", str]  # a piece of the story, and where it stands


def seconds(text: str | bytes, where: str, field: str = "time") -> float:
    """Read a time in seconds UTC."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s):
        raise BadInput(f"{field}: {text!r:.40} is no time", where=where, fix=TIME_REMEDY)
    return time_s


def node_name(name: str, where: str) -> str:
    """Read the name of a node."""
    if not is_node_name(name):
        raise BadInput(f"node: {name!r:.40} is no name", where=where, fix="give every row a printable node name")
    return name


def kind_name(name: str, where: str) -> str:
    """Read the name of a kind of nodes."""
    if not is_node_name(name):
        raise BadInput(f"kind: {name!r:.40} is no name", where=where, fix="give every row the kind of its node")
    return name


def state_of(word: str, where: str) -> NodeState:
    """Read the state of a node."""
    if word not in _STATES:
        raise BadInput(f"state: there is no state {word!r:.40}", where=where, fix=suggestion(word, _STATES))
    return _STATES[word]


def built(builder: LogBuilder, end_s: float | None, kind: str, where: str) -> EventLog:
    """Make the log of all rows; without an ``end_s`` it ends with the last of them."""
    try:
        return builder.build(end_s=end_s, provenance=LogProvenance(made_by=f"reader {kind.lower()}"))
    except BadInput as error:
        raise BadInput(error.what, where=where, fix=error.fix or REMEDY) from error


def with_story(log: EventLog, path: Path, kind: str, story: Note | None, checksum: Note | None) -> EventLog:
    """Give the log the story in its file, if it has one and the rows are still those it belongs to."""
    if story is None:
        return replace(log, provenance=replace_struct(log.provenance, sources=(ProvenanceSource.of(path),)))
    provenance = wire.decode(story[0], LogProvenance, where=story[1])
    if checksum is None:
        return replace(log, provenance=provenance.and_then(f"read from a {kind} file without a checksum"))
    if checksum[0] not in (log.sha256, log.sha256.encode()):
        raise BadInput(
            "the rows are not those that were saved: the file was cut off or edited",
            where=checksum[1],
            fix="fetch the file again, or delete this checksum if the change is meant",
        )
    return replace(log, provenance=provenance)
