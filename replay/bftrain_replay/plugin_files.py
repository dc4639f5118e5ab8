"""Files in the settings of a replay or a run in rounds: plug-ins, such as a policy, and tables of speeds or phases."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain import parts

S = TypeVar("S", bound=msgspec.Struct)
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

# The settings that name parts (replays and rounds lack a few), and the function that makes file names in them absolute
_NAMING: Final[Mapping[str, Callable[[str, Path | None], str]]] = {
    "objective": parts.absolute_name,
    "policy": parts.absolute_admission,
    "admission": parts.absolute_admission,
    "metrics": parts.absolute_metrics,
}
TABLES: Final = ("pairs", "phases")  # settings that name a table of speeds


def from_anywhere(settings: S, folder: Path | None = None) -> S:
    """Return the settings with absolute paths of plug-in files and tables, which are relative to ``folder``."""
    named = {name: _NAMING[name](value, folder) for name, value in _plugin_settings(settings)}
    paths = {name: str(path.absolute()) for name, path in tables(settings, folder)}
    return replace(settings, **named, **paths)


def tables(settings: msgspec.Struct, folder: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield each setting that names a table, and the path of the table, which is relative to ``folder``."""
    for name in TABLES:
        if given := getattr(settings, name, ""):
            yield name, (folder or Path()) / Path(given).expanduser()


def tables_sha256(settings: msgspec.Struct) -> dict[str, str]:
    """Return the SHA-256 of each readable table, by setting."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in tables(settings) if path.is_file()}


def files(settings: msgspec.Struct) -> Iterator[Path]:
    """Yield the plug-in files."""
    for option, value in _plugin_settings(settings):
        for name in names_in(option, value):
            file, _ = parts.split_name(name)
            if file is not None:
                yield file


def names_in(option: str, value: str) -> list[str]:
    """Return the names of parts in a setting: metrics are a list; a policy or an admission may have parameters."""
    if option == "metrics":
        return [name.strip() for name in value.split(",")]
    return [parts.name_of(value) if option in {"policy", "admission"} else value]


def sha256(settings: msgspec.Struct) -> str:
    """Return the SHA-256 of the plug-in files and of user modules they import; "" without readable files."""
    read = dict.fromkeys(file for named in files(settings) if named.is_file() for file in (named, *_imported_by(named)))
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in read]
    return found[0] if len(found) == 1 else hashlib.sha256(" ".join(found).encode()).hexdigest() if found else ""


def _imported_by(file: Path) -> Iterator[Path]:
    """Yield the files of all modules that a file imports, directly or not, except those of installed packages."""
    seen, open_files = set[str](), [file]
    while open_files:
        try:
            nodes = list(ast.walk(ast.parse(open_files.pop().read_bytes())))
        except (SyntaxError, ValueError):  # loading the file reports it
            continue
        named = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
        named += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
        for name in sorted({name.partition(".")[0] for name in named} - seen - sys.stdlib_module_names):
            seen.add(name)
            found = _source_of(name)
            open_files += found
            yield from found


def _source_of(name: str) -> list[Path]:
    """Return the files of a module or package; none if it is installed, since such files are not edited."""
    spec = PathFinder.find_spec(name)  # locates the module without importing it
    origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
    if origin is None or origin.suffix != ".py" or name.startswith("bftrain"):
        return []
    if not _INSTALLED.isdisjoint(origin.parts):
        return []
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def _plugin_settings(settings: msgspec.Struct) -> Iterator[tuple[str, str]]:
    return ((name, getattr(settings, name)) for name in _NAMING if name in settings.__struct_fields__)
