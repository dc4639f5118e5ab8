"""A job: what to run for a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bftrain_elastic.errors import BadJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run, and where its commits and logs are kept.

    ``argv`` is a script that ends in ``.py`` and its arguments, or any command for launchers that take one.
    ``folder`` is on storage that all nodes share. ``stop_grace_s`` is how many seconds a planned stop may take;
    ``workers_per_node`` 0 means one a GPU, or one where there is none.
    """

    argv: tuple[str, ...]
    folder: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    workers_per_node: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        if not self.argv or not all(self.argv) or any(type(word) is not str for word in self.argv):
            raise BadJob("must be a script or command, and its arguments", where="argv")
        if not self.folder:
            raise BadJob("names no folder for commits and logs", where="folder")
        if not all(isinstance(one, str) for pair in self.env.items() for one in pair):
            raise BadJob("must map names to strings", where="env")
        if self.stop_grace_s < 0:
            raise BadJob("must not be negative", where="stop_grace_s")
        if self.workers_per_node < 0:
            raise BadJob("must not be negative", where="workers_per_node")

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Job:
        """Read a job from its JSON form."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise BadJob(f"unknown: {', '.join(unknown)}", where="job", fix=f"known: {', '.join(sorted(known))}")
        try:
            return cls(**{**plain, "argv": tuple(plain.get("argv", ()))})
        except TypeError as error:
            raise BadJob(str(error), where="job") from error

    @property
    def logs(self) -> Path:
        """Where workers' output goes."""
        return Path(self.folder) / "logs"
