"""Availability of the launchers' requirements, checked without importing them, which would take seconds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import install_hint

_HOROVOD: Final = "make horovod (in a checkout of bftrain)"


@dataclass(frozen=True, slots=True)
class LauncherAvailability:
    """Whether a launcher can be used here; otherwise the reason and the command that fixes it."""

    ok: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


def nothing() -> LauncherAvailability:
    """Return that it is available: it has no requirements."""
    return LauncherAvailability(ok=True)


def torch() -> LauncherAvailability:
    """Return whether torch is installed."""
    if find_spec("torch") is None:
        return LauncherAvailability(ok=False, reason="torch is not installed", fix=install_hint("torch"))
    return LauncherAvailability(ok=True, version=f"torch {_version('torch')}")


def horovod() -> LauncherAvailability:
    """Return whether a Horovod is installed that fits the installed torch.

    Horovod works only with the torch version it was built against, and notes that version next to its code.
    """
    spec = find_spec("horovod")
    if spec is None:
        return LauncherAvailability(ok=False, reason="Horovod is not installed", fix=_HOROVOD)
    here, wanted = _version("torch"), _built_for(spec.submodule_search_locations or [])
    name = f"Horovod {_version('horovod')}"
    if not wanted:
        return LauncherAvailability(ok=False, reason=f"{name} was built without PyTorch", fix=_HOROVOD)
    if wanted != here:
        why = f"{name} was built for torch {wanted}, and {here or 'none'} is installed"
        return LauncherAvailability(ok=False, reason=why, fix=_HOROVOD)
    return LauncherAvailability(ok=True, version=f"{name}, torch {here}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _built_for(places: list[str]) -> str:
    for place in places:
        try:
            notes = json.loads((Path(place) / "metadata.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(notes, dict) and isinstance(notes.get("pytorch"), str):
            return str(notes["pytorch"])
    return ""
