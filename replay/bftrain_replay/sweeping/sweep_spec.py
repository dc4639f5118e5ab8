"""The content of a sweep file, described in docs/how-to/sweeps.md.

The file is checked as a whole before any work is done: every error names the line and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bftrain.errors import BadConfig, BadInput, suggestion
from bftrain.values import wire
from bftrain_replay.sweeping import sweep_inputs
from bftrain_replay.sweeping.sweep_options import (
    CLUSTER,
    INPUTS,
    LOG,
    SETTINGS,
    TASKS,
    Key,
    TomlDocument,
    Value,
    check_option,
    check_value,
    flat,
    input_of,
    values_of,
)

S = TypeVar("S", bound=sweep_inputs.LogSource | sweep_inputs.TaskSource)

TITLE: Final = "title"
FIXED: Final = "fixed"
GRID: Final = "grid"
CASES: Final = "cases"
EXCLUDE: Final = "exclude"
LOGS: Final = "logs"
TASK_SETS: Final = "task_sets"
YARDSTICKS: Final = "yardsticks"
PLOT: Final = "plot"
KEYS: Final = (TITLE, *INPUTS, FIXED, GRID, CASES, EXCLUDE, LOGS, TASK_SETS, YARDSTICKS, PLOT)

RELATIVE: Final = "paths are relative to the folder of the sweep file"
_LOG_FORMS: Final = "write the name of a file, or { nodes = 128, days = 2 } to generate one"
_TASK_FORMS: Final = 'write the name of a file, or { kind = "mix", count = 40 } to generate them'

Options = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """The options of a sweep. An option is in ``fixed``, in ``cases`` or in ``axes``; all combinations are points.

    ``cases`` are options that vary together, ``axes`` options with separate values. ``exclude`` removes the points that
    match one value of every option in it.
    """

    document: TomlDocument
    title: str
    fixed: Options
    cases: tuple[Options, ...]
    axes: Mapping[str, tuple[Value, ...]]
    exclude: tuple[Mapping[str, tuple[Value, ...]], ...]
    logs: Mapping[str, sweep_inputs.LogSource]
    task_sets: Mapping[str, sweep_inputs.TaskSource]
    yardsticks: bool  # whether to also replay a ceiling and a dedicated pool
    plot: tuple[str, ...]  # columns of the table that the page draws; none: the usual ones

    @property
    def swept(self) -> tuple[str, ...]:
        """The options that differ between points, as ordered in the file."""
        return tuple(dict.fromkeys([*(name for case in self.cases for name in case), *self.axes]))

    def place_of(self, option: str) -> tuple[Key, ...]:
        """Return where an option got its values, for error messages."""
        for number, case in enumerate(self.cases):
            if option in case:
                return (CASES, number, *option.split("."))
        if option in self.axes:
            return (GRID, *option.split("."))
        return (option,) if option in INPUTS else (FIXED, option)

    def wrong(self, what: str, option: str, fix: str | None = None) -> BadConfig:
        """Build the error about an option, at the place of its values."""
        return self.document.wrong(what, *self.place_of(option), fix=fix)

    def log(self, name: str, changes: Options | None = None) -> sweep_inputs.LogSource:
        """Return the log called ``name``, or in a file of that name, with the point's changes."""
        source = self.logs.get(name) or sweep_inputs.SweepLog(path=_file(self.document, name, *self.place_of(LOG)))
        return self._changed(source, name, LOG, changes or {})

    def tasks(self, name: str, changes: Options | None = None) -> sweep_inputs.TaskSource:
        """Return the tasks called ``name``, or in a file of that name, with the point's changes."""
        source = self.task_sets.get(name) or sweep_inputs.TaskFile(
            path=_file(self.document, name, *self.place_of(TASKS))
        )
        changed = self._changed(source, name, TASKS, changes or {})
        if not isinstance(changed, sweep_inputs.ClusterTasks):
            return changed
        return _with_speeds(self.document, changed, *self.place_of(f"{TASKS}.speeds"))

    def _changed(self, source: S, name: str, of: str, changes: Options) -> S:
        """Return a generated input with other options, by their dotted names."""
        own = {option: value for option, value in changes.items() if input_of(option) == of}
        for option in own:
            scaled = isinstance(source, sweep_inputs.TaskFile) and option == f"{TASKS}.rate"
            if isinstance(source, (sweep_inputs.SweepLog, sweep_inputs.TaskFile)) and not scaled:
                fix = f"name one in [{LOGS if of == LOG else TASK_SETS}] that is generated"
                raise self.wrong(f"'{name}' is a file, which has no such option", option, fix)
            known = type(source).__struct_fields__
            if option.partition(".")[2] not in known:
                fix = suggestion(option.partition(".")[2], known)
                raise self.wrong(f"'{name}' has no such option", option, fix)
        if not own:
            return source
        given = wire.plain(source) | {option.partition(".")[2]: value for option, value in own.items()}
        try:
            return wire.convert(given, type(source))
        except BadInput as error:
            raise self.wrong(error.what, next(iter(own))) from error


def read_spec(given: Path | str | Mapping[str, Any], folder: Path | None = None) -> SweepSpec:
    """Read a sweep file, or a mapping of the same form.

    Paths in a file are relative to its folder, those in a mapping to ``folder``.
    """
    if isinstance(given, Mapping):
        return _spec(TomlDocument(given, name="sweep", folder=folder or Path()), "sweep")
    return _spec(TomlDocument.read(Path(given)), Path(given).stem)


def _spec(document: TomlDocument, called: str) -> SweepSpec:
    for key in document.data:
        if key not in KEYS:
            fix = f"a setting stands in [{FIXED}] or [{GRID}]" if key in SETTINGS else suggestion(key, KEYS)
            raise document.wrong("unknown key", key, fix=fix)
    logs, task_sets = _table(document, LOGS), _table(document, TASK_SETS)
    spec = SweepSpec(
        document=document,
        title=_of_kind(document, TITLE, str, "text", default=called),
        fixed=_fixed(document),
        cases=tuple(_options(document, case, CASES, place) for place, case in _tables(document, CASES)) or ({},),
        axes=_values(document, _table(document, GRID), GRID),
        exclude=tuple(_values(document, entry, EXCLUDE, place) for place, entry in _tables(document, EXCLUDE)),
        logs={name: _log(document, given, LOGS, name) for name, given in logs.items()},
        task_sets={name: _tasks(document, given, TASK_SETS, name) for name, given in task_sets.items()},
        yardsticks=_of_kind(document, YARDSTICKS, bool, "true or false", default=True),
        plot=tuple(_of_kind(document, PLOT, list, "a list of columns", default=[])),
    )
    _check_together(spec)
    return spec


def _fixed(document: TomlDocument) -> Options:
    settings = _options(document, _table(document, FIXED), FIXED)
    for name in settings:
        if name in INPUTS:
            raise document.wrong("is no setting", FIXED, name, fix=f"write it at the top: {name} = ...")
        if input_of(name):
            fix = f"write it where the {input_of(name)} are generated, in [{LOGS}] or [{TASK_SETS}]"
            raise document.wrong("is no setting", FIXED, *name.split("."), fix=fix)
    inputs = {name: check_value(document, document.data[name], name) for name in INPUTS if name in document.data}
    return inputs | settings


def _values(document: TomlDocument, given: Mapping[str, Any], *keys: Key) -> dict[str, tuple[Value, ...]]:
    found = {}
    for name, value in flat(given).items():
        check_option(document, name, *keys)
        values = value if keys[0] == GRID or isinstance(value, list | dict) else [value]
        found[name] = values_of(document, values, name, *keys, *name.split("."))
    return found


def _options(document: TomlDocument, given: Mapping[str, Any], *keys: Key) -> Options:
    options = flat(given)
    for name in options:
        check_option(document, name, *keys)
    return {name: check_value(document, value, *keys, *name.split(".")) for name, value in options.items()}


def _check_together(spec: SweepSpec) -> None:
    document = spec.document
    for name in spec.swept:
        places = [(CASES, number, name) for number, case in enumerate(spec.cases) if name in case]
        if name in spec.axes and places:
            raise document.wrong(f"has values in [{GRID}] too", *places[0], fix="omit one")
        if name in spec.fixed:
            raise document.wrong("is fixed as well", *spec.place_of(name), fix="omit one")
    for names in ((LOG, CLUSTER), (TASKS,)):
        everywhere = any(name in spec.fixed or name in spec.axes for name in names)
        if not everywhere and not all(any(name in case for name in names) for case in spec.cases):
            or_nodes = ', or cluster = "v100=4,k80=4"' if CLUSTER in names else ""
            raise document.wrong(f"names no {names[0]}", fix=f'write {names[0]} = "FILE" at the top{or_nodes}')
    for number, entry in enumerate(spec.exclude):
        for name in entry:
            if name not in spec.swept:
                fix = suggestion(name, spec.swept)
                raise document.wrong("is not swept, so nothing of it can be excluded", EXCLUDE, number, name, fix=fix)


def _log(document: TomlDocument, given: object, *keys: Key) -> sweep_inputs.LogSource:
    if isinstance(given, str):
        return sweep_inputs.SweepLog(path=_file(document, given, *keys))
    return _generated(document, given, sweep_inputs.GeneratedLog, _LOG_FORMS, *keys)


def _tasks(document: TomlDocument, given: object, *keys: Key) -> sweep_inputs.TaskSource:
    if isinstance(given, str):
        return sweep_inputs.TaskFile(path=_file(document, given, *keys))
    if isinstance(given, Mapping) and given.get("kind") == sweep_inputs.CLUSTER_JOBS:
        return _with_speeds(
            document, _generated(document, given, sweep_inputs.ClusterTasks, _TASK_FORMS, *keys), *keys, "speeds"
        )
    return _generated(document, given, sweep_inputs.GeneratedTasks, _TASK_FORMS, *keys)


def _with_speeds(document: TomlDocument, tasks: sweep_inputs.ClusterTasks, *keys: Key) -> sweep_inputs.ClusterTasks:
    """Return the tasks with an absolute path of their throughput table."""
    return replace(tasks, speeds=_existing(document, tasks.speeds, (), *keys)) if tasks.speeds else tasks


def _file(document: TomlDocument, name: str, *keys: Key) -> str:
    named = LOGS if keys[0] == LOGS or LOG in keys else TASK_SETS
    return _existing(document, name, document.data.get(named) or (), *keys)


def _existing(document: TomlDocument, name: str, known: Iterable[str], *keys: Key) -> str:
    path = document.folder / Path(name).expanduser()
    if not path.is_file():
        fix = suggestion(name, known) if known else RELATIVE
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
    found = _of_kind(document, key, list, f"tables that begin with [[{key}]]", default=[])
    for place, entry in enumerate(found):
        if not isinstance(entry, Mapping):
            raise document.wrong(f"must be tables that begin with [[{key}]]", key)
        yield place, entry


def _of_kind(document: TomlDocument, key: str, kind: type, words: str, *, default: Any) -> Any:  # noqa: ANN401 - any value of the key
    found = document.data.get(key, default)
    if not isinstance(found, kind):
        raise document.wrong(f"must be {words}, not {found!r}", key)
    return found
