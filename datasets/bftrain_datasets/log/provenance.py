"""LogProvenance: where a log came from, which part made it with which options, and what was counted."""

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
    """Give a file's name so that it can stand in a line of text."""
    return name if name.isprintable() and name == name.strip() else ascii(name)


class ProvenanceSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file that was read: its name (without folders), size and SHA-256."""

    name: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.text(self, "sha256")
        checks.integer(self, "size_bytes", at_least=0)

    @classmethod
    def of(cls, path: Path) -> ProvenanceSource:
        """Describe the file at ``path``; it is read in blocks, so its size does not matter."""
        digest = hashlib.sha256()
        size = 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        return cls(name=tellable(path.name), sha256=digest.hexdigest(), size_bytes=size)


class LogFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something doubtful that was counted: ``name`` is its kind, ``first`` the place where it was seen first.

    ``node_s`` is the node-time concerned, as far as it is known; ``done`` says what was done about it.
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
    """How many idle nodes are doubtful for one cause: from ``times[i]`` on ``nodes[i]`` of the log's ``of_nodes``."""

    cause: str
    of_nodes: int
    times: tuple[float, ...]
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        checks.text(self, "cause")
        checks.integer(self, "of_nodes", at_least=1)
        if len(self.times) != len(self.nodes):
            raise BadValue("must have as many times as nodes", where=f"DoubtfulTime {self.cause}")


class LogProvenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The story of a log: ``made_by`` which reader or generator, and the ``steps`` done to it later.

    ``options`` holds JSON values; ``counts`` says how many rows or transitions had which outcome; ``doubtful`` says how
    much of the idle time may not have been idle. ``unit`` is what is idle or busy: a ``node``, a ``gpu`` or a ``core``.
    ``partitions`` are node sets by the name of the partition whose jobs held these nodes longest.
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
        # Give options as they come back from a file: tuples are lists, and what JSON cannot say is refused
        try:
            wire.leaves(dict(self.options))
            plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(self.options)))
        except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
            raise BadValue(f"must be JSON: {error}", where="Provenance.options") from error
        force_setattr(self, "options", MappingProxyType(plain))
        checks.instances(self, "sources", ProvenanceSource)
        checks.counts(self, "counts")
        checks.instances(self, "findings", LogFinding)
        checks.instances(self, "doubtful", DoubtfulTime)
        checks.texts(self, "steps")
        checks.frozen_mapping(self, "partitions", _node_set, "a mapping from names to node sets")
        if self.unit not in UNITS:
            raise BadValue(f"is {self.unit!r:.40}, and may be {', '.join(UNITS)}", where="LogProvenance.unit")

    def in_json(self) -> bytes:
        """Return the JSON for log files; without what says nothing in them, so that earlier versions read it."""
        data = wire.plain(self)
        if not self.doubtful:
            del data["doubtful"]
        if self.unit == NODE:
            del data["unit"]
        if not self.partitions:
            del data["partitions"]
        return wire.encode(data)

    def and_then(self, step: str) -> LogProvenance:
        """Give the same story with one more step."""
        return msgspec.structs.replace(self, steps=(*self.steps, step))

    def with_counts(self, counts: Mapping[str, int]) -> LogProvenance:
        """Give the same story with further counts."""
        return msgspec.structs.replace(self, counts={**self.counts, **counts})
