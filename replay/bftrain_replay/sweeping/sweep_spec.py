"""The content of a sweep file (docs/how-to/sweeps.md), and its points: the combinations of its options.

The whole file is checked before any work: every error names the line and the key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain import parts, toml_io
from bftrain.config import line_of
from bftrain.durations import parse_duration
from bftrain.errors import BadConfig, BadInput, BadValue, BftrainError, UsageError, suggestion
from bftrain.files import existing, whole_text
from bftrain.values import wire
from bftrain.values.curve import CLUSTER_FORM, cluster_of
from bftrain_replay import plugin_files
from bftrain_replay.rounds.round_policy import find_policy
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import check_cluster
from bftrain_replay.sweeping import sweep_inputs
from bftrain_replay.sweeping.sweep_inputs import LogSource, SweepCluster, SweepLog, TaskFile, TaskSource

Key = str | int  # a name, or the index of a table among several of the same name


class TomlDocument:
    """The content of a file, or a Python mapping; ``name`` is the prefix of its error messages."""

    def __init__(self, data: Mapping[str, Any], *, name: str, folder: Path, text: str = "") -> None:
        self.data = data
        self.name = name
        self.folder = folder  # base folder of relative paths
        self._text = text

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """Read a TOML file."""
        text = whole_text(path, "sweep file")
        return cls(toml_io.parse(text, str(path)), name=str(path), folder=path.parent, text=text)

    def where(self, *keys: Key) -> str:
        """Return the file, the line of the key or of its nearest enclosing key, and the key."""
        shown = ".".join(str(key) if isinstance(key, str) else f"{key + 1}" for key in keys)
        line = line_of(self._text, keys)
        return ": ".join(filter(None, (f"{self.name}:{line}" if line else self.name, shown)))

    def wrong(self, what: str, *keys: Key, fix: str | None = None) -> BadConfig:
        """Build the error about a key."""
        return BadConfig(what, where=self.where(*keys), fix=fix)


Value = str | int | float

SEED: Final = "seed"
INPUTS: Final = ("log", "cluster", "tasks", "baseline")
GENERATED: Final = ("log", "tasks")  # generated inputs have separate options: log.nodes, tasks.arrivals_per_hour
# Options of generated inputs with whole numbers
_WHOLE: Final = frozenset({"nodes", "count", "min_nodes", "max_nodes", "users", "burst_size", "seed"})
SETTINGS: Final = tuple(dict.fromkeys((*ReplaySettings.__struct_fields__, *RoundSettings.__struct_fields__)))
OPTIONS: Final = (*INPUTS, *SETTINGS)

MOST_VALUES: Final = 100_000
_RANGE_KEYS: Final = ("from", "to", "step")
_DEFAULTS: Final = ReplaySettings()
_SLACK: Final = 1e-9  # fraction of a step: a range to 0.3 in steps of 0.1 includes 0.3
_DIGITS: Final = 12  # digits of a range value: 0.3, not 0.30000000000000004


def is_whole(option: str) -> bool:
    """Return whether the values of an option are integers."""
    if input_of(option):
        return option.partition(".")[2] in _WHOLE
    return option == "cluster" or type(getattr(_DEFAULTS, option, None)) is int


def input_of(option: str) -> str:
    """Return the input that an option belongs to: ``tasks`` for ``tasks.count``; "" for other options."""
    of, dot, _ = option.partition(".")
    return of if dot and of in GENERATED else ""


def dotted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their dotted names; TOML makes a table ``tasks`` of ``tasks.count = [1, 2]``."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in GENERATED and isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def check_option(document: TomlDocument, option: str, *keys: Key) -> None:
    """Raise for unknown options."""
    if option not in OPTIONS and not input_of(option):
        raise document.wrong("there is no such option", *keys, *option.split("."), fix=suggestion(option, OPTIONS))


def check_value(document: TomlDocument, value: object, *keys: Key) -> Value:
    """Return a value, with a duration such as ``2min`` in seconds; raise if it is neither text nor a number."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise document.wrong(f"must be text or a number, not {value!r}", *keys)
    return _seconds(value) if str(keys[-1]).endswith("_s") else value


def _seconds(value: str | float) -> Value:
    """Return the seconds of a duration; the settings check other texts, such as ``auto``."""
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return value


def values_of(document: TomlDocument, given: object, option: str, *keys: Key) -> tuple[Value, ...]:
    """Return the values of an option: a list, or a range."""
    if isinstance(given, dict):
        return _range(document, given, option, *keys)
    if not isinstance(given, list):
        fix = "values for all points belong in [fixed]"
        raise document.wrong(f"must be a list of values, not {given!r}", *keys, fix=fix)
    if not given:
        raise document.wrong("has no value", *keys)
    return tuple(check_value(document, value, *keys) for value in given)


def _range(document: TomlDocument, given: Mapping[str, Any], option: str, *keys: Key) -> tuple[Value, ...]:
    """Return the values of ``{ from, to, step }``, with both limits; the default step is 1."""
    for key in given:
        if key not in _RANGE_KEYS:
            raise document.wrong(f"a range has no '{key}'", *keys, fix=suggestion(key, _RANGE_KEYS))
    begin, end, step = (_number(document, {"step": 1.0, **given}, key, *keys) for key in _RANGE_KEYS)
    if step <= 0.0 or end < begin:
        raise document.wrong("goes nowhere", *keys, fix="step must be above 0, and to not below from")
    count = int((end - begin) / step + _SLACK) + 1
    if count > MOST_VALUES:
        raise document.wrong(f"has {count:,} values", *keys, fix=f"use {MOST_VALUES:,} or fewer")
    values = (begin + step * number for number in range(count))
    if is_whole(option):
        return tuple(dict.fromkeys(round(value) for value in values))
    return tuple(dict.fromkeys(float(f"{value:.{_DIGITS}g}") for value in values))


def _number(document: TomlDocument, given: Mapping[str, Any], key: str, *keys: Key) -> float:
    value = given.get(key)
    if str(keys[-1]).endswith("_s") and isinstance(value, str):
        value = _seconds(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        what = f"{key}: must be a number, not {value!r}" if key in given else f"has no {key}"
        raise document.wrong(what, *keys, fix="write { from = 1, to = 10, step = 3 }")
    return float(value)


S = TypeVar("S", bound=msgspec.Struct)

KEYS: Final = ("title", *INPUTS, "fixed", "grid", "cases", "logs", "task_sets", "yardsticks", "plot")

_RELATIVE: Final = "paths are relative to the folder of the sweep file"
_SETS: Final = {"log": "logs", "tasks": "task_sets"}  # tables of named inputs
_LOG_FORMS: Final = "write the name of a file, or { nodes = 128, days = 2 } to generate one"
_TASK_FORMS: Final = 'write the name of a file, or { kind = "mix", count = 40 } to generate them'

Options = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """The options of a sweep. An option is in ``fixed``, in ``cases`` or in ``axes``, the file's grid.

    Every combination of a case, whose options vary together, with a value for each option in ``axes`` is a point.
    """

    document: TomlDocument
    title: str
    fixed: Options
    cases: tuple[Options, ...]
    axes: Mapping[str, tuple[Value, ...]]
    sources: Mapping[str, Mapping[str, LogSource | TaskSource]]  # inputs of ``log`` and ``tasks``, by name
    yardsticks: bool  # whether to also replay a ceiling and a dedicated pool
    plot: tuple[str, ...]  # columns of the table that the page draws; none: the usual ones

    @property
    def swept(self) -> tuple[str, ...]:
        """The options that differ between points: first of the cases, then of the grid."""
        return tuple(dict.fromkeys([*(name for case in self.cases for name in case), *self.axes]))

    def place_of(self, option: str) -> tuple[Key, ...]:
        """Return the key of the file that sets an option, for error messages."""
        for number, case in enumerate(self.cases):
            if option in case:
                return ("cases", number, *option.split("."))
        if option in self.axes:
            return ("grid", *option.split("."))
        return (option,) if option in INPUTS else ("fixed", option)

    def wrong(self, what: str, option: str, fix: str | None = None) -> BadConfig:
        """Build the error about an option, at the place of its values."""
        return self.document.wrong(what, *self.place_of(option), fix=fix)

    def source(self, of: str, name: str, changes: Options) -> Any:  # noqa: ANN401 - a source of a log, or of tasks
        """Return the source of the ``log`` or ``tasks`` (``of``): an input or a file called ``name``, with changes."""
        source = self.sources[of].get(name) or _source(self.document, of, name, *self.place_of(of))
        own = {option.partition(".")[2]: value for option, value in changes.items() if input_of(option) == of}
        if not own:
            return source
        known = type(source).__struct_fields__
        for field in own:
            if isinstance(source, SweepLog) or (isinstance(source, TaskFile) and field != "rate"):
                fix = f"name a generated one in [{_SETS[of]}]"
                raise self.wrong(f"'{name}' is a file, which has no such option", f"{of}.{field}", fix)
            if field not in known:
                raise self.wrong(f"'{name}' has no such option", f"{of}.{field}", suggestion(field, known))
        try:
            changed = wire.convert(wire.plain(source) | own, type(source))
        except BadInput as error:
            raise self.wrong(error.what, f"{of}.{next(iter(own))}") from error
        return _with_speeds(self.document, changed, *self.place_of("tasks.speeds"))


def read_spec(given: Path | str | Mapping[str, Any], folder: Path | None = None) -> SweepSpec:
    """Read a sweep file, or a mapping of the same form.

    Paths in a file are relative to its folder; paths in a mapping are relative to ``folder``.
    """
    if isinstance(given, Mapping):
        return _spec(TomlDocument(given, name="sweep", folder=folder or Path()), "sweep")
    return _spec(TomlDocument.read(existing(Path(given))), Path(given).stem)


def _spec(document: TomlDocument, called: str) -> SweepSpec:
    for key in document.data:
        if key not in KEYS:
            fix = "settings belong in [fixed] or [grid]" if key in SETTINGS else suggestion(key, KEYS)
            raise document.wrong("unknown key", key, fix=fix)
    spec = SweepSpec(
        document=document,
        title=_of_kind(document, "title", str, "text", default=called),
        fixed=_fixed(document),
        cases=tuple(_options(document, case, "cases", place) for place, case in _tables(document, "cases")) or ({},),
        axes=_axes(document),
        sources={
            of: {name: _source(document, of, given, key, name) for name, given in _table(document, key).items()}
            for of, key in _SETS.items()
        },
        yardsticks=_of_kind(document, "yardsticks", bool, "true or false", default=True),
        plot=tuple(_of_kind(document, "plot", list, "a list of columns", default=[])),
    )
    _check_together(spec)
    return spec


def _fixed(document: TomlDocument) -> Options:
    settings = _options(document, _table(document, "fixed"), "fixed")
    for name in settings:
        if name in INPUTS:
            raise document.wrong("is no setting", "fixed", name, fix=f"write it at the top: {name} = ...")
        if input_of(name):
            fix = f"write it where the {input_of(name)} are generated, in [logs] or [task_sets]"
            raise document.wrong("is no setting", "fixed", *name.split("."), fix=fix)
    inputs = {name: check_value(document, document.data[name], name) for name in INPUTS if name in document.data}
    return inputs | settings


def _axes(document: TomlDocument) -> dict[str, tuple[Value, ...]]:
    found = {}
    for name, values in dotted(_table(document, "grid")).items():
        check_option(document, name, "grid")
        found[name] = values_of(document, values, name, "grid", *name.split("."))
    return found


def _options(document: TomlDocument, given: Mapping[str, Any], *keys: Key) -> Options:
    options = dotted(given)
    for name in options:
        check_option(document, name, *keys)
    return {name: check_value(document, value, *keys, *name.split(".")) for name, value in options.items()}


def _check_together(spec: SweepSpec) -> None:
    document = spec.document
    for name in spec.swept:
        places = [("cases", number, name) for number, case in enumerate(spec.cases) if name in case]
        if name in spec.axes and places:
            raise document.wrong("also has values in [grid]", *places[0], fix="omit one")
        if name in spec.fixed:
            place = "at the top of the file" if name in INPUTS else "in [fixed]"
            raise document.wrong(f"is also {place}", *spec.place_of(name), fix="omit one")
    for names in (("log", "cluster"), ("tasks",)):
        everywhere = any(name in spec.fixed or name in spec.axes for name in names)
        if not everywhere and not all(any(name in case for name in names) for case in spec.cases):
            or_nodes = ', or cluster = "v100=4,k80=4"' if "cluster" in names else ""
            raise document.wrong(f"names no {names[0]}", fix=f'write {names[0]} = "FILE" at the top{or_nodes}')


def _source(document: TomlDocument, of: str, given: object, *keys: Key) -> LogSource | TaskSource:
    """Return a log or tasks: a file, or a table of options to generate them."""
    if isinstance(given, str):
        path = _existing(document, given, document.data.get(_SETS[of]) or (), *keys)
        return SweepLog(path=path) if of == "log" else TaskFile(path=path)
    if of == "log":
        return _generated(document, given, sweep_inputs.GeneratedLog, _LOG_FORMS, *keys)
    if isinstance(given, Mapping) and given.get("kind") == sweep_inputs.CLUSTER_JOBS:
        made = _generated(document, given, sweep_inputs.ClusterTasks, _TASK_FORMS, *keys)
        return _with_speeds(document, made, *keys, "speeds")
    return _generated(document, given, sweep_inputs.GeneratedTasks, _TASK_FORMS, *keys)


def _with_speeds(document: TomlDocument, source: S, *keys: Key) -> S:
    """Return the source with an absolute path of its throughput table, if it has one."""
    speeds = getattr(source, "speeds", "")
    return replace(source, speeds=_existing(document, speeds, (), *keys)) if speeds else source


def _existing(document: TomlDocument, name: str, known: Iterable[str], *keys: Key) -> str:
    path = document.folder / Path(name).expanduser()
    if not path.is_file():
        fix = suggestion(name, known) if known else _RELATIVE
        raise document.wrong(f"there is no file {path}", *keys, fix=fix)
    return str(path.absolute())


def _generated(document: TomlDocument, given: object, kind: type[S], forms: str, *keys: Key) -> S:
    if not isinstance(given, Mapping):
        raise document.wrong(f"must be a file or a table, not {given!r}", *keys, fix=forms)
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise document.wrong("unknown key", *keys, name, fix=suggestion(name, known))
    try:
        return wire.convert({"type": kind.__struct_config__.tag, **given}, kind)
    except BadInput as error:
        raise document.wrong(error.what, *keys, fix=forms) from error


def _table(document: TomlDocument, key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _of_kind(document, key, Mapping, "a table", default={})
    return found


def _tables(document: TomlDocument, key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    found = _of_kind(document, key, list, f"tables such as [[{key}]]", default=[])
    for place, entry in enumerate(found):
        if not isinstance(entry, Mapping):
            raise document.wrong(f"must be tables such as [[{key}]]", key)
        yield place, entry


def _of_kind(document: TomlDocument, key: str, kind: type, words: str, *, default: Any) -> Any:  # noqa: ANN401 - any value of the key
    found = document.data.get(key, default)
    if not isinstance(found, kind):
        raise document.wrong(f"must be {words}, not {found!r}", key)
    return found


def check_part(option: str, settings: ReplaySettings | RoundSettings) -> None:
    """Raise if a part that the option names does not exist, or rejects the settings in its name."""
    value = str(getattr(settings, option, ""))
    for name in plugin_files.names_in(option, value):
        if name and parts.split_name(name)[0] is None:  # a plug-in file is checked when it is loaded
            _check_named(option, name if option == "metrics" else value)


@cache
def _check_named(option: str, name: str) -> None:
    """Make a part once, for all points that name it."""
    if option == "policy":
        find_policy(RoundSettings(policy=name))
    elif option == "admission":
        parts.resolve_admission(name, 1)
    else:
        parts.resolve_metric(name)


MOST_POINTS: Final = 1_000_000
_LOG_PART_SETTINGS: Final = ("window", "nodes")  # settings of rounds that choose a part of a log


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of options: one row of the table. ``options`` are the values of the swept options.

    Its nodes are from a ``log`` or a ``cluster``; with :class:`RoundSettings` time is shared in rounds.
    """

    options: dict[str, Value]
    log: str = ""
    cluster: str = ""
    tasks: str
    baseline: str = ""
    settings: ReplaySettings | RoundSettings
    until_s: float | None = None  # latest stop of a replay on a cluster
    changes: dict[str, Value] = msgspec.field(default_factory=dict)  # options of generated inputs, by dotted name

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
        found: LogSource = spec.source("log", self.log, self.changes)
        return found

    def tasks_of(self, spec: SweepSpec) -> TaskSource:
        """Return the source of its tasks."""
        found: TaskSource = spec.source("tasks", self.tasks, self.changes)
        return found


def points_of(spec: SweepSpec) -> tuple[SweepPoint, ...]:
    """Return all points: case by case; in the grid the last option changes fastest."""
    count = len(spec.cases) * math.prod(map(len, spec.axes.values()))
    if count > MOST_POINTS:
        raise spec.document.wrong(f"{count:,} points exceed the limit", "grid", fix=f"use {MOST_POINTS:,} or fewer")
    found: dict[bytes, SweepPoint] = {}
    for case, values in product(spec.cases, product(*spec.axes.values())):
        chosen = case | dict(zip(spec.axes, values, strict=True))
        point = _point(spec, chosen)
        key = wire.encode(replace(point, options={}))
        if key in found:
            raise spec.document.wrong(
                f"the point {point.words} appears twice", "cases" if len(spec.cases) > 1 else "grid"
            )
        found[key] = point
    return tuple(found.values())


def _point(spec: SweepSpec, chosen: Options) -> SweepPoint:
    given = spec.fixed | chosen
    inputs = {name: given.pop(name, "") for name in INPUTS}
    changes = {name: given.pop(name) for name in list(given) if input_of(name)}
    until_s = None if "round_s" in given else given.pop("until_s", None)
    if until_s is not None and (isinstance(until_s, str) or not 0.0 < until_s < math.inf):
        fix = "omit it to continue until all tasks are done"
        raise spec.wrong(f"must be a finite number above 0, not {until_s!r}", "until_s", fix)
    settings = _settings(spec, given)
    texts: dict[str, str] = {}
    for name, value in inputs.items():
        is_number = name == "cluster" and isinstance(value, int)  # number of nodes
        text = str(value) if is_number else value
        if not isinstance(text, str):
            kinds = "text or a whole number" if name == "cluster" else "text"
            raise spec.wrong(f"must be {kinds}, not {value!r}", name)
        texts[name] = text
    end_s = None if until_s is None else float(until_s)
    point = SweepPoint(options={}, settings=settings, until_s=end_s, changes=changes, **texts)
    _check(spec, point)
    own: Options = {"metrics": settings.metrics}  # values as written
    if isinstance(settings, ReplaySettings):
        own["until_s"] = "" if end_s is None else end_s
    metrics = parts.absolute_metrics(settings.metrics, spec.document.folder)
    meant = inputs | changes | own
    # The normalised value of an option; "" where it has no effect
    options = {name: meant[name] if name in meant else getattr(settings, name, "") for name in spec.swept}
    return replace(point, settings=replace(settings, metrics=metrics), options=options)


def _settings(spec: SweepSpec, given: Options) -> ReplaySettings | RoundSettings:
    """Build and validate the settings: :class:`RoundSettings` if a round length is given."""
    in_rounds = "round_s" in given
    kind = RoundSettings if in_rounds else ReplaySettings
    for name in given:
        if name not in kind.__struct_fields__:
            if in_rounds:
                raise spec.wrong("has no effect in rounds", name, "omit it, or round_s")
            raise spec.wrong("is for time shared in rounds", name, "give their length: round_s = 360")
    try:
        return kind(**given)  # type: ignore[arg-type]  # it checks them itself
    except BadValue as error:
        raise spec.wrong(error.what, (error.where or "").rpartition(".")[2], error.fix) from error


def _check(spec: SweepSpec, point: SweepPoint) -> None:
    """Raise for missing inputs, unknown parts, and options that contradict each other."""
    if point.in_rounds and point.baseline:
        raise spec.wrong("is a solver, and in rounds a policy decides", "baseline", "sweep policy instead")
    if point.cluster:
        _check_cluster(spec, point)
    elif point.until_s is not None:
        fix = "choose a window of the log, or sweep on a cluster"
        raise spec.wrong("is for clusters: a log has an end", "until_s", fix)
    elif not point.log:
        fix = "give every case exactly one"
        raise spec.document.wrong("a point has neither a log nor a cluster", "cases", fix=fix)
    point.nodes_of(spec)  # both raise for changes that the inputs do not have
    point.tasks_of(spec)
    for name, path in plugin_files.tables(point.settings, spec.document.folder):
        if not path.is_file():
            raise spec.wrong(f"there is no file {path}", name, _RELATIVE)
    for name in ("policy", "admission", "metrics"):
        try:
            check_part(name, point.settings)
        except BftrainError as error:
            raise spec.wrong(error.what, name, error.fix) from error


def _check_cluster(spec: SweepSpec, point: SweepPoint) -> None:
    if point.log:
        raise spec.wrong("takes the place of a log", "cluster", "omit one")
    try:
        cluster_of(point.cluster)
    except ValueError as error:
        raise spec.wrong(str(error), "cluster", CLUSTER_FORM) from error
    of_log = next((name for name in point.changes if input_of(name) == "log"), None)
    if of_log is not None:
        raise spec.wrong("requires a generated log", of_log, "omit it, or the cluster")
    if isinstance(point.settings, ReplaySettings):
        try:
            check_cluster(point.settings)
        except UsageError as error:
            raise spec.wrong(error.what, error.where or "", error.fix) from error
        return
    for name in _LOG_PART_SETTINGS:
        if getattr(point.settings, name):
            raise spec.wrong("is for logs: on a cluster nodes never leave", name, "omit it")
