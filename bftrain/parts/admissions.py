"""Admissions by what they are called: a name, or ``FILE.py:NAME``, and what is to be set in them.

``load`` is a name alone, ``load=1.5`` sets the first thing that can be set, and ``load,factor=1.5,demand=max`` sets
things by their names. All of it is one text, so that it fits wherever a setting does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bftrain import registry
from bftrain.errors import BadInput, BftrainError, BrokenPlugin, suggestion
from bftrain.exception_text import described
from bftrain.parts import python_file
from bftrain.ports import Admission, ChoosingAdmission
from bftrain.values.sharing import Entity

ENTITIES: Final = "entities"  # what an admission is given that has a parameter of this name
_FIX: Final = "write a name, and after it what is to be set, such as: load,factor=1.5,demand=max"


def resolve_admission(
    said: str, max_tasks: int, entities: Mapping[str, Entity] | None = None
) -> Admission | ChoosingAdmission:
    """Make the admission that ``said`` describes, for at most ``max_tasks`` tasks.

    Its factory is called with ``max_tasks``, with what is set, and with the users' ``entities`` if it asks for them.
    """
    name, *settings = said.split(",")
    name, equals, first = name.partition("=")
    where = f"admission '{name}'"
    factory = _factory(name)
    free = _parameters(factory, where)
    given: dict[str, object] = {}
    if equals:
        if not free:
            raise BadInput("has nothing that can be set", where=where, fix=f"write {name} alone")
        given[free[0]] = _value(first)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            problem = f"{key!r} is set twice" if equals else f"{setting!r} sets nothing"
            raise BadInput(problem, where=where, fix=_FIX)
        if key not in free:
            raise BadInput(f"has no {key!r}", where=where, fix=suggestion(key, free))
        given[key] = _value(value)
    if ENTITIES in inspect.signature(factory).parameters:
        given[ENTITIES] = dict(entities or {})
    return _made(factory, max_tasks, given, where)


def from_anywhere(said: str, folder: Path | None = None) -> str:
    """Give the same admission by a name that holds in every folder; a file is looked for from ``folder`` on."""
    name = said.partition(",")[0].partition("=")[0]
    file, attribute = python_file.parts(name)
    return said if file is None else f"{((folder or Path()) / file).resolve()}:{attribute}{said[len(name) :]}"


def _factory(name: str) -> Callable[..., object]:
    file, attribute = python_file.parts(name)
    found: object = (
        registry.load("admission", name) if file is None else python_file.load(file, attribute, f"admission '{name}'")
    )
    if not callable(found):
        what = f"is of the type {type(found).__name__}, and a function or class that makes an admission is asked for"
        raise BrokenPlugin(what, where=f"admission '{name}'")
    return found


def _parameters(factory: Callable[..., object], where: str) -> list[str]:
    """Name what can be set: all parameters but the first, which is ``max_tasks``, and the users."""
    try:
        names = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError) as error:
        raise BrokenPlugin(f"does not say what it is made from: {error}", where=where) from error
    return [name for name in names[1:] if name != ENTITIES]


def _made(
    factory: Callable[..., Any], max_tasks: int, given: Mapping[str, object], where: str
) -> Admission | ChoosingAdmission:
    try:
        made = factory(max_tasks, **given)
    except BftrainError as error:
        raise BadInput(error.what, where=where, fix=error.fix) from error
    except Exception as error:
        raise BrokenPlugin(f"cannot be made: {described(error)}", where=where) from error
    if isinstance(made, (ChoosingAdmission, Admission)) and not isinstance(made, type):
        return made
    what = "has not what bftrain.ports asks for: a name, and choose(queue) or admit(names, pool)"
    raise BrokenPlugin(what, where=where, fix="docs/adding/admission.md shows a whole one")


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
