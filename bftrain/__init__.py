"""Fill the idle nodes of a supercomputer's batch queue with elastic training tasks.

``import bftrain`` costs little: the public names are listed in ``__init__.pyi``, for type checkers and this module, and
each is imported from its own module at its first use.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from bftrain.version import __version__ as __version__


@cache
def _module_of_name() -> dict[str, str]:
    """Return the module of each public name, parsed from the imports of the stub file."""
    import ast  # noqa: PLC0415 - most programs import bftrain's modules and never call this
    from pathlib import Path  # noqa: PLC0415 - as above

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class, a function or a string
    if name == "__all__":
        return __dir__()
    if name.startswith("_") or name not in _module_of_name():
        raise AttributeError(f"module 'bftrain' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - as above

    found = getattr(import_module(_module_of_name()[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(_module_of_name())
