"""Making: what differs in how replays were made, what is the same, and whether they can be compared at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bftrain_replay.comparing.sides import Side, Told

_PART: Final = ("window", "nodes", "skip_events")  # settings that say which part of a log is replayed
_SHORT_SUM: Final = 12  # letters of a SHA-256 that tell files apart for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """By name (``settings.solver``, ``tasks``, ``versions.numpy``): ``differs`` for each replay, ``same`` once."""

    differs: Mapping[str, tuple[Any, ...]]
    same: Mapping[str, Any]


def making_of(sides: Sequence[Side]) -> Making:
    """Hold the settings, inputs, baselines and versions of all against each other."""
    told = [dict(_told(side.told)) for side in sides]
    if len({side.told.inputs.tasks.sha256 for side in sides}) == 1:
        for each in told:  # the same tasks, whatever their file is called
            each["tasks"] = told[0]["tasks"]
    if len({side.told.inputs.log.sha256 for side in sides}) == 1:
        for each in told:
            each["log"] = told[0]["log"]
    names = list(dict.fromkeys(name for each in told for name in each))
    rows = {name: tuple(each.get(name) for each in told) for name in names}
    same = {name: values[0] for name, values in rows.items() if all(value == values[0] for value in values)}
    return Making(differs={name: values for name, values in rows.items() if name not in same}, same=same)


def hindrances(sides: Sequence[Side]) -> Iterator[str]:
    """Say why these replays are not of one and the same idle time; nothing if they are."""
    logs = {side.told.inputs.log.sha256 for side in sides}
    if len(logs) > 1:
        yield f"they are of {len(logs)} different logs"
        return
    parts = {tuple(side.told.settings.get(name) for name in _PART) for side in sides}
    measured = {(side.told.idle_node_h, side.told.simulated_s) for side in sides}
    if len(parts) > 1 and len(measured) > 1:  # the same part may be written in two ways
        yield "they are of different parts of the log (window, nodes or skip_events)"


def same_tasks(sides: Sequence[Side]) -> bool:
    """Whether all were given the same tasks."""
    return len({side.told.inputs.tasks.sha256 for side in sides}) == 1


def rules_of(sides: Sequence[Side]) -> list[str]:
    """Name the rules by which tasks advanced."""
    return sorted({str(side.told.settings.get("semantics")) for side in sides})


def comparable(sides: Sequence[Side]) -> bool:
    """Whether more harvest, or less loss, is better: of the same work, over the same time, by the same rules."""
    return same_tasks(sides) and len(rules_of(sides)) == len({side.told.simulated_s for side in sides}) == 1


def _told(told: Told) -> Iterator[tuple[str, Any]]:
    yield "log", _input(told.inputs.log.name, told.inputs.log.sha256)
    yield "tasks", _input(told.inputs.tasks.name, told.inputs.tasks.sha256)
    yield "baseline", told.baseline.solver if told.baseline else None
    for name, value in told.settings.items():
        yield f"settings.{name}", value
    for name, version in told.versions.items():
        # The solver's name is in the settings: only what does not follow from it is a difference of its own
        yield ("versions.solver" if name.startswith("solver ") else f"versions.{name}"), version


def _input(name: str, sha256: str) -> str:
    return f"{name or 'in memory'} ({sha256[:_SHORT_SUM]})"
