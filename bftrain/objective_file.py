"""Objectives by name: registered ones, and your own out of ``path/to/file.py:name``."""

from __future__ import annotations

import inspect
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bftrain import registry
from bftrain.deciding.objectives import FunctionObjective
from bftrain.errors import BadInput, UnknownName
from bftrain.ports import Objective


def resolve_objective(name: str) -> Objective:
    """Give the objective called ``name``, or the one that the file named in it defines."""
    file, attribute = _parts(name)
    if file is not None:
        return as_objective(name, _from_file(file, attribute, name))
    return as_objective(name, registry.load("objective", name))


def from_anywhere(name: str) -> str:
    """Give the same objective by a name that holds in every folder."""
    file, attribute = _parts(name)
    return name if file is None else f"{file.resolve()}:{attribute}"


def _parts(name: str) -> tuple[Path | None, str]:
    """Split ``path/to/file.py:name``; a registered name has no file."""
    file, colon, attribute = name.rpartition(":")
    return (Path(file), attribute) if colon and (file.endswith(".py") or "/" in file) else (None, name)


def as_objective(name: str, found: object) -> Objective:
    """Make an objective of an object with ``values``, of a class of such objects, or of a plain function."""
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise BadInput(
                f"cannot be made without arguments: {type(error).__name__}: {error}", where=f"objective '{name}'"
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


def _from_file(path: Path, attribute: str, name: str) -> Any:  # noqa: ANN401 - as_objective looks at what it is
    where = f"objective '{name}'"
    if not path.is_file():
        raise BadInput(f"there is no file {path}", where=where)
    known = f"bftrain_objective_file_{abs(hash(str(path.resolve())))}"
    spec = spec_from_file_location(known, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} cannot be imported", where=where, fix="its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[known] = module  # dataclasses and pickling look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{path} raised {type(error).__name__}: {error}", where=where) from error
    if not hasattr(module, attribute):
        raise UnknownName.among("function or class in the file", attribute, _public(module), where=where)
    return getattr(module, attribute)


def _public(module: object) -> list[str]:
    return [name for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")]
