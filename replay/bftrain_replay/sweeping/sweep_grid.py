"""Grid: the points of a sweep, each with the values of its options."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from bftrain.errors import BadValue, BftrainError, UsageError
from bftrain.parts.metrics import from_anywhere
from bftrain.values import wire
from bftrain.values.kinds import CLUSTER_FORM, cluster_of
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.progress_assumptions import agreed
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study import check_cluster
from bftrain_replay.sweeping.part_checks import check_part
from bftrain_replay.sweeping.sweep_inputs import LogSource, SweepCluster
from bftrain_replay.sweeping.sweep_options import (
    ADMISSION,
    BASELINE,
    CLUSTER,
    INPUTS,
    LOG,
    METRICS,
    POLICY,
    ROUND,
    TASKS,
    UNTIL,
    Value,
    input_of,
    setting_named,
)
from bftrain_replay.sweeping.sweep_spec import CASES, GRID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bftrain_replay.sweeping.sweep_spec import Options, SweepSpec

MOST_POINTS: Final = 1_000_000
_INTERVAL: Final = "checkpoint_interval_s"
_OF_LOGS: Final = ("window", "nodes")  # settings of rounds that choose a part of a log


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of options: one row of the table. ``options`` are those that are swept, as they are meant.

    Its nodes are those of a ``log`` or of a ``cluster``; with :class:`RoundSettings` time is shared in rounds.
    """

    options: dict[str, Value]
    log: str = ""
    cluster: str = ""
    tasks: str
    baseline: str = ""
    settings: ReplaySettings | RoundSettings
    until_s: float | None = None  # when a replay on a cluster ends at the latest
    changes: dict[str, Value] = msgspec.field(default_factory=dict)  # in generated inputs, by their dotted names

    @property
    def words(self) -> str:
        """Its options in words."""
        return ", ".join(f"{name} = {value}" for name, value in self.options.items()) or "all as fixed"

    @property
    def in_rounds(self) -> bool:
        """Whether time is shared in rounds."""
        return isinstance(self.settings, RoundSettings)

    def nodes_of(self, spec: SweepSpec) -> LogSource:
        """Give where its nodes come from."""
        if self.cluster:
            return SweepCluster(text=self.cluster, until_s=self.until_s)
        return spec.log(self.log, self.changes)


def points_of(spec: SweepSpec) -> tuple[SweepPoint, ...]:
    """Give all points: case by case, and of the grid the last option changes fastest."""
    count = len(spec.cases) * math.prod(map(len, spec.axes.values()))
    if count > MOST_POINTS:
        raise spec.document.wrong(f"{count:,} points are too many", GRID, fix=f"make it {MOST_POINTS:,} at most")
    found: dict[bytes, SweepPoint] = {}
    for chosen in _combinations(spec):
        point = _point(spec, chosen)
        key = wire.encode(replace(point, options={}))
        if key in found:
            raise spec.document.wrong(f"the point {point.words} comes twice", CASES if len(spec.cases) > 1 else GRID)
        found[key] = point
    if not found:
        raise spec.document.wrong("there is no point left", GRID, fix="exclude fewer of them")
    return tuple(found.values())


def _combinations(spec: SweepSpec) -> Iterator[Options]:
    for case in spec.cases:
        for values in product(*spec.axes.values()):
            chosen = case | dict(zip(spec.axes, values, strict=True))
            if not any(_matches(chosen, entry) for entry in spec.exclude):
                yield chosen


def _matches(chosen: Options, entry: Mapping[str, tuple[Value, ...]]) -> bool:
    return all(chosen.get(name) in values for name, values in entry.items())


def _point(spec: SweepSpec, chosen: Options) -> SweepPoint:
    given = spec.fixed | chosen
    inputs = {name: given.pop(name, "") for name in INPUTS}
    changes = {name: given.pop(name) for name in list(given) if input_of(name)}
    until_s = None if ROUND in given else _until_s(spec, given.pop(UNTIL, None))
    settings = _settings(spec, given)
    point = SweepPoint(
        options={},
        log=_text(spec, inputs, LOG),
        cluster=_text(spec, inputs, CLUSTER),
        tasks=_text(spec, inputs, TASKS),
        baseline=_text(spec, inputs, BASELINE),
        settings=settings,
        until_s=until_s,
        changes=changes,
    )
    _check(spec, point)
    own: Options = {METRICS: settings.metrics}  # as they were written
    if isinstance(settings, ReplaySettings):
        own[UNTIL] = "" if until_s is None else until_s
    if _INTERVAL in given:
        own[_INTERVAL] = given[_INTERVAL]  # the settings hold it as progress
    metrics = from_anywhere(settings.metrics, spec.document.folder)
    point = replace(point, settings=replace(settings, metrics=metrics))
    return replace(point, options={name: _meant(name, inputs | changes | own, settings) for name in spec.swept})


def _text(spec: SweepSpec, inputs: Mapping[str, Value], name: str) -> str:
    """Give an input by its name; a cluster may be a number of nodes."""
    value = inputs[name]
    if name == CLUSTER and isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise spec.document.wrong(f"must be text, not {value!r}", *spec.place_of(name))
    return value


def _until_s(spec: SweepSpec, given: Value | None) -> float | None:
    if given is None:
        return None
    if isinstance(given, str) or not 0.0 < given < math.inf:
        fix = "leave it out to go on until all tasks are done"
        raise spec.document.wrong(f"must be a finite number above 0, not {given!r}", *spec.place_of(UNTIL), fix=fix)
    return float(given)


def _settings(spec: SweepSpec, given: Options) -> ReplaySettings | RoundSettings:
    """Make the settings, which check themselves: those of rounds if it is said how long one is."""
    in_rounds = ROUND in given
    kind = RoundSettings if in_rounds else ReplaySettings
    for name in given:
        if name not in kind.__struct_fields__:
            what, fix = (
                ("means nothing in rounds", f"leave it out, or {ROUND}")
                if in_rounds
                else ("is for time shared in rounds", f"say how long one is: {ROUND} = 360")
            )
            raise spec.document.wrong(what, *spec.place_of(name), fix=fix)
    try:
        given = given if in_rounds else agreed(given)
        return kind(**given)  # type: ignore[arg-type]  # it checks them itself
    except BadValue as error:
        raise spec.document.wrong(error.what, *spec.place_of(setting_named(error)), fix=error.fix) from error


def _check(spec: SweepSpec, point: SweepPoint) -> None:
    """Refuse, before any work, inputs that there are not or that contradict each other."""
    wrong, place_of = spec.document.wrong, spec.place_of
    if point.in_rounds and point.baseline:
        raise wrong("is a solver, and in rounds a policy decides", *place_of(BASELINE), fix="sweep policy instead")
    if point.cluster:
        _check_cluster(spec, point)
    elif point.until_s is not None:
        fix = "choose a window of the log, or sweep on a cluster"
        raise wrong("is for clusters: a log has an end", *place_of(UNTIL), fix=fix)
    elif not point.log:
        raise wrong("a point has neither a log nor a cluster", CASES, fix="give every case one of them")
    point.nodes_of(spec), spec.tasks(point.tasks, point.changes)
    for name in (POLICY, ADMISSION, METRICS):
        try:
            check_part(name, point.settings)
        except BftrainError as error:
            raise wrong(error.what, *place_of(name), fix=error.fix) from error


def _check_cluster(spec: SweepSpec, point: SweepPoint) -> None:
    wrong, place_of, settings = spec.document.wrong, spec.place_of, point.settings
    if point.log:
        raise wrong("takes the place of a log", *place_of(CLUSTER), fix="leave one of them out")
    try:
        cluster_of(point.cluster)
    except ValueError as error:
        raise wrong(str(error), *place_of(CLUSTER), fix=CLUSTER_FORM) from error
    of_log = next((name for name in point.changes if input_of(name) == LOG), None)
    if of_log is not None:
        raise wrong("is for a log that is generated", *place_of(of_log), fix="leave it out, or the cluster")
    if isinstance(settings, ReplaySettings):
        try:
            check_cluster(settings)
        except UsageError as error:
            raise wrong(error.what, *place_of(error.where or ""), fix=error.fix) from error
        return
    for name in _OF_LOGS:
        if getattr(settings, name):
            raise wrong("is for logs: on a cluster nodes never leave", *place_of(name), fix="leave it out")


def _meant(name: str, given: Mapping[str, Value], settings: ReplaySettings | RoundSettings) -> Value:
    """Give what an option comes to in a point; nothing where it has no meaning, as in another case."""
    return given[name] if name in given else getattr(settings, name, "")
