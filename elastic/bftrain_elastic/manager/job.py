"""A job: what a task runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadJob

_LARGEST_EXIT_CODE: Final = 125  # above it are what shells say of commands that could not run, or were killed


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJob:
    """The program of a task, and where its commits and logs are kept.

    ``argv`` is a script that ends in ``.py`` and its arguments, or any command for launchers that take one.
    ``folder`` is on storage that all nodes share. ``stop_grace_s`` is how many seconds a planned stop may take;
    ``workers_per_node`` 0 means one a GPU, or one where there is none. With ``finish_code`` or ``finish_file`` a
    program says that its work is done by that exit code, or by that file when it ends with 0 (from ``folder`` if
    relative); any other end is then a preemption or a failure. ``work_samples`` is the whole work, if that is known.
    A task without a step for ``stall_limit_s`` seconds gives its nodes back; 0: never. With ``setup`` (lines of bash),
    ``prefix`` (words in front of the command) or ``python`` it runs in an environment of its own, by no fork.
    """

    argv: tuple[str, ...]
    folder: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    workers_per_node: int = 0
    finish_code: int | None = None
    finish_file: str = ""
    work_samples: float | None = None
    stall_limit_s: float = 1800.0
    setup: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    python: str = ""

    def __post_init__(self) -> None:
        """Validate all fields."""
        if not self.argv or not all(self.argv) or any(type(word) is not str for word in self.argv):
            raise BadJob("must be a script or command, and its arguments", where="argv")
        if not self.folder:
            raise BadJob("names no folder for commits and logs", where="folder")
        if not all(isinstance(one, str) for pair in self.env.items() for one in pair):
            raise BadJob("must map names to strings", where="env")
        for name in ("stop_grace_s", "workers_per_node", "stall_limit_s"):
            if getattr(self, name) < 0:
                raise BadJob("must not be negative", where=name)
        if self.finish_code is not None and (
            not 1 <= self.finish_code <= _LARGEST_EXIT_CODE or self.finish_code == os.EX_TEMPFAIL
        ):
            raise BadJob(
                f"must be between 1 and {_LARGEST_EXIT_CODE}, and not {os.EX_TEMPFAIL}",
                where="finish_code",
                fix="preempted programs end with 0 too, and shells use the codes above",
            )

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> LauncherJob:
        """Read a job from its JSON form."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise BadJob(f"unknown: {', '.join(unknown)}", where="job", fix=f"known: {', '.join(sorted(known))}")
        try:
            words = {name: tuple(plain.get(name, ())) for name in ("argv", "setup", "prefix")}
            return cls(**{**plain, **words})
        except TypeError as error:
            raise BadJob(str(error), where="job") from error

    @property
    def finish_path(self) -> str:
        """The absolute path of ``finish_file``; "" if there is none."""
        return str(Path(self.folder, self.finish_file)) if self.finish_file else ""

    @property
    def logs(self) -> Path:
        """The folder of workers' output."""
        return Path(self.folder) / "logs"
