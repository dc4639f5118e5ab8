"""Grid: the points of a sweep, each with the values of its options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Final

import msgspec
from msgspec.structs import replace

from bftrain import parts
from bftrain.errors import BadValue, BftrainError, UsageError
from bftrain.values import wire
from bftrain.values.curve import CLUSTER_FORM, cluster_of
from bftrain_replay import plugin_files
from bftrain_replay.rounds.round_policy import find_policy
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.progress_kept import agreed
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import check_cluster
from bftrain_replay.sweeping import sweep_options
from bftrain_replay.sweeping.sweep_inputs import LogSource, SweepCluster
from bftrain_replay.sweeping.sweep_spec import CASES, GRID, RELATIVE, Options, SweepSpec


def check_part(option: str, settings: ReplaySettings | RoundSettings) -> None:
    """Raise if the option's plugin does not exist, or rejects these settings."""
    said = str(getattr(settings, option, ""))
    for name in said.split(",") if option == sweep_options.METRICS else (said,):
        admission = name.partition(",")[0].partition("=")[0]
        # A plug-in file is checked when it is loaded
        if name and parts.split_name(admission if option == sweep_options.ADMISSION else name.strip())[0] is None:
            _check_named(option, name.strip())


@cache
def _check_named(option: str, name: str) -> None:
    """Make each named part once, however many points name it."""
    if option == sweep_options.POLICY:
        find_policy(RoundSettings(policy=name))
    elif option == sweep_options.ADMISSION:
        parts.resolve_admission(name, 1)
    else:
        parts.resolve_metric(name)


MOST_POINTS: Final = 1_000_000
_INTERVAL: Final = "checkpoint_interval_s"
_OF_LOGS: Final = ("window", "nodes")  # settings of rounds that choose a part of a log


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of options: one row of the table. ``options`` are the swept ones.

    Its nodes are from a ``log`` or a ``cluster``; with :class:`RoundSettings` time is shared in rounds.
    """

    options: dict[str, sweep_options.Value]
    log: str = ""
    cluster: str = ""
    tasks: str
    baseline: str = ""
    settings: ReplaySettings | RoundSettings
    until_s: float | None = None  # latest stop of a replay on a cluster
    changes: dict[str, sweep_options.Value] = msgspec.field(
        default_factory=dict
    )  # options of generated inputs, by dotted name

    @property
    def words(self) -> str:
        """Its options in words."""
        return ", ".join(f"{name} = {value}" for name, value in self.options.items()) or "all as fixed"

    @property
    def in_rounds(self) -> bool:
        """Whether time is shared in rounds."""
        return isinstance(self.settings, RoundSettings)

    def nodes_of(self, spec: SweepSpec) -> LogSource:
        """Return the source of its nodes."""
        if self.cluster:
            return SweepCluster(text=self.cluster, until_s=self.until_s)
        return spec.log(self.log, self.changes)


def points_of(spec: SweepSpec) -> tuple[SweepPoint, ...]:
    """Return all points: case by case; in the grid the last option changes fastest."""
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
            if not any(all(chosen.get(name) in values for name, values in entry.items()) for entry in spec.exclude):
                yield chosen


def _point(spec: SweepSpec, chosen: Options) -> SweepPoint:
    given = spec.fixed | chosen
    inputs = {name: given.pop(name, "") for name in sweep_options.INPUTS}
    changes = {name: given.pop(name) for name in list(given) if sweep_options.input_of(name)}
    until_s = None if sweep_options.ROUND in given else given.pop(sweep_options.UNTIL, None)
    if until_s is not None and (isinstance(until_s, str) or not 0.0 < until_s < math.inf):
        fix = "omit it to go on until all tasks are done"
        raise spec.wrong(f"must be a finite number above 0, not {until_s!r}", sweep_options.UNTIL, fix)
    settings = _settings(spec, given)
    texts: dict[str, str] = {}
    for name, value in inputs.items():
        is_number = name == sweep_options.CLUSTER and isinstance(value, int)  # number of nodes
        text = str(value) if is_number else value
        if not isinstance(text, str):
            raise spec.wrong(f"must be text, not {value!r}", name)
        texts[name] = text
    end_s = None if until_s is None else float(until_s)
    point = SweepPoint(options={}, settings=settings, until_s=end_s, changes=changes, **texts)
    _check(spec, point)
    own: Options = {sweep_options.METRICS: settings.metrics}  # values as written
    if isinstance(settings, ReplaySettings):
        own[sweep_options.UNTIL] = "" if end_s is None else end_s
    if _INTERVAL in given:
        own[_INTERVAL] = given[_INTERVAL]  # the settings hold it as progress
    metrics = parts.absolute_metrics(settings.metrics, spec.document.folder)
    meant = inputs | changes | own
    # The normalised value of an option; "" where it has no effect
    options = {name: meant[name] if name in meant else getattr(settings, name, "") for name in spec.swept}
    return replace(point, settings=replace(settings, metrics=metrics), options=options)


def _settings(spec: SweepSpec, given: Options) -> ReplaySettings | RoundSettings:
    """Build and validate the settings: :class:`RoundSettings` if a round length is given."""
    in_rounds = sweep_options.ROUND in given
    kind = RoundSettings if in_rounds else ReplaySettings
    for name in given:
        if name not in kind.__struct_fields__:
            if in_rounds:
                raise spec.wrong("means nothing in rounds", name, f"omit it, or {sweep_options.ROUND}")
            raise spec.wrong("is for time shared in rounds", name, f"say how long one is: {sweep_options.ROUND} = 360")
    try:
        given = given if in_rounds else agreed(given)
        return kind(**given)  # type: ignore[arg-type]  # it checks them itself
    except BadValue as error:
        raise spec.wrong(error.what, (error.where or "").rpartition(".")[2], error.fix) from error


def _check(spec: SweepSpec, point: SweepPoint) -> None:
    """Raise, before any work, for missing inputs and inputs that contradict each other."""
    if point.in_rounds and point.baseline:
        raise spec.wrong("is a solver, and in rounds a policy decides", sweep_options.BASELINE, "sweep policy instead")
    if point.cluster:
        _check_cluster(spec, point)
    elif point.until_s is not None:
        fix = "choose a window of the log, or sweep on a cluster"
        raise spec.wrong("is for clusters: a log has an end", sweep_options.UNTIL, fix)
    elif not point.log:
        fix = "give every case one of them"
        raise spec.document.wrong("a point has neither a log nor a cluster", CASES, fix=fix)
    point.nodes_of(spec), spec.tasks(point.tasks, point.changes)
    for name, path in plugin_files.tables(point.settings, spec.document.folder):
        if not path.is_file():
            raise spec.wrong(f"there is no file {path}", name, RELATIVE)
    for name in (sweep_options.POLICY, sweep_options.ADMISSION, sweep_options.METRICS):
        try:
            check_part(name, point.settings)
        except BftrainError as error:
            raise spec.wrong(error.what, name, error.fix) from error


def _check_cluster(spec: SweepSpec, point: SweepPoint) -> None:
    if point.log:
        raise spec.wrong("takes the place of a log", sweep_options.CLUSTER, "omit one")
    try:
        cluster_of(point.cluster)
    except ValueError as error:
        raise spec.wrong(str(error), sweep_options.CLUSTER, CLUSTER_FORM) from error
    of_log = next((name for name in point.changes if sweep_options.input_of(name) == sweep_options.LOG), None)
    if of_log is not None:
        raise spec.wrong("is for a log that is generated", of_log, "omit it, or the cluster")
    if isinstance(point.settings, ReplaySettings):
        try:
            check_cluster(point.settings)
        except UsageError as error:
            raise spec.wrong(error.what, error.where or "", error.fix) from error
        return
    for name in _OF_LOGS:
        if getattr(point.settings, name):
            raise spec.wrong("is for logs: on a cluster nodes never leave", name, "omit it")
