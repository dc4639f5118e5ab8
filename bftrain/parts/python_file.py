"""Things of one's own out of a Python file, named ``path/to/file.py:name``."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bftrain.errors import BadInput, UnknownName
from bftrain.exception_text import OWN_FILE, raised


def parts(name: str) -> tuple[Path | None, str]:
    """Split ``path/to/file.py:name``; a registered name has no file."""
    file, colon, attribute = name.rpartition(":")
    return (Path(file), attribute) if colon and (file.endswith(".py") or "/" in file) else (None, name)


def load(path: Path, attribute: str, where: str) -> Any:  # noqa: ANN401 - the caller checks its type
    """Run the file and give what it calls ``attribute``; ``where`` says what that is for."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}", where=where)
    known = f"{OWN_FILE}{abs(hash(str(path.resolve())))}"
    spec = spec_from_file_location(known, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} cannot be imported", where=where, fix="its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[known] = module  # dataclasses and pickling look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{path} {raised(error)}", where=where) from error
    if not hasattr(module, attribute):
        raise UnknownName.among("function or class in the file", attribute, _public(module), where=where)
    return getattr(module, attribute)


def _public(module: object) -> list[str]:
    return [name for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")]
