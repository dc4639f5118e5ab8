"""The compared runs, the differences in their settings and inputs, and whether their figures can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from bftrain.errors import BadInput
from bftrain.node_units import UNITS
from bftrain.values import wire
from bftrain_replay.rounds.round_result import ROUNDS, RoundSummary
from bftrain_replay.run.result import ReplaySummary
from bftrain_replay.run.run import Run
from bftrain_replay.run.task_figures import TaskColumns
from bftrain_replay.simulation.fixed_cluster import EndReason, FixedCluster
from bftrain_replay.study_run import REPLAY

_LEFT_ALONE: Final = "run the replay again, and do not edit its files"
_PART: Final = ("window", "nodes", "skip_events")  # settings that select a part of the log
_ALWAYS_SHOWN: Final = ("solver", "objective", "round_s", "policy")  # settings that identify a run
_UNTIL: Final = "until_s"  # a setting of rounds; replays store it outside their settings
_IN_ROUNDS: Final = "time shared in rounds"
_SHORT_SUM: Final = 12  # displayed digits of SHA-256


class _NamedFile(msgspec.Struct, frozen=True):
    name: str
    sha256: str


class _Inputs(msgspec.Struct, frozen=True):
    log: _NamedFile
    tasks: _NamedFile


class _Origin(msgspec.Struct, frozen=True):
    """The entries of ``summary.json`` that a comparison reads, apart from figures."""

    inputs: _Inputs
    settings: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A replay, or a run in rounds, with its label."""

    label: str
    run: Run

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Its summary; raise ``BadInput`` unless it is the summary of a replay or of rounds."""
        content, kind = self.run.content, self.run.kind
        if kind not in (REPLAY, ROUNDS):
            fix = "name replays, or runs in rounds"
            raise BadInput(f"a {kind.title} cannot be compared", where=content.place, fix=fix)
        where = content.place if content.made is not None else f"{content.place}/summary.json"
        try:
            wire.convert(self.run.summary, RoundSummary if self.in_rounds else ReplaySummary)
            wire.convert(self.run.summary, _Origin)
        except BadInput as error:
            what = f"not the summary of a replay: {error.what}"
            raise BadInput(what, where=where, fix=_LEFT_ALONE) from error
        if self.run.unit not in UNITS:
            what = f"the unit must be one of {', '.join(UNITS)}, not {self.run.unit!r:.40}"
            raise BadInput(what, where=where, fix=_LEFT_ALONE)
        return self.run.summary

    @property
    def place(self) -> str:
        """Its folder; "" for a run in memory."""
        return "" if self.run.content.made is not None else self.run.content.place

    @property
    def in_rounds(self) -> bool:
        """Whether time was shared in rounds."""
        return self.run.kind is ROUNDS

    @property
    def cluster(self) -> Mapping[str, Any]:
        """The permanent nodes by kind, the time bound ``until_s``, and ``why`` the run ended; no nodes for a log."""
        summary, settings = self.summary, self.summary["settings"]
        if self.in_rounds:
            nodes = summary["inputs"].get("cluster", {})
            return {"nodes": nodes, "until_s": settings.get("until_s"), "why": summary["ended"]}
        cluster = summary.get("cluster") or {"nodes": {}, "until_s": None, "ended": {}}
        return {**cluster, "why": cluster["ended"].get(settings.get("solver"), "")}

    @property
    def tasks(self) -> TaskColumns:
        """The tasks; in rounds only the measured ones."""
        return self.run.task_columns

    @property
    def waits(self) -> int:
        """The number of waits of the measured tasks."""
        return sum(row["waits"] for row in self.run.measured_tasks)

    @cached_property
    def work_of_tasks(self) -> dict[str, tuple[float, float]]:
        """The samples and the node-hours of each task."""
        return {row["name"]: (row["done_samples"], row["node_h"]) for row in self.run.task_rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """Settings, inputs and versions by name, such as ``settings.solver``: the different and the equal ones."""

    differs: Mapping[str, tuple[Any, ...]]
    same: Mapping[str, Any]


def compared_settings(sides: Sequence[ComparedRun]) -> SettingDifference:
    """Compare the settings, inputs, baselines and versions of all replays."""
    # Replays and rounds have different settings, whose defaults need no mention
    mixed = len({side.in_rounds for side in sides}) > 1
    described = [dict(_settings_of(side, whole=not mixed)) for side in sides]
    if same_tasks(sides):
        for one in described:  # ignores file names: equal tasks are the same input
            one["tasks"] = described[0]["tasks"]
    if len(set(map(_nodes_of, sides))) == 1:
        for one in described:
            one["log"] = described[0]["log"]
    names = list(dict.fromkeys(name for one in described for name in one))
    rows = {name: tuple(one.get(name) for one in described) for name in names}
    same = {name: values[0] for name, values in rows.items() if all(value == values[0] for value in values)}
    return SettingDifference(differs={name: values for name, values in rows.items() if name not in same}, same=same)


def hindrances(sides: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield reasons why these replays are not of the same idle time."""
    on_clusters = all(side.cluster["nodes"] for side in sides)
    logs = set(map(_nodes_of, sides))
    if len(logs) > 1:
        yield f"they are of {len(logs)} different {'clusters' if on_clusters else 'logs'}"
        return
    if on_clusters:
        return  # cluster nodes are permanent
    parts = {tuple(side.summary["settings"].get(name) or None for name in _PART) for side in sides}
    measured = {(side.summary["idle_node_h"], side.summary["simulated_s"]) for side in sides}
    if len(parts) > 1 and len(measured) > 1:  # the same part may be written in two ways
        yield "they are of different parts of the log (window, nodes or skip_events)"


def same_tasks(sides: Sequence[ComparedRun]) -> bool:
    """Return whether all were given the same tasks."""
    return len({side.summary["inputs"]["tasks"]["sha256"] for side in sides}) == 1


def rules_of(sides: Sequence[ComparedRun]) -> list[str]:
    """Return the names of the progress rules."""
    return sorted({_IN_ROUNDS if side.in_rounds else str(side.summary["settings"].get("semantics")) for side in sides})


def measured_of(sides: Sequence[ComparedRun]) -> list[str]:
    """Return the different choices of tasks that means include: "" for all, or in rounds a setting for some."""
    return list(dict.fromkeys(side.summary["settings"].get("measure") or "" for side in sides))


def same_end(sides: Sequence[ComparedRun]) -> bool:
    """Return whether unfinished tasks are comparable: no time bound stopped a replay, or all had the same bound."""
    ends = {side.cluster["until_s"] for side in sides}
    return len(ends) == 1 or all(side.cluster["why"] != EndReason.UNTIL for side in sides)


def comparable(sides: Sequence[ComparedRun]) -> bool:
    """Return whether figures can be ranked, because the replays have the same tasks, duration and rules.

    Durations may differ on permanent nodes, where they depend on the replay. Rules may differ if some share time in
    rounds, because completion times are compared instead of harvests; the same tasks must be measured then.
    """
    if not same_tasks(sides) or not same_end(sides):
        return False
    lasted = {side.summary["simulated_s"] for side in sides}
    in_rounds = any(side.in_rounds for side in sides)
    as_long = len(lasted) == 1 or in_rounds or all(side.cluster["nodes"] for side in sides)
    return as_long and (len(measured_of(sides)) if in_rounds else len(rules_of(sides))) == 1


def _nodes_of(side: ComparedRun) -> str:
    """Return a text that is equal for replays of the same idle nodes."""
    nodes = side.cluster["nodes"]
    if not nodes:
        return str(side.summary["inputs"]["log"]["sha256"])
    by_kind = dict(sorted(nodes.items()))  # kinds in sorted order compare equal
    return f"cluster {FixedCluster(nodes=by_kind).text}"


def _settings_of(side: ComparedRun, *, whole: bool) -> Iterator[tuple[str, Any]]:
    """Yield names and values of inputs, settings and versions; settings at their default only with ``whole``."""
    summary, cluster = side.summary, side.cluster
    inputs, settings = summary["inputs"], summary["settings"]
    yield "log", f"cluster {FixedCluster(nodes=cluster['nodes']).text}" if cluster["nodes"] else _input(inputs["log"])
    yield "tasks", _input(inputs["tasks"])
    yield "baseline", (summary.get("baseline") or {}).get("solver")
    usual = usual_settings(side)
    if _UNTIL not in settings and cluster["nodes"] and (whole or cluster["until_s"] is not None):
        yield f"settings.{_UNTIL}", cluster["until_s"]
    for name, value in settings.items():
        if whole or name in _ALWAYS_SHOWN or value != usual.get(name):
            yield f"settings.{name}", value
    for name, version in summary["versions"].items():
        # Without the solver's name, which is a setting: only a different version is a difference
        yield ("versions.solver" if name.startswith("solver ") else f"versions.{name}"), version


def usual_settings(side: ComparedRun) -> Mapping[str, Any]:
    """Return the default settings."""
    usual: Mapping[str, Any] = wire.plain(side.run.kind.settings())
    return usual


def _input(file: Mapping[str, str]) -> str:
    return f"{file['name'] or 'in memory'} ({file['sha256'][:_SHORT_SUM]})"
