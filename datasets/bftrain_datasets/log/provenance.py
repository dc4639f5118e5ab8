"""LogProvenance: the sources of a log, the reader and options that created it, and counts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from bftrain.errors import BadValue
from bftrain.node_units import NODE, UNITS
from bftrain.nodesets import expand
from bftrain.values import checks, wire
from bftrain.version import __version__

_BLOCK_BYTES = 1 << 20


def _node_set(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(text)
    expand(text)
    return text


def tellable(name: str) -> str:
    """Return a file's name, safe for a line of text."""
    return name if name.isprintable() and name == name.strip() else ascii(name)


class ProvenanceSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input file: its name (without folders), size and SHA-256."""

    name: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.text(self, "sha256")
        checks.integer(self, "size_bytes", at_least=0)

    @classmethod
    def of(cls, path: Path) -> ProvenanceSource:
        """Return the description of the file at ``path``, which is read in blocks."""
        digest = hashlib.sha256()
        size = 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        return cls(name=tellable(path.name), sha256=digest.hexdigest(), size_bytes=size)


class LogFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of finding with its count: ``name`` is the kind, ``first`` the place of its first occurrence.

    ``node_s`` is the affected node-time, as far as known; ``done`` is the treatment.
    """

    name: str
    count: int
    node_s: float = 0.0
    first: str = ""
    done: str = ""

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.integer(self, "count", at_least=0)
        checks.number(self, "node_s", at_least=0)


class DoubtfulTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Doubtful idle nodes for one cause: ``nodes[i]`` of the log's ``of_nodes`` from ``times[i]``."""

    cause: str
    of_nodes: int
    times: tuple[float, ...]
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        checks.text(self, "cause")
        checks.integer(self, "of_nodes", at_least=1)
        if len(self.times) != len(self.nodes):
            raise BadValue("must have one time per node", where=f"DoubtfulTime {self.cause}")


class LogProvenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The origin of a log: the reader or generator ``made_by``, and the later ``steps``.

    ``options`` are JSON values; ``counts`` are numbers of rows or transitions by outcome; ``doubtful`` is the doubtful
    part of the idle time. ``unit`` is the idle or busy resource: a ``node``, ``gpu`` or ``core``. ``partitions`` maps
    each partition to the node set that its jobs used longest.
    """

    made_by: str = "hand"
    version: str = msgspec.field(default_factory=lambda: __version__)
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    sources: tuple[ProvenanceSource, ...] = ()
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    findings: tuple[LogFinding, ...] = ()
    doubtful: tuple[DoubtfulTime, ...] = ()
    steps: tuple[str, ...] = ()
    unit: str = NODE
    partitions: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.text(self, "made_by")
        checks.text(self, "version")
        checks.frozen_mapping(self, "options")
        # Store options as read back from a file: tuples become lists, values without a JSON form are rejected
        try:
            wire.leaves(dict(self.options))
            plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(self.options)))
        except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
            raise BadValue(f"must be JSON: {error}", where="LogProvenance.options") from error
        force_setattr(self, "options", MappingProxyType(plain))
        checks.instances(self, "sources", ProvenanceSource)
        checks.counts(self, "counts")
        checks.instances(self, "findings", LogFinding)
        checks.instances(self, "doubtful", DoubtfulTime)
        checks.texts(self, "steps")
        checks.frozen_mapping(self, "partitions", _node_set, "a mapping from names to node sets")
        if self.unit not in UNITS:
            raise BadValue(f"is {self.unit!r:.40}, but must be {', '.join(UNITS)}", where="LogProvenance.unit")

    def in_json(self) -> bytes:
        """Return the JSON for log files; omits defaults, so earlier versions can read it."""
        data = wire.plain(self)
        if not self.doubtful:
            del data["doubtful"]
        if self.unit == NODE:
            del data["unit"]
        if not self.partitions:
            del data["partitions"]
        return wire.encode(data)

    def with_step(self, step: str) -> LogProvenance:
        """Return the provenance with one more step."""
        return msgspec.structs.replace(self, steps=(*self.steps, step))

    def with_counts(self, counts: Mapping[str, int]) -> LogProvenance:
        """Return the provenance with further counts."""
        return msgspec.structs.replace(self, counts={**self.counts, **counts})
