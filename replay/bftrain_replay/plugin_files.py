"""Plug-in files of users in a replay or a run in rounds, such as an objective or a policy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain import parts

S = TypeVar("S", bound=msgspec.Struct)

# The settings that may name a file, of which not all have each, and how they give it by a name that holds anywhere
_NAMING: Final[Mapping[str, Callable[[str, Path | None], str]]] = {
    "objective": parts.absolute_name,
    "policy": parts.absolute_name,
    "admission": parts.absolute_admission,
    "metrics": parts.absolute_metrics,
}


def from_anywhere(settings: S, folder: Path | None = None) -> S:
    """Return the settings with absolute paths of plug-in files, which are relative to ``folder``."""
    return replace(settings, **{name: _NAMING[name](said, folder) for name, said in _plugin_settings(settings)})


def files(settings: msgspec.Struct) -> Iterator[Path]:
    """Yield the plug-in files."""
    for name, said in _plugin_settings(settings):
        admission = said.partition(",")[0].partition("=")[0]
        for each in said.split(",") if name == "metrics" else (admission if name == "admission" else said,):
            file, _ = parts.split_name(each.strip())
            if file is not None:
                yield file


def sha256(settings: msgspec.Struct) -> str:
    """Return the SHA-256 of the file, or of those of all of them; "" if there is none, or it cannot be read."""
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files(settings) if file.is_file()]
    return found[0] if len(found) == 1 else hashlib.sha256(" ".join(found).encode()).hexdigest() if found else ""


def _plugin_settings(settings: msgspec.Struct) -> Iterator[tuple[str, str]]:
    return ((name, getattr(settings, name)) for name in _NAMING if name in settings.__struct_fields__)
