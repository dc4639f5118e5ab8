"""Gavel's throughput table: steps per second of a model on a node kind, for each measured gang size.

``{kind: {"('model', gang)": {"null": steps/s, "('other', 1)": [...]}}}``: the entry ``null`` is the job alone, further
entries are pairs that share a GPU. Older tables write the gang as ``model (scale factor 2)``, or omit a gang of 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from bftrain.errors import BadInput, BadValue, UnknownName
from bftrain.files import LARGEST_TEXT_BYTES
from bftrain.nodesets import MOST_NODES
from bftrain.values.curve import ANY_KIND, SpeedCurve
from bftrain.values.sharing import PairSpeeds
from bftrain.values.spread import SpreadSpeed, SpreadSpeeds
from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.findings import FindingsTally, SkippedRow
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.log.provenance import ProvenanceSource
from bftrain_datasets.workloads.job import TrainingJob, short

ALONE: Final = "null"
USUAL_KIND: Final = "v100"  # reference kind of Gavel's durations
APART: Final = "_unconsolidated"  # suffix of a node kind for gangs on several hosts
_KEYS: Final = (
    re.compile(r"""\(\s*(?P<quote>['"])(?P<model>.*)(?P=quote)\s*,\s*(?P<gang>\d{1,9})\s*\)"""),
    re.compile(r"(?P<model>.*\S)\s*\(scale factor (?P<gang>\d{1,9})\)"),
)
_FORM: Final = """use a table such as {"v100": {"('ResNet-18 (batch size 64)', 1)": {"null": 24.1}}}"""


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """``rates`` by ``[kind][model][gang]`` in steps/s; 0 means that the model needs a larger gang."""

    rates: Mapping[str, Mapping[str, Mapping[int, float]]]
    source: ProvenanceSource

    def kind(self, wanted: str | None) -> str:
        """Return the requested node kind; by default the only kind, or the usual kind."""
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
            fix="select one by --set node-kind=KIND",
        )

    def all_kinds(self, wanted: tuple[str, ...] = (), *, by_hosts: bool = False) -> tuple[str, ...]:
        """Return the requested kinds in their order, or all kinds, the usual kind first.

        With ``by_hosts``, the speeds on several hosts are not separate kinds.
        """
        every = [kind for kind in self.rates if not (by_hosts and kind.endswith(APART))]
        named = dict.fromkeys(self.kind(each) for each in wanted or every)
        return tuple(sorted(named, key=lambda kind: kind != USUAL_KIND)) if not wanted else tuple(named)

    def spread(self, model: str, kinds: Sequence[str]) -> SpreadSpeeds | None:
        """Return a model's speeds on several hosts, by kind; a single kind applies to nodes of any kind."""
        known = {kind: self.rates.get(f"{kind}{APART}", {}).get(model) for kind in kinds}
        speeds = tuple(
            SpreadSpeed(kind=kind if len(kinds) > 1 else ANY_KIND, curve=_curve(tuple(points.items())))
            for kind, points in known.items()
            if points
        )
        return SpreadSpeeds(speeds=speeds) if speeds else None


def load_speed_table(path: Path) -> SpeedTable:
    """Load a table, compressed or not."""
    document, source = _document(path)
    return SpeedTable(_rates(document, str(path)), source)


def load_pair_speeds(path: Path) -> tuple[PairSpeeds, ...]:
    """Load the speeds of pairs in a table, by model name as in imported tasks."""
    found: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
    for kind, rows in _mapping(_document(path)[0], str(path)).items():
        for key, speeds in _mapping(rows, f"{path}: {kind}").items():
            one, gang = _model_of(key, str(path))
            for other_key, pair in _mapping(speeds, f"{path}: {key[:80]}").items():
                if other_key == ALONE:
                    continue
                other, others = _model_of(other_key, str(path))
                if one <= other and gang == others:
                    found.setdefault((short(one), short(other), gang), {})[kind] = pair
    if not found:
        raise BadInput(
            "has no speeds of pairs",
            where=str(path),
            fix="""write steps/s such as {"v100": {"('A', 1)": {"('B', 1)": [11.3, 8.2]}}}""",
        )
    return tuple(PairSpeeds(models=key[:2], nodes=key[2], speeds=speeds) for key, speeds in found.items())


def _document(path: Path) -> tuple[object, ProvenanceSource]:
    where = str(path)
    with RawFile(path, FindingsTally()) as file:
        content = file.binary().read(LARGEST_TEXT_BYTES + 1)
        if len(content) > LARGEST_TEXT_BYTES:
            raise BadInput("too large for a throughput table", where=where, fix=_FORM)
        source = file.source()
    try:
        return json.loads(content), source
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", where=where, fix=_FORM) from error


def _model_of(key: str, where: str) -> tuple[str, int]:
    """Parse a key into a model and a gang; the text is never executed."""
    match = next((match for pattern in _KEYS if (match := pattern.fullmatch(key.strip()))), None)
    model, gang = (match["model"], int(match["gang"])) if match else (key.strip(), 1)
    if not model or not 1 <= gang <= MOST_NODES:
        raise BadInput("has no model with a gang of at least 1", where=f"{where}: {key[:80]}", fix=_FORM)
    return model, gang


def _rates(document: object, where: str) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    kinds = _mapping(document, where)
    if not kinds:
        raise BadInput("has no node kind", where=where, fix=_FORM)
    return MappingProxyType(
        {kind: _models(_mapping(rows, f"{where}: {kind}"), f"{where}: {kind}") for kind, rows in kinds.items()}
    )


def _models(rows: Mapping[str, object], where: str) -> Mapping[str, Mapping[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for key, speeds in rows.items():
        place = f"{where}: {key[:80]}"
        model, gang = _model_of(key, where)
        rate = _mapping(speeds, place).get(ALONE)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= sys.float_info.max:
            raise BadInput(
                f"{ALONE}: {rate!r:.40} is not a speed", where=place, fix="write steps/s, or 0 if it does not fit"
            )
        gangs = found.setdefault(model, {})
        if gang in gangs:
            raise BadInput(f"the gang {gang} of '{model}' occurs twice", where=place, fix="remove one")
        gangs[gang] = float(rate)
    return MappingProxyType({model: MappingProxyType(dict(sorted(gangs.items()))) for model, gangs in found.items()})


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"must be an object, not {value!r:.40}", where=where, fix=_FORM)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSizing:
    """Turns jobs into tasks, with speeds on the node kinds in ``rates``; a single kind stands for all nodes.

    Gangs count GPUs, of which ``per_node`` make a node. Jobs that need more than ``nodes`` nodes are skipped; with
    ``elastic`` all measured gangs are allowed. ``reference`` has the speeds for the ideal duration; ``spread``
    returns a model's speeds by hosts, if they count.
    """

    rates: Mapping[str, Mapping[str, Mapping[int, float]]]
    reference: Mapping[str, Mapping[int, float]]
    elastic: bool
    per_node: int
    nodes: int | None
    spread: Callable[[str], SpreadSpeeds | None] = lambda _: None

    def task(self, job: TrainingJob) -> TaskSpec:
        """Return a job as a task; raise :class:`SkippedRow` if it cannot run here.

        Work is counted in steps if speeds are steps/s, and in seconds if only a duration is known: then the speed is 1
        on the requested nodes.
        """
        sizes: dict[str, Any]
        if job.duration_s is not None:
            size, ideal_s = job.nodes or -(-job.gang // self.per_node), job.duration_s
            sizes = {"curve": _curve(((size, 1.0),)), "min_nodes": size, "max_nodes": size, "work_samples": ideal_s}
        else:
            sizes, ideal_s = self._measured(job, job.steps or 0.0)
        if self.nodes is not None and sizes["min_nodes"] > self.nodes:
            raise SkippedRow("does_not_fit")
        try:
            return TaskSpec(
                name=job.name,
                submit_s=job.submit_s,
                weight=job.weight,
                deadline_s=None if job.slack is None else job.submit_s + job.slack * ideal_s,
                user=job.user,
                **sizes,
            )
        except BadValue as error:
            raise SkippedRow("malformed") from error

    def _measured(self, job: TrainingJob, steps: float) -> tuple[dict[str, Any], float]:
        """Return sizes, speeds and work of a job with a model, and its ideal duration in seconds."""
        points = {kind: self._points(job, rates.get(job.model, {})) for kind, rates in self.rates.items()}
        fitting = {kind: [size for size, each in found.items() if each > 0] for kind, found in points.items()}
        fitting = {kind: sizes for kind, sizes in fitting.items() if sizes}
        if not fitting:
            raise SkippedRow("does_not_fit")
        curves = {kind: _curve(tuple(points[kind].items())) for kind in fitting}
        ideal = (
            self.reference.get(job.model, {}).get(job.gang)
            or next(filter(None, (rates.get(job.model, {}).get(job.gang) for rates in self.rates.values())), 0.0)
            or max(rate for found in points.values() for rate in found.values())
        )
        largest = max(sizes[-1] for sizes in fitting.values())
        sizes = {
            "curve": next(iter(curves.values())),
            "curves": curves if len(self.rates) > 1 else {},
            "spread": self.spread(job.model) if largest > 1 else None,
            "min_nodes": min(sizes[0] for sizes in fitting.values()),
            "max_nodes": largest,
            "work_samples": steps,
        }
        return sizes, steps / ideal

    def _points(self, job: TrainingJob, gangs: Mapping[int, float]) -> dict[int, float]:
        if self.elastic:
            return {gang // self.per_node: each for gang, each in gangs.items() if gang % self.per_node == 0}
        rate = gangs.get(job.gang)
        return {} if rate is None else {-(-job.gang // self.per_node): rate}


@lru_cache(maxsize=1024)
def _curve(points: tuple[tuple[int, float], ...]) -> SpeedCurve:
    """Return the measured points unchanged, monotone or not."""
    return SpeedCurve(nodes=tuple(size for size, _ in points), rate=tuple(rate for _, rate in points))
