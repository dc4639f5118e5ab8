"""Own files: objective, admission and metrics that a replay takes out of files of one's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bftrain import admissions, measuring, objective_file, own_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_replay.settings import ReplaySettings


def from_anywhere(settings: ReplaySettings, folder: Path | None = None) -> ReplaySettings:
    """Give the same settings by names that hold in every folder; files are looked for from ``folder`` on."""
    return replace(
        settings,
        objective=objective_file.from_anywhere(settings.objective, folder),
        admission=admissions.from_anywhere(settings.admission, folder),
        metrics=measuring.from_anywhere(settings.metrics, folder),
    )


def files(settings: ReplaySettings) -> Iterator[Path]:
    """Name them."""
    admission = settings.admission.partition(",")[0].partition("=")[0]
    for name in (settings.objective, admission, *(each.strip() for each in settings.metrics.split(","))):
        file, _ = own_file.parts(name)
        if file is not None:
            yield file


def sha256(settings: ReplaySettings) -> str:
    """Give the SHA-256 of the one, or of those of all of them; nothing if there is none, or none to be read."""
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files(settings) if file.is_file()]
    return found[0] if len(found) == 1 else hashlib.sha256(" ".join(found).encode()).hexdigest() if found else ""
