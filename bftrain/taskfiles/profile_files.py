"""Profile files: measured models, such as ``bftrain train --save-profile`` writes, in TOML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bftrain import toml_io
from bftrain.errors import BadInput, UnknownName
from bftrain.files import check_replaceable, whole_file, whole_text
from bftrain.taskfiles.files import MADE_BY, is_own_profiles
from bftrain.taskfiles.records import Profile, batch_of, batch_record, curve_of, spread_of, spread_record
from bftrain.values.checks import repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KIND: Final = "profile file"
_COSTS: Final = ("grow_cost_s", "shrink_cost_s", "start_cost_s")
_KEYS: Final = ("name", "nodes", "rate", *_COSTS, "source", "batch", "spread")
_FIX: Final = 'write [[profile]] tables such as: name = "cnn", nodes = [1, 2], rate = [90.0, 170.0]'


def load_profiles(path: Path) -> tuple[Profile, ...]:
    """Load the profiles of a file, in order."""
    document = toml_io.parse(whole_text(path, KIND), str(path), fix=_FIX)
    rows = document.pop("profile", [])
    if document or not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput("must contain only [[profile]] tables", where=str(path), fix=_FIX)
    found = [_profile(row, f"{path}: profile {number}") for number, row in enumerate(rows, start=1)]
    twice = repeated([profile.name for profile in found])
    if twice is not None:
        raise BadInput(f"'{twice}' occurs twice", where=str(path), fix="give every profile a name of its own")
    return tuple(found)


def save_profiles(profiles: Iterable[Profile], path: Path) -> None:
    """Save profiles; the file appears complete or not at all."""
    check_profiles_name(path)
    parts = [f"# {MADE_BY}\n"]
    for each in profiles:
        row: dict[str, object] = {"name": each.name, "nodes": each.curve.nodes, "rate": each.curve.rate}
        row |= {key: getattr(each, key) for key in (*_COSTS, "source")}
        tables: dict[str, object] = {} if each.batch is None else {"batch": batch_record(each.batch)}
        if each.spread is not None:
            tables["spread"] = spread_record(each.spread)
        rest = "".join(f"{key} = {toml_io.value(value)}\n" for key, value in tables.items())
        parts.append("\n[[profile]]\n" + toml_io.table(row) + rest)
    with whole_file(path) as file:
        file.write("".join(parts).encode())


def check_profiles_name(path: Path) -> None:
    """Raise an error, before any work, for a file name that profiles cannot be saved under, or a foreign file."""
    if path.suffix.lower() != ".toml":
        raise BadInput("is not a name for a profile file", where=str(path), fix="use the suffix .toml")
    check_replaceable(path, is_own_profiles, "profile file")


def _profile(row: Mapping[str, Any], where: str) -> Profile:
    for key in row:
        if key not in _KEYS:
            raise UnknownName.among("key of a profile", key, _KEYS, where=where)
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise BadInput("has no name", where=where, fix=_FIX)
    for key in _COSTS:
        cost = row.get(key, 0.0)
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0.0 <= cost < float("inf"):
            raise BadInput(f"{key}: {cost!r} is not a number of seconds", where=f"{where} '{name}'", fix=_FIX)
    costs = {key: float(row[key]) for key in _COSTS if key in row}
    curve = curve_of({key: row[key] for key in ("nodes", "rate") if key in row}, f"{where} '{name}'")
    batch = batch_of(row["batch"], f"{where} '{name}'") if "batch" in row else None
    spread = spread_of(row["spread"], f"{where} '{name}'") if "spread" in row else None
    known: dict[str, Any] = {**dict.fromkeys(_COSTS[:2], 0.0), **costs, "source": str(row.get("source", ""))}
    return Profile(name=name, curve=curve, batch=batch, spread=spread, **known)
