"""Catalogue of measured models: bundled, or from profile files, Gavel's tables and AdaptDL's tables.

AdaptDL (Pollux) publishes for each of its models a table ``*_scalability.csv``: ``num_nodes``, ``num_replicas`` (GPUs),
``local_bsz`` (samples per GPU and step) and ``step_time`` (s).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput, UnknownName
from bftrain.files import CsvFile
from bftrain.taskfiles.profile_files import load_profiles
from bftrain.taskfiles.records import Profile, profiles
from bftrain.values.batch_scaling import BatchScaling
from bftrain.values.curve import SpeedCurve
from bftrain_datasets.workloads.generator import models_of
from bftrain_datasets.workloads.speed_table import load_speed_table

SCALABILITY: Final = ("num_nodes", "num_replicas", "local_bsz", "step_time")
# Upper limit of the fixed share: part of every step depends on the batch size, so larger shares are noise
_LARGEST_SHARE: Final = 0.99
_SUFFIX: Final = "_scalability"
_PREFIX: Final = "adaptdl_"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueOptions:
    """Options for files.

    ``node_kind`` is the kind to read from a Gavel table; ``by_hosts`` keeps its separate speeds for jobs on several
    hosts. ``noise_scale`` is the gradient noise scale in samples for AdaptDL tables, by model; the empty name is the
    default.
    """

    node_kind: str | None = None
    by_hosts: bool = False
    noise_scale: Mapping[str, float] = field(default_factory=dict)


def catalogue(files: Iterable[Path], options: CatalogueOptions | None = None) -> dict[str, Profile]:
    """Return the models of these files by name, or the bundled ones without files."""
    options = options or CatalogueOptions()
    found: dict[str, Profile] = {}
    for path in files:
        for each in _read(path, options):
            if each.name in found:
                fix = "omit one of the files, or rename the model"
                raise BadInput(f"the model '{each.name}' is also in another file", where=str(path), fix=fix)
            found[each.name] = each
    return found or dict(profiles())


def _read(path: Path, options: CatalogueOptions) -> tuple[Profile, ...]:
    if path.suffix.lower() == ".toml":
        return load_profiles(path)
    if path.suffix.lower() == ".csv":
        return (_scalability(path, options),)
    table = load_speed_table(path)
    kind = table.kind(options.node_kind)
    source = f"{path.name}: {kind}, steps/s"
    return tuple(
        Profile(
            name=model.name, curve=model.curve, grow_cost_s=0.0, shrink_cost_s=0.0, source=source, spread=model.spread
        )
        for model in models_of(table, (kind,), by_hosts=options.by_hosts)
    )


def _scalability(path: Path, options: CatalogueOptions) -> Profile:
    """Read an AdaptDL table: speed by GPUs, at the largest batch size per GPU that was measured at every GPU count.

    If a number of GPUs has several placements, the placement on the fewest nodes counts.
    """
    step_s = step_times(path)
    taken = {gpus: (nodes, gpus) for nodes, gpus in sorted(step_s, reverse=True)}  # the fewest nodes are last
    batch = max(set.intersection(*(set(step_s[place]) for place in taken.values())), default=0)
    if not batch:
        raise BadInput("no batch size was measured at every GPU count", where=str(path), fix="choose another table")
    name = path.stem.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    points = sorted((gpus, gpus * batch / step_s[place][batch]) for gpus, place in taken.items())
    curve = SpeedCurve(nodes=tuple(size for size, _ in points), rate=tuple(rate for _, rate in points))
    noise = options.noise_scale.get(name, options.noise_scale.get(""))
    scaling = None
    if noise is not None:
        smallest, largest = taken[min(taken)], taken[max(taken)]
        scaling = BatchScaling(
            initial=min(step_s[smallest]),
            noise_scale=noise,
            largest=largest[1] * max(step_s[largest]),
            per_node=batch,
            fixed_share=fixed_share(step_s[smallest], curve),
        )
    source = f"{path.name}: sizes in GPUs, batch {batch} per GPU"
    return Profile(name=name, curve=curve, grow_cost_s=0.0, shrink_cost_s=0.0, source=source, batch=scaling)


def fixed_share(step_s: Mapping[int, float], curve: SpeedCurve) -> float:
    """Return the share of a step that is independent of the batch size, from the smallest and the largest batch.

    ``step_s`` maps samples per GPU to seconds per step, at the smallest number of GPUs. With only one batch size, the
    share is unknown: return 0.
    """
    few, many = min(step_s), max(step_s)
    if few == many:
        return 0.0
    sample_s = (step_s[many] - step_s[few]) / (many - few)
    most = max(rate / size for size, rate in zip(curve.nodes, curve.rate, strict=True))
    return min(max(0.0, 1.0 - sample_s * most), _LARGEST_SHARE)


def step_times(path: Path) -> Mapping[tuple[int, int], dict[int, float]]:
    """Return seconds per step by nodes and GPUs, and by batch size; the mean of repeated measurements."""
    rows = CsvFile(path)
    header = [cell.strip() for cell in rows.header]
    missing = [name for name in SCALABILITY if name not in header]
    if missing:
        fix = "use a profile file (.toml), a table of Gavel (.json), or a *_scalability.csv of AdaptDL"
        raise BadInput(f"is not a scalability table: missing {', '.join(missing)}", where=str(path), fix=fix)
    found: dict[tuple[int, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cells in rows.rows():
        row = dict(zip(header, cells, strict=False))
        try:
            nodes, gpus, batch = (int(row[name]) for name in SCALABILITY[:3])
            step_s = float(row["step_time"])
        except (KeyError, ValueError) as error:
            raise BadInput(
                f"{error} is unreadable", where=rows.where, fix="write whole numbers, and seconds"
            ) from error
        if not (nodes >= 1 and gpus >= nodes and batch >= 1 and 0.0 < step_s < float("inf")):
            raise BadInput("has an impossible count or time", where=rows.where, fix="remove the row")
        found[nodes, gpus][batch].append(step_s)
    if not found:
        raise BadInput("has no rows", where=str(path), fix="use a table with measurements")
    from statistics import mean  # noqa: PLC0415 - few commands read measurements, and this takes 1 ms

    return {place: {batch: mean(each) for batch, each in batches.items()} for place, batches in found.items()}


def chosen(known: Mapping[str, Profile], name: str) -> Profile:
    """Return the model of this name; the error for an unknown name lists the known names."""
    if name not in known:
        raise UnknownName.among("profile", name, known)
    return known[name]
