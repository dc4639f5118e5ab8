"""Objectives by name: registered ones, and your own out of ``path/to/file.py:name``."""

from __future__ import annotations

import inspect
from pathlib import Path

from bftrain import registry
from bftrain.deciding.objectives import FunctionObjective
from bftrain.errors import BadInput
from bftrain.exception_text import described
from bftrain.parts import python_file
from bftrain.ports import Objective


def resolve_objective(name: str) -> Objective:
    """Give the objective called ``name``, or the one that the file named in it defines."""
    file, attribute = python_file.parts(name)
    if file is not None:
        return as_objective(name, python_file.load(file, attribute, f"objective '{name}'"))
    return as_objective(name, registry.load("objective", name))


def from_anywhere(name: str, folder: Path | None = None) -> str:
    """Give the same objective by a name that holds in every folder; a file is looked for from ``folder`` on."""
    file, attribute = python_file.parts(name)
    return name if file is None else f"{((folder or Path()) / file).resolve()}:{attribute}"


def as_objective(name: str, found: object) -> Objective:
    """Make an objective of an object with ``values``, of a class of such objects, or of a plain function."""
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise BadInput(
                f"cannot be made without arguments: {described(error)}", where=f"objective '{name}'"
            ) from error
    if isinstance(found, Objective):
        return found
    if callable(getattr(found, "values", None)):
        raise BadInput("has no name", where=f"objective '{name}'", fix="give its class the attribute: name = '...'")
    if callable(found):
        return FunctionObjective(name, found)
    raise BadInput(
        f"is of the type {type(found).__name__}",
        where=f"objective '{name}'",
        fix="define a function (task, sizes) -> values, or a class with name and values(task, sizes)",
    )
