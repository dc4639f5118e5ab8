"""Differences in the settings and inputs of replays, and whether they can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bftrain.values import wire
from bftrain_replay.comparing.compared_run import ComparedRun, RoundSummaryFigures, SummaryFigures
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster
from bftrain_replay.simulation.replay_settings import ReplaySettings

_PART: Final = ("window", "nodes", "skip_events")  # settings that select a part of the log
_TELLING: Final = ("solver", "objective", "round_s", "policy")  # settings that identify a run
_MEASURE: Final = "measure"
_UNTIL: Final = "until_s"  # a round setting; replays store it outside their settings
_IN_ROUNDS: Final = "time shared in rounds"
_SHORT_SUM: Final = 12  # SHA-256 digits that distinguish files for people


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """By name (``settings.solver``, ``tasks``, ``versions.numpy``): ``differs`` for each replay, ``same`` once."""

    differs: Mapping[str, tuple[Any, ...]]
    same: Mapping[str, Any]


def making_of(sides: Sequence[ComparedRun]) -> SettingDifference:
    """Compare the settings, inputs, baselines and versions of all replays."""
    # Replays and rounds have different settings: defaults of settings found on one side only have no meaning
    mixed = len({side.in_rounds for side in sides}) > 1
    summary = [dict(_settings_of(side.summary, whole=not mixed)) for side in sides]
    if len({side.summary.inputs.tasks.sha256 for side in sides}) == 1:
        for each in summary:  # ignores file names: equal tasks are the same input
            each["tasks"] = summary[0]["tasks"]
    if len({_nodes_of(side.summary) for side in sides}) == 1:
        for each in summary:
            each["log"] = summary[0]["log"]
    names = list(dict.fromkeys(name for each in summary for name in each))
    rows = {name: tuple(each.get(name) for each in summary) for name in names}
    same = {name: values[0] for name, values in rows.items() if all(value == values[0] for value in values)}
    return SettingDifference(differs={name: values for name, values in rows.items() if name not in same}, same=same)


def hindrances(sides: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield reasons why these replays are not of the same idle time."""
    logs = {_nodes_of(side.summary) for side in sides}
    if len(logs) > 1:
        what = "clusters" if all(side.summary.nodes for side in sides) else "logs"
        yield f"they are of {len(logs)} different {what}"
        return
    if all(side.summary.nodes for side in sides):
        return  # cluster nodes are permanent
    parts = {tuple(side.summary.settings.get(name) or None for name in _PART) for side in sides}
    measured = {(side.summary.idle_node_h, side.summary.simulated_s) for side in sides}
    if len(parts) > 1 and len(measured) > 1:  # the same part may be written in two ways
        yield "they are of different parts of the log (window, nodes or skip_events)"


def same_tasks(sides: Sequence[ComparedRun]) -> bool:
    """Whether all were given the same tasks."""
    return len({side.summary.inputs.tasks.sha256 for side in sides}) == 1


def rules_of(sides: Sequence[ComparedRun]) -> list[str]:
    """Return the names of the progress rules."""
    return sorted({_IN_ROUNDS if side.in_rounds else str(side.summary.settings.get("semantics")) for side in sides})


def measured_of(sides: Sequence[ComparedRun]) -> list[str]:
    """Return the tasks that means include: all, or in rounds a subset."""
    return list(dict.fromkeys(side.summary.settings.get(_MEASURE) or "" for side in sides))


def same_end(sides: Sequence[ComparedRun]) -> bool:
    """Return whether all stopped at the same time, which makes unfinished tasks comparable."""
    ends = {side.summary.until_s for side in sides}
    return len(ends) == 1 or all(side.summary.why != EndReason.UNTIL for side in sides)


def comparable(sides: Sequence[ComparedRun]) -> bool:
    """Return whether more harvest, or less loss, is better: the same work, time and rules.

    On permanent nodes the stop time depends on the replay. Rounds compare completion times instead of harvests: rules
    may then differ, provided that the same tasks are measured.
    """
    if not same_tasks(sides) or not same_end(sides):
        return False
    lasted = {side.summary.simulated_s for side in sides}
    in_rounds = any(side.in_rounds for side in sides)
    as_long = len(lasted) == 1 or in_rounds or all(side.summary.nodes for side in sides)
    return as_long and (len(measured_of(sides)) if in_rounds else len(rules_of(sides))) == 1


def _nodes_of(summary: SummaryFigures | RoundSummaryFigures) -> str:
    """Return an identity of the idle nodes of a replay."""
    if not summary.nodes:
        return summary.inputs.log.sha256
    by_kind = dict(sorted(summary.nodes.items()))  # kinds in sorted order compare equal
    return f"cluster {FixedCluster(nodes=by_kind).text}"


def _settings_of(summary: SummaryFigures | RoundSummaryFigures, *, whole: bool) -> Iterator[tuple[str, Any]]:
    if summary.nodes:
        yield "log", f"cluster {FixedCluster(nodes=summary.nodes).text}"
    else:
        yield "log", _input(summary.inputs.log.name, summary.inputs.log.sha256)
    yield "tasks", _input(summary.inputs.tasks.name, summary.inputs.tasks.sha256)
    yield "baseline", summary.baseline.solver if summary.baseline else None
    usual = usual_settings(summary)
    if _UNTIL not in summary.settings and summary.nodes and (whole or summary.until_s is not None):
        yield f"settings.{_UNTIL}", summary.until_s
    for name, value in summary.settings.items():
        if whole or name in _TELLING or value != usual.get(name):
            yield f"settings.{name}", value
    for name, version in summary.versions.items():
        # The settings contain the solver's name: list only differences that it does not imply
        yield ("versions.solver" if name.startswith("solver ") else f"versions.{name}"), version


def usual_settings(summary: SummaryFigures | RoundSummaryFigures) -> Mapping[str, Any]:
    """Return the default settings."""
    kind = RoundSettings if isinstance(summary, RoundSummaryFigures) else ReplaySettings
    usual: Mapping[str, Any] = wire.plain(kind())
    return usual


def _input(name: str, sha256: str) -> str:
    return f"{name or 'in memory'} ({sha256[:_SHORT_SUM]})"
