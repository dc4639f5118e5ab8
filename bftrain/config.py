"""Settings of the decision core, and their TOML form: unknown keys are refused with the nearest known name."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bftrain.deciding.node_stay import AUTO
from bftrain.errors import BadConfig, BadInput, suggestion
from bftrain.values import checks, wire
from bftrain.values.mapped import Mapped
from bftrain.values.sharing import Entity

S = TypeVar("S", bound=msgspec.Struct)

# The settings that only a replay has, and their defaults: the core skips them in the config.toml of a replay.
# bftrain_replay.simulation.replay_settings declares them; a test keeps the two alike.
ONLY_IN_REPLAYS: Final[Mapping[str, object]] = {
    "semantics": "realistic",
    "events": "all",
    "window": "",
    "nodes": "",
    "skip_events": 0,
    "decision_latency_s": 0.0,
    "min_interval_s": 0.0,
    "grow_cost_s": None,
    "shrink_cost_s": None,
    "start_cost_s": None,
    "cost_factor": 1.0,
    "progress": "memory",
    "checkpoint_interval_s": None,
    "seed": 0,
    "metrics": "",
}

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key of TOML that needs no quotes


class Settings(Mapped, frozen=True, kw_only=True):
    """How decisions are made. With these and the same events, every decision repeats.

    ``entities`` are the users who share by weight or have a quota, those not named have weight 1 and no quota;
    ``prices`` is what a node of a kind costs, 1 if not named. A shares file holds both (docs/admission.md).
    """

    solver: str = "exact"
    fallback: str = "greedy"  # asked when the solver fails or runs out of time; "" for none
    objective: str = "throughput"
    admission: str = "first-come"
    placement: str = AUTO  # which nodes: neighbours, and by the published rules grouped
    horizon_s: float | str = AUTO  # how far ahead speed counts against the cost of rescaling
    max_tasks: int = 35  # how many tasks may compete
    solver_deadline_s: float = 10.0
    solver_gap: float = 0.0
    solver_threads: int = 1
    max_failures: int = 3  # after so many failures a task is given up
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("solver", "objective", "admission", "placement"):
            checks.text(self, name)
        if self.fallback != "":
            checks.text(self, "fallback")
        _check_horizon(self)
        checks.integer(self, "max_tasks", at_least=1)
        checks.number(self, "solver_deadline_s", above=0.0)
        checks.number(self, "solver_gap", at_least=0.0)
        checks.integer(self, "solver_threads", at_least=1)
        checks.integer(self, "max_failures", at_least=1)
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")


def _check_horizon(settings: Settings) -> None:
    if isinstance(settings.horizon_s, str):
        checks.instead_of_seconds(settings, "horizon_s", AUTO)
    else:
        checks.number(settings, "horizon_s", above=0.0)


def settings_from(path: Path | None, given: Mapping[str, object]) -> Settings:
    """Settings of a configuration file, overridden by options that were ``given`` (not ``None``)."""
    return merged(path, given, Settings)


def merged(path: Path | None, given: Mapping[str, object], kind: type[S], others: Collection[str] = ()) -> S:
    """Like :func:`settings_from`, for settings of any ``kind``; ``others`` may stand in the file and are left out."""
    settings = load(path, kind, others) if path else kind()
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes)


def load(path: Path, kind: type[S], others: Collection[str] = ()) -> S:
    """Read ``kind`` from a TOML file; keys among ``others`` are left out."""
    text = read(path)
    data = parsed(text, str(path))
    return from_mapping({key: data[key] for key in data if key not in others}, kind, where=str(path), text=text)


def read(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", where=str(path)) from error


def parsed(text: str, where: str) -> dict[str, object]:
    """Parse TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise BadConfig(f"is not valid TOML: {error}", where=f"{where}:{line[1]}" if line else where) from error


def from_mapping(data: Mapping[str, object], kind: type[S], *, where: str, text: str = "") -> S:
    """Read ``kind`` from parsed TOML; ``text`` is the source, to give line numbers from."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in data:
        if key not in known:
            raise BadConfig(f"unknown key '{key}'", where=_line(where, text, key), fix=suggestion(key, known))
    try:
        return wire.convert(data, kind)
    except BadInput as error:
        culprit = next((key for key in data if re.search(rf"[`.]{key}\b", error.what)), "")
        raise BadConfig(error.what, where=_line(where, text, culprit)) from error


def dump(settings: msgspec.Struct) -> str:
    """Give settings as TOML, what is ``None`` and empty tables left out."""
    return _table((), wire.plain(settings))


def _table(path: tuple[str, ...], data: Mapping[str, object]) -> str:
    """Give a table, and after it those inside it. A JSON string, number or boolean is TOML as it stands."""
    inner = {key: value for key, value in data.items() if isinstance(value, dict)}
    plain = [(key, value) for key, value in data.items() if value is not None and key not in inner]
    heading = f"\n[{'.'.join(map(_key, path))}]\n" if path and (plain or not inner) else ""
    lines = "".join(f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in plain)
    return heading + lines + "".join(_table((*path, key), value) for key, value in inner.items() if value or path)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _line(where: str, text: str, key: str) -> str:
    if not key:
        return where
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]", line):
            return f"{where}:{number}"
    return where
