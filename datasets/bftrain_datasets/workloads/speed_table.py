"""Gavel's throughput table: steps per second of a model on a kind of node, for each gang that was measured.

``{kind: {"('model', gang)": {"null": steps/s, "('other', 1)": [...]}}}``: what stands under ``null`` is the job alone,
the rest are pairs that share a GPU, and not read. Older tables write the gang as ``model (scale factor 2)``, or not at
all where it is 1.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from bftrain.errors import BadInput, UnknownName
from bftrain.files import LARGEST_TEXT_BYTES
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bftrain_datasets.log.provenance import ProvenanceSource

ALONE: Final = "null"
USUAL_KIND: Final = "v100"  # on which Gavel measures how long a job should take
_KEYS: Final = (
    re.compile(r"""\(\s*(?P<quote>['"])(?P<model>.*)(?P=quote)\s*,\s*(?P<gang>\d{1,9})\s*\)"""),
    re.compile(r"(?P<model>.*\S)\s*\(scale factor (?P<gang>\d{1,9})\)"),
)
_FORM: Final = """give a table such as {"v100": {"('ResNet-18 (batch size 64)', 1)": {"null": 24.1}}}"""


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """``rates`` of ``[kind][model][gang]`` in steps/s; 0 says that the model does not fit on so few nodes."""

    rates: Mapping[str, Mapping[str, Mapping[int, float]]]
    source: ProvenanceSource

    def kind(self, wanted: str | None) -> str:
        """Give the kind of node that is wanted: if none is named the only one, or the usual one."""
        if wanted is not None:
            if wanted not in self.rates:
                raise UnknownName.among("kind of node", wanted, self.rates, where=self.source.name)
            return wanted
        if len(self.rates) == 1:
            return next(iter(self.rates))
        if USUAL_KIND in self.rates:
            return USUAL_KIND
        raise BadInput(
            f"has speeds of several kinds of nodes: {', '.join(self.rates)}",
            where=self.source.name,
            fix="choose one of them with --node-kind",
        )

    def all_kinds(self, wanted: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Give the kinds that are wanted, or all, the usual one first: it stands in where nodes have no kinds."""
        named = dict.fromkeys(self.kind(each) for each in wanted or self.rates)
        return tuple(sorted(named, key=lambda kind: kind != USUAL_KIND)) if not wanted else tuple(named)


def load_speed_table(path: Path) -> SpeedTable:
    """Read a table, packed or not."""
    where = str(path)
    with RawFile(path, FindingsTally()) as file:
        content = file.binary().read(LARGEST_TEXT_BYTES + 1)
        if len(content) > LARGEST_TEXT_BYTES:
            raise BadInput("too large for a throughput table", where=where, fix=_FORM)
        source = file.source()
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", where=where, fix=_FORM) from error
    return SpeedTable(_rates(document, where), source)


def _rates(document: object, where: str) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    kinds = _mapping(document, where)
    if not kinds:
        raise BadInput("names no kind of node", where=where, fix=_FORM)
    return MappingProxyType(
        {kind: _models(_mapping(rows, f"{where}: {kind}"), f"{where}: {kind}") for kind, rows in kinds.items()}
    )


def _models(rows: Mapping[str, object], where: str) -> Mapping[str, Mapping[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for key, speeds in rows.items():
        place = f"{where}: {key[:80]}"
        model, gang = _parsed(key, place)
        rate = _mapping(speeds, place).get(ALONE)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < math.inf:
            raise BadInput(
                f"{ALONE}: {rate!r:.40} is no speed", where=place, fix="give steps/s, or 0 if it does not fit"
            )
        gangs = found.setdefault(model, {})
        if gang in gangs:
            raise BadInput(f"the gang {gang} of '{model}' stands there twice", where=place, fix="leave one of them out")
        gangs[gang] = float(rate)
    return MappingProxyType({model: MappingProxyType(dict(sorted(gangs.items()))) for model, gangs in found.items()})


def _parsed(key: str, where: str) -> tuple[str, int]:
    """Take a key apart; it is text, and never run."""
    match = next((match for pattern in _KEYS if (match := pattern.fullmatch(key.strip()))), None)
    model, gang = (match["model"], int(match["gang"])) if match else (key.strip(), 1)
    if not model or not 1 <= gang <= MOST_NODES:
        raise BadInput("names no model with a gang of at least 1", where=where, fix=_FORM)
    return model, gang


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"must be an object, not {value!r:.40}", where=where, fix=_FORM)
    return value
