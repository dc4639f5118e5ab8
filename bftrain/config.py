"""Settings of the decision core, and their TOML form: unknown keys are refused with the nearest known name."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from bftrain.errors import BadConfig, BadInput, suggestion
from bftrain.values import checks, wire

S = TypeVar("S", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How decisions are made. With these and the same events, every decision repeats."""

    solver: str = "exact"
    fallback: str = "greedy"  # asked when the solver fails or runs out of time; "" for none
    objective: str = "throughput"
    admission: str = "first-come"
    placement: str = "grouped"
    horizon_s: float = 120.0  # how far ahead speed counts against the cost of rescaling
    max_tasks: int = 35  # how many tasks may compete
    solver_deadline_s: float = 10.0
    solver_gap: float = 0.0
    solver_threads: int = 1
    max_failures: int = 3  # after so many failures a task is given up

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("solver", "objective", "admission", "placement"):
            checks.text(self, name)
        if self.fallback != "":
            checks.text(self, "fallback")
        checks.number(self, "horizon_s", above=0.0)
        checks.integer(self, "max_tasks", at_least=1)
        checks.number(self, "solver_deadline_s", above=0.0)
        checks.number(self, "solver_gap", at_least=0.0)
        checks.integer(self, "solver_threads", at_least=1)
        checks.integer(self, "max_failures", at_least=1)


def settings_from(path: Path | None, given: Mapping[str, object]) -> Settings:
    """Settings of a configuration file, overridden by options that were ``given`` (not ``None``)."""
    return merged(path, given, Settings)


def merged(path: Path | None, given: Mapping[str, object], kind: type[S]) -> S:
    """Like :func:`settings_from`, for settings of any ``kind``."""
    settings = load(path, kind) if path else kind()
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes)


def load(path: Path, kind: type[S]) -> S:
    """Read ``kind`` from a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", where=str(path)) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{path}:{line[1]}" if line else str(path)
        raise BadConfig(f"is not valid TOML: {error}", where=where) from error
    return from_mapping(data, kind, where=str(path), text=text)


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
    """Give flat settings as TOML, what is ``None`` left out. A JSON string, number or boolean is TOML as it stands."""
    data: Mapping[str, object] = wire.plain(settings)
    told = ((key, value) for key, value in data.items() if value is not None)
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in told)


def _line(where: str, text: str, key: str) -> str:
    if not key:
        return where
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]", line):
            return f"{where}:{number}"
    return where
