"""The options that a sweep can vary: settings of a replay or of rounds, nodes, tasks and the baseline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bftrain import toml_io
from bftrain.durations import parse_duration
from bftrain.errors import BadConfig, suggestion
from bftrain.files import whole_text
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.replay_settings import ReplaySettings

Key = str | int  # a name, or the index of a table among several of the same name

KIND: Final = "sweep file"
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


class TomlDocument:
    """The content of a file, or a Python mapping; ``name`` is the prefix of its error messages."""

    def __init__(self, data: Mapping[str, Any], *, name: str, folder: Path, text: str = "") -> None:
        self.data = data
        self.name = name
        self.folder = folder  # base folder of relative paths
        found: dict[tuple[Key, ...], int] = {}
        counts: dict[tuple[Key, ...], int] = {}
        section: tuple[Key, ...] = ()
        for number, line in enumerate(text.splitlines(), start=1):
            header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
            if header:
                section = tuple(_names(header[2]))
                if header[1] == "[[":
                    place = counts.get(section, 0)
                    counts[section] = place + 1
                    section = (*section, place)
                found.setdefault(section, number)
            elif assignment:
                found.setdefault((*section, *_names(assignment[1])), number)
        self._lines = found

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """Read a TOML file."""
        text = whole_text(path, KIND)
        return cls(toml_io.parse(text, str(path)), name=str(path), folder=path.parent, text=text)

    def where(self, *keys: Key) -> str:
        """Return the line of the key, or of the nearest thing around it, and the key."""
        shown = ".".join(str(key) if isinstance(key, str) else f"{key + 1}" for key in keys)
        for length in range(len(keys), 0, -1):
            line = self._lines.get(keys[:length])
            if line is not None:
                return f"{self.name}:{line}: {shown}"
        return f"{self.name}: {shown}" if shown else self.name

    def wrong(self, what: str, *keys: Key, fix: str | None = None) -> BadConfig:
        """Build the error about a key."""
        return BadConfig(what, where=self.where(*keys), fix=fix)


def _names(dotted: str) -> Sequence[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", dotted)]


Value = str | int | float

LOG: Final = "log"
CLUSTER: Final = "cluster"
TASKS: Final = "tasks"
BASELINE: Final = "baseline"
SEED: Final = "seed"
OBJECTIVE: Final = "objective"
POLICY: Final = "policy"
ADMISSION: Final = "admission"
METRICS: Final = "metrics"
MEASURE: Final = "measure"
ROUND: Final = "round_s"  # a round length requests rounds
UNTIL: Final = "until_s"
INPUTS: Final = (LOG, CLUSTER, TASKS, BASELINE)
GENERATED: Final = (LOG, TASKS)  # generated inputs have separate options: log.nodes, tasks.arrivals_per_hour
# whole-number options of generated inputs
_WHOLE: Final = frozenset({"nodes", "count", "min_nodes", "max_nodes", "users", "burst_size", "seed"})
SETTINGS: Final = tuple(dict.fromkeys((*ReplaySettings.__struct_fields__, *RoundSettings.__struct_fields__)))
OPTIONS: Final = (*INPUTS, *SETTINGS)

LINEAR: Final = "linear"
LOGARITHMIC: Final = "log"
MOST_VALUES: Final = 100_000
_RANGE_KEYS: Final = ("from", "to", "steps", "step", "scale")
_DEFAULTS: Final = ReplaySettings()
_SLACK: Final = 1e-9  # tolerance: 0.1 + 0.1 + 0.1 must reach 0.3
_DIGITS: Final = 12  # digits of a range value: 0.3, not 0.30000000000000004


def is_whole(option: str) -> bool:
    """Return whether the values of an option are integers."""
    if input_of(option):
        return option.partition(".")[2] in _WHOLE
    return option == CLUSTER or type(getattr(_DEFAULTS, option, None)) is int


def input_of(option: str) -> str:
    """Return the input that an option belongs to: ``tasks`` for ``tasks.count``; "" for other options."""
    of, dot, _ = option.partition(".")
    return of if dot and of in GENERATED else ""


def flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their names; TOML makes a table ``tasks`` of ``tasks.count = [1, 2]``."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in GENERATED and isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def check_option(document: TomlDocument, option: str, *keys: Key) -> None:
    """Raise for options that no replay has."""
    if option not in OPTIONS and not input_of(option):
        raise document.wrong("there is no such option", *keys, *option.split("."), fix=suggestion(option, OPTIONS))


def check_value(document: TomlDocument, value: object, *keys: Key) -> Value:
    """Raise for values that are neither text nor a number; return a duration such as ``2min`` in seconds."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise document.wrong(f"must be text or a number, not {value!r}", *keys)
    return _seconds(value) if str(keys[-1]).endswith("_s") else value


def _seconds(value: str | float) -> Value:
    """Return the seconds of a duration; other words, such as ``auto``, are checked by the settings."""
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return value


def values_of(document: TomlDocument, given: object, option: str, *keys: Key) -> tuple[Value, ...]:
    """Return the values of an option: a list, or a range."""
    if isinstance(given, dict):
        return _range(document, given, option, *keys)
    if not isinstance(given, list):
        fix = "what is the same in all points stands in [fixed]"
        raise document.wrong(f"must be a list of values, not {given!r}", *keys, fix=fix)
    if not given:
        raise document.wrong("has no value", *keys)
    return tuple(check_value(document, value, *keys) for value in given)


def _range(document: TomlDocument, given: Mapping[str, Any], option: str, *keys: Key) -> tuple[Value, ...]:
    """Return the values of ``{ from, to, steps or step, scale }``, including both limits."""
    for key in given:
        if key not in _RANGE_KEYS:
            raise document.wrong(f"a range has no '{key}'", *keys, fix=suggestion(key, _RANGE_KEYS))
    whole = is_whole(option)
    begin, end = (_number(document, given, key, *keys) for key in ("from", "to"))
    scale = given.get("scale", LINEAR)
    if scale not in {LINEAR, LOGARITHMIC}:
        raise document.wrong(f"scale: is {scale!r}", *keys, fix=f"write '{LINEAR}' or '{LOGARITHMIC}'")
    if "steps" in given:
        if "step" in given:
            raise document.wrong("has steps and step", *keys, fix="steps counts values, step is their distance")
        values = _spaced(document, begin, end, given["steps"], scale, *keys)
    elif scale == LOGARITHMIC:
        raise document.wrong("has no steps", *keys, fix="say how many values, such as steps = 5")
    elif "step" in given or whole:
        values = _stepped(document, begin, end, given, *keys)
    else:
        raise document.wrong("has neither steps nor step", *keys, fix="say how many values, such as steps = 5")
    if whole:
        return tuple(dict.fromkeys(round(value) for value in values))
    return tuple(dict.fromkeys(float(f"{value:.{_DIGITS}g}") for value in values))


def _number(document: TomlDocument, given: Mapping[str, Any], key: str, *keys: Key) -> float:
    value = given.get(key)
    if str(keys[-1]).endswith("_s") and isinstance(value, str):
        value = _seconds(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        what = f"{key}: must be a number, not {value!r}" if key in given else f"has no {key}"
        raise document.wrong(what, *keys, fix="write { from = 1, to = 10, steps = 4 }")
    return float(value)


def _spaced(document: TomlDocument, begin: float, end: float, steps: object, scale: str, *keys: Key) -> list[float]:
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= MOST_VALUES:  # noqa: PLR2004 - both ends
        raise document.wrong(f"steps: must be a whole number from 2 to {MOST_VALUES:,}, not {steps!r}", *keys)
    if scale == LINEAR:
        return list(np.linspace(begin, end, steps).tolist())
    if begin <= 0.0 or end <= 0.0:
        raise document.wrong("a logarithmic range cannot reach 0", *keys, fix="give from and to above 0")
    return list(np.geomspace(begin, end, steps).tolist())


def _stepped(document: TomlDocument, begin: float, end: float, given: Mapping[str, Any], *keys: Key) -> list[float]:
    step = _number(document, given, "step", *keys) if "step" in given else 1.0
    if step <= 0.0 or end < begin:
        raise document.wrong("goes nowhere", *keys, fix="step must be above 0, and to not below from")
    count = int((end - begin) / step + _SLACK) + 1
    if count > MOST_VALUES:
        raise document.wrong(f"has {count:,} values", *keys, fix=f"make it {MOST_VALUES:,} at most")
    return [begin + step * number for number in range(count)]
