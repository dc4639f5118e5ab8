"""Parts by name: objectives, admissions, policies and metrics, registered or from a file as ``path/to/file.py:name``.

The name of an admission or round policy may carry settings: ``load`` is the plain name, ``load=1.5`` sets its first
setting, and ``load,factor=1.5,demand=max`` sets several by name.

A metric is a function of a run that returns one number under the metric's name, or an object with ``name``,
``figures`` (the labels of its numbers) and ``measure(run)``. Its numbers are listed with the built-in metrics.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Final, NamedTuple

import msgspec

from bftrain import registry
from bftrain.deciding.objectives import FunctionObjective
from bftrain.errors import (
    OWN_FILE,
    BadInput,
    BftrainError,
    BrokenPlugin,
    UnknownName,
    described,
    near,
    raised,
    suggestion,
)
from bftrain.ports import Admission, Metric, Objective, SharingPolicy
from bftrain.values.checks import repeated
from bftrain.values.sharing import Entity

ENTITIES: Final = "entities"  # admissions with a parameter of this name receive the entities
_FIX: Final = "write a name and settings, such as: load,factor=1.5,demand=max"


def split_name(name: str) -> tuple[Path | None, str]:
    """Split ``path/to/file.py:name``; a registered name has no file."""
    file, colon, attribute = name.rpartition(":")
    return (Path(file), attribute) if colon and (file.endswith(".py") or "/" in file) else (None, name)


def load_from_file(path: Path, attribute: str, where: str) -> Any:  # noqa: ANN401 - the caller checks its type
    """Run the file and return its ``attribute``; ``where`` is the setting, for errors."""
    if not path.is_file():
        fix = near(path.name, (each.name for each in path.parent.glob("*.py"))) or None
        raise BadInput(f"no such file: {path}", where=where, fix=fix)
    known = f"{OWN_FILE}{abs(hash(str(path.resolve())))}"
    if path.suffix != ".py":
        raise BadInput(f"{path} cannot be imported", where=where, fix="use a name with suffix .py")
    module = ModuleType(known)
    module.__file__ = str(path)
    sys.modules[known] = module  # dataclasses and pickling look up a class's module there
    try:
        # Compiled each time: Python's bytecode is stale if a file changes twice within a second
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 - the user's own code
    except (Exception, SystemExit) as error:
        raise BadInput(f"{path} {raised(error)}", where=where, fix=_missing_neighbour(error, path)) from error
    if not attribute:
        fix = f"write {path}:NAME; it defines {', '.join(_names_defined_in(module)) or 'none'}"
        raise BadInput("names a file, but no function or class in it", where=where, fix=fix)
    if not hasattr(module, attribute):
        raise UnknownName.among("function or class in the file", attribute, _names_defined_in(module), where=where)
    return getattr(module, attribute)


def _missing_neighbour(error: BaseException, path: Path) -> str | None:
    """Return how a module next to the file is found, if its import failed."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    beside = name is not None and any((path.parent / each).exists() for each in (f"{name}.py", name))
    return f"{name} is in the same folder: set PYTHONPATH={path.parent.resolve()}" if beside else None


def _names_defined_in(module: ModuleType) -> list[str]:
    """Return the names that a module defines itself, without its imports."""
    return [
        name
        for name, thing in vars(module).items()
        if callable(thing) and not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    ]


def load_part(port: registry.Port, name: str) -> Any:  # noqa: ANN401 - the caller checks its type
    """Load a registered part, or one from the file in ``name``."""
    file, attribute = split_name(f"{name}:" if name.endswith(".py") else name)
    if file is None:
        return registry.load(port, name)
    return load_from_file(file, attribute, f"{port.replace('_', ' ')} '{name}'")


def absolute_name(name: str, folder: Path | None = None) -> str:
    """Return the name of the same part, valid in every folder; file paths are relative to ``folder``."""
    file, attribute = split_name(name)
    return name if file is None else f"{((folder or Path()) / file).resolve()}:{attribute}"


def policy_of(found: object, wanted: type | UnionType, where: str, fix: str) -> Any:  # noqa: ANN401 - an object of type ``wanted``
    """Return a policy: ``found`` itself, or its result if it is a class or a function."""
    if isinstance(found, type) or not isinstance(found, wanted):
        try:
            found = found() if callable(found) else found
        except BftrainError as error:
            raise BadInput(error.what, where=where, fix=error.fix) from error
        except Exception as error:
            raise BadInput(f"cannot be created: {described(error)}", where=where) from error
    if not isinstance(found, wanted):
        raise BadInput(f"returned a {type(found).__name__}, not a policy", where=where, fix=fix)
    return found


def resolve_sharing(name: str) -> SharingPolicy:
    """Return the sharing policy called ``name``, or the one from the file in it."""
    fix = "define a class with name and share(problem), which docs/reference/policies.md describes"
    found: SharingPolicy = policy_of(load_part("sharing", name), SharingPolicy, f"policy '{name}'", fix)
    return found


def resolve_objective(name: str) -> Objective:
    """Return the objective called ``name``, or the one from the file in it."""
    return as_objective(name, load_part("objective", name))


def _instance(found: object, where: str, error: type[BftrainError]) -> object:
    """Return an instance of a class, or any other object unchanged; raise ``error`` if the class needs arguments."""
    if not inspect.isclass(found):
        return found
    try:
        made: object = found()
    except Exception as reason:
        raise error(f"cannot be created without arguments: {described(reason)}", where=where) from reason
    return made


def as_objective(name: str, found: object) -> Objective:
    """Return an objective from an object with ``values``, a class of such objects, or a plain function."""
    where = f"objective '{name}'"
    found = _instance(found, where, BadInput)
    if isinstance(found, Objective):
        return found
    if callable(getattr(found, "values", None)):
        raise BadInput("has no name", where=where, fix="give its class the attribute: name = '...'")
    if callable(found):
        return FunctionObjective(name, found)
    fix = "define a function (task, sizes) -> values, or a class with name and values(task, sizes)"
    raise BadInput(f"is of the type {type(found).__name__}", where=where, fix=fix)


def resolve_admission(text: str, max_tasks: int, entities: Mapping[str, Entity] | None = None) -> Admission:
    """Return the admission described by ``text``, for up to ``max_tasks`` tasks.

    Its factory is called with ``max_tasks``, the settings, and the users' ``entities`` if it has such a parameter.
    """
    name = name_of(text)
    where = f"admission '{name}'"
    factory = load_part("admission", name)
    if not callable(factory):
        what = f"is of the type {type(factory).__name__}, not a function or class that creates an admission"
        raise BrokenPlugin(what, where=where)
    parameters = _parameters(factory, where)
    free = [parameter for parameter in parameters[1:] if parameter != ENTITIES]  # the first is max_tasks
    given = _settings(text, free, where)
    if ENTITIES in parameters:
        given[ENTITIES] = dict(entities or {})
    try:
        made = factory(max_tasks, **given)
    except BftrainError as error:
        raise BadInput(error.what, where=where, fix=error.fix) from error
    except Exception as error:
        raise BrokenPlugin(f"cannot be created: {described(error)}", where=where) from error
    if isinstance(made, Admission) and not isinstance(made, type):
        return made
    what = "does not implement bftrain.ports: needs a name, and choose(queue)"
    raise BrokenPlugin(what, where=where, fix="docs/how-to/parts.md has an example")


def name_of(text: str) -> str:
    """Return the name without settings."""
    return text.partition(",")[0].partition("=")[0]


def with_settings(factory: object, text: str, where: str) -> object:
    """Return ``factory`` with the settings in ``text`` applied, or unchanged if there are no settings."""
    if text == name_of(text):
        return factory
    if not callable(factory):
        raise BadInput("has no settings", where=where, fix=f"write {name_of(text)} alone")
    return partial(factory, **_settings(text, _parameters(factory, where), where))


def _parameters(factory: Callable[..., Any], where: str) -> list[str]:
    try:
        return list(inspect.signature(factory).parameters)
    except (TypeError, ValueError) as error:
        raise BrokenPlugin(f"has no readable signature: {error}", where=where) from error


def _settings(text: str, free: Sequence[str], where: str) -> dict[str, object]:
    """Return the settings in ``text`` for the parameters in ``free``."""
    first, *settings = text.split(",")
    name, equals, value = first.partition("=")
    given: dict[str, object] = {}
    if (equals or settings) and not free:
        raise BadInput("has no settings", where=where, fix=f"write {name} alone")
    if equals:
        given[free[0]] = _value(value)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            problem = f"{key!r} is set twice" if equals else f"{setting!r} sets nothing"
            raise BadInput(problem, where=where, fix=_FIX)
        if key not in free:
            raise BadInput(f"has no setting {key!r}", where=where, fix=suggestion(key, free))
        given[key] = _value(value)
    return given


def absolute_admission(text: str, folder: Path | None = None) -> str:
    """Return the name of the same admission, valid in every folder; file paths are relative to ``folder``."""
    name = name_of(text)
    return absolute_name(name, folder) + text[len(name) :]


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


class FunctionMetric(msgspec.Struct, frozen=True):
    """A metric with a single number, computed by a plain function."""

    name: str
    function: Callable[[Any], object]

    @property
    def figures(self) -> tuple[str, ...]:
        """The name of its only number, which is its own name."""
        return (self.name,)

    def measure(self, run: Any) -> Mapping[str, object]:  # noqa: ANN401 - a metric's own type of run
        """Call the function."""
        return {self.name: self.function(run)}


class MeasuredFigures(NamedTuple):
    """The numbers of a run, the errors of failed metrics, and notes on numbers that were replaced by ``None``."""

    numbers: dict[str, float | None]
    broken: tuple[BrokenPlugin, ...] = ()
    notes: tuple[str, ...] = ()


def metrics_of(text: str) -> tuple[Metric, ...]:
    """Return the metrics listed in ``text``, separated by commas: registered names, or ``FILE.py:NAME``."""
    found = tuple(resolve_metric(name.strip()) for name in text.split(",")) if text else ()
    twice = repeated(figures_of(found))
    if twice is not None:
        raise BadInput(f"two metrics have a number called '{twice}'", where="metrics", fix="omit one")
    return found


def resolve_metric(name: str, given: object = None) -> Metric:
    """Return the metric called ``name``, or create one from ``given``."""
    where = f"metric '{name}'"
    if given is None:
        given = load_part("metric", name)
    given = _instance(given, where, BrokenPlugin)
    if isinstance(given, Metric):
        return given
    if callable(given):
        return FunctionMetric(split_name(name)[1], given)
    what = "does not implement bftrain.ports: needs name, figures and measure(run), or to be a function of a run"
    raise BrokenPlugin(what, where=where, fix="docs/how-to/parts.md has an example")


def measured(metric: Metric, run: object) -> dict[str, float | None]:
    """Return the numbers of a run by label; they may be infinite or NaN."""
    where = f"metric '{metric.name}'"
    try:
        given = dict(metric.measure(run))
        numbers = {name: _number(given.pop(name)) for name in metric.figures}
    except Exception as error:
        raise BrokenPlugin(raised(error), where=where) from error
    if given:
        raise BrokenPlugin(f"returned '{next(iter(given))}', which is not among its figures", where=where)
    return numbers


def measured_if_possible(metrics: Iterable[Metric], run: object) -> MeasuredFigures:
    """Measure a run, and keep its result even if one of its metrics fails; infinite numbers and NaN become ``None``."""
    numbers: dict[str, float | None] = {}
    broken, notes = [], []
    for metric in metrics:
        try:
            found = measured(metric, run)
        except BrokenPlugin as error:
            found = dict.fromkeys(metric.figures)
            broken.append(error)
            notes.append(f"{error}; its numbers are null")
        for name, number in found.items():
            numbers[name] = number if number is None or isfinite(number) else None
            if numbers[name] is not number:
                what = f"metric '{metric.name}': '{name}' is {number}, which JSON cannot hold, so it is null"
                notes.append(f"{what}; return None where it is unknown")
    return MeasuredFigures(numbers, tuple(broken), tuple(notes))


def figures_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the labels of all numbers of these metrics."""
    return tuple(figure for metric in metrics for figure in metric.figures)


def absolute_metrics(text: str, folder: Path | None = None) -> str:
    """Return equivalent metric names that are valid in every folder; file paths are relative to ``folder``."""
    return ",".join(absolute_name(name.strip(), folder) for name in filter(None, text.split(",")))


def _number(given: object) -> float | None:
    return None if given is None else float(given)  # type: ignore[arg-type]  # float() raises for other types
