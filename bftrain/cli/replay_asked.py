"""What is asked of a replay on the command line, wherever its nodes come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The inputs, where the result goes, and what besides; ``given`` are the settings. ``None``: nothing was said."""

    log: Path | None
    cluster: Mapping[str, int] | None
    until_s: float | None
    ideal: bool | None
    kinds: Path | None
    task_file: Path | None
    folder: Path | None
    baseline: str
    tables: str
    resume: bool
    config: Path | None
    given: Mapping[str, Any]
