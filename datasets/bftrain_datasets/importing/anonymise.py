"""Anonymous logs: they show when nodes were idle, but neither node names nor the log's origin.

Nodes are renamed by a keyed hash. A node has the same pseudonym in all logs anonymised with the same key, and the names
cannot be guessed by trial. Nodes are sorted by pseudonym, because the old order may reveal their place in the machine.
Only figures, and the name of a built-in reader or generator, are kept from the log's provenance.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from secrets import token_bytes
from typing import Final

import numpy as np
from msgspec.structs import replace as replace_struct

from bftrain.node_units import NODE, node_of
from bftrain.nodesets import natural_order
from bftrain.registry import BUILT_IN
from bftrain_datasets.importing.findings import ASIDE, HAZARDS, READ, USED
from bftrain_datasets.log.eventlog import COUNTS, EventLog, LogBuilder
from bftrain_datasets.log.provenance import LogFinding, LogProvenance

KEY_BYTES: Final = 32
STEP: Final = "nodes were renamed by a keyed hash and sorted by their new names"
SHIFTED: Final = "times were shifted: the log starts at 0"
_PURPOSE: Final = b"bftrain node 1\n"  # separates these hashes from other uses of the key
_NAME_BYTES: Final = 8
_MAKERS: Final = frozenset(
    {"hand", "generator summit-like", *(f"reader {name}" for name in ("csv", "parquet", *BUILT_IN["reader"]))}
)
# A plug-in's reason may contain a name
_KNOWN_COUNTS: Final = frozenset({*COUNTS, READ, USED, *(f"{ASIDE}{reason}" for reason in HAZARDS)})


def new_key() -> bytes:
    """Return a random key."""
    return token_bytes(KEY_BYTES)


def pseudonym(name: str, key: bytes, unit: str = NODE) -> str:
    """Return the pseudonym of a node name under this key.

    A GPU or core keeps its number, which keeps the slots of a node together.
    """
    node = node_of(name) if unit != NODE else name
    if node != name:
        return f"{pseudonym(node, key)}{name[len(node) :]}"
    return f"n{hmac.digest(key, _PURPOSE + name.encode(), 'sha256')[:_NAME_BYTES].hex()}"


def anonymised(log: EventLog, key: bytes, *, shift_times: bool = False) -> EventLog:
    """Return the log without names; with ``shift_times`` it starts at 0, which hides its dates."""
    names = [pseudonym(name, key, log.unit) for name in log.node_names]
    order = np.array(sorted(range(len(names)), key=lambda place: natural_order(names[place])))
    if log.unit == NODE:
        order = np.argsort(names)
    builder = LogBuilder(names[place] for place in order.tolist())
    places = np.empty(len(names), dtype=np.int32)
    places[order] = np.arange(len(names), dtype=np.int32)
    offset_s = log.start_s if shift_times else 0.0
    builder.add_columns(log.times[log.time_index] - offset_s, places[log.nodes], log.states)
    made = builder.build(begin_s=log.start_s - offset_s, end_s=log.end_s - offset_s)
    kinds = log.node_kinds[order] if log.kind_names else log.node_kinds  # kept, because task files have speeds by kind
    story = LogProvenance(
        made_by=log.provenance.made_by if log.provenance.made_by in _MAKERS else "another reader",
        counts={name: count for name, count in log.provenance.counts.items() if name in _KNOWN_COUNTS},
        findings=tuple(
            LogFinding(name=each.name, count=each.count, node_s=each.node_s)
            for each in log.provenance.findings
            if each.name in HAZARDS
        ),
        doubtful=tuple(
            replace_struct(each, times=tuple(at_s - offset_s for at_s in each.times))
            for each in log.provenance.doubtful
        ),
        steps=(STEP, SHIFTED) if shift_times else (STEP,),
        unit=log.unit,
    )
    return replace(made, kind_names=log.kind_names, node_kinds=kinds, provenance=story)
