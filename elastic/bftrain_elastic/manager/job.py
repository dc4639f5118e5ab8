"""A job: the program of a task."""

from __future__ import annotations

import ast
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.agent import script
from bftrain_elastic.agent.prefork_server import LAUNCHER
from bftrain_elastic.errors import BadJob

_PYTHON: Final = "python3"  # the Python on PATH after the lines have run, or in the image
# The setup lines are arguments of the command, not text in this program, so they need no quoting. They see no
# arguments: a sourced file would take these for its own
_BASH: Final = """\
_bftrain_n=$1; shift
_bftrain_lines=("${@:1:_bftrain_n}"); _bftrain_command=("${@:_bftrain_n+1}"); set --
for _bftrain_line in "${_bftrain_lines[@]}"; do
  eval "$_bftrain_line" || { echo "bftrain: setup failed: $_bftrain_line" >&2; exit 1; }
done
exec "${_bftrain_command[@]}"
"""
_READ_BYTES: Final = 262_144  # longer texts count as Python, unless their #! line or suffix is of a shell
_LARGEST_EXIT_CODE: Final = 125  # shells use higher codes for commands that could not run, or were killed


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJob:
    """The program of a task, and the folders of its commits and logs.

    ``argv`` is a ``.py`` script and its arguments, or any command for launchers that accept commands. ``folder`` is on
    storage that all nodes share. ``stop_grace_s``: seconds allowed for a planned stop. ``workers_per_node`` 0 means one
    per slot of the agent: per GPU, or one on a node with no GPU. With ``finish_code`` or ``finish_file`` a program
    reports that its work is done, by that exit code, or by that file and an exit with 0 (relative paths start in
    ``folder``); any other exit is then a preemption or a failure. ``work_samples`` is the whole work, if known. A task
    that makes no step for ``stall_limit_s`` seconds gives its nodes back; 0: never. With ``setup`` (lines of bash),
    ``prefix`` (words in front of the command) or ``python`` it runs in its own environment and is not forked. Copies of
    the state are kept under ``identity``, which no later task of the same name or folder has (default: the folder).
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
    identity: str = ""

    def __post_init__(self) -> None:
        """Validate all fields."""
        if not self.argv or not all(self.argv) or any(type(word) is not str for word in self.argv):
            raise BadJob("must be a script or command, and its arguments", where="argv")
        if not self.folder:
            raise BadJob("names no folder for commits and logs", where="folder")
        object.__setattr__(self, "identity", self.identity or self.folder)
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
                fix=f"0 may also mean a preemption, {os.EX_TEMPFAIL} a lost group, and shells use the codes above",
            )

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> LauncherJob:
        """Read a job from its JSON form."""
        try:
            words = {name: tuple(plain.get(name, ())) for name in ("argv", "setup", "prefix")}
            return cls(**{**plain, **words})
        except TypeError as error:
            raise BadJob(str(error), where="job") from error

    def require_python(self, launcher: str) -> None:
        """Raise ``BadJob`` if ``argv`` names a file or command that is not Python; an unreadable file passes."""
        name = self.argv[0]
        path = Path(self.cwd, name)
        command = name if "/" in name else f"./{name}"
        try:
            python = _is_python(path)
        except FileNotFoundError:
            python, command = "/" in name or shutil.which(name) is None, name
        except OSError:
            python = True
        if not python:
            executable = not path.exists() or os.access(path, os.X_OK)
            fix = f"use --launcher process {command}" + ("" if executable else f" after chmod +x {command}")
            raise BadJob(f"is no Python script, which the {launcher} launcher requires", where=name, fix=fix)

    @property
    def has_own_environment(self) -> bool:
        """Whether it runs in its own environment instead of a fork of an agent's prefork server."""
        return bool(self.setup or self.prefix or self.python)

    def command(self, env: Mapping[str, str], *, warm: bool) -> tuple[tuple[str, ...], bool]:
        """Return the command that an agent runs, and whether a fork of its prefork server can run it.

        In its own environment, a script is run by a new Python that has not preloaded any modules.
        """
        argv = self.argv
        if not self.has_own_environment:
            return argv, warm
        if warm:
            horovod = env.get(LAUNCHER) == "horovod"  # the starter replaces parts of Horovod first
            starter = ("-m", script.__name__) if horovod else ()
            argv = (self.python or _PYTHON, *starter, *argv)
        argv = (*self.prefix, *argv)
        if self.setup:
            argv = ("bash", "--noprofile", "--norc", "-c", _BASH, "bash", f"{len(self.setup)}", *self.setup, *argv)
        return argv, False

    @property
    def reports_its_end(self) -> bool:
        """Whether the program reports by an exit code or a file that its work is done."""
        return self.finish_code is not None or bool(self.finish_file)

    @property
    def finish_path(self) -> str:
        """The absolute path of ``finish_file``; "" if it is unset."""
        return str(Path(self.folder, self.finish_file)) if self.finish_file else ""

    @property
    def logs(self) -> Path:
        """The folder of workers' output."""
        return Path(self.folder) / "logs"


def _is_python(path: Path) -> bool:
    """Return whether a file is a Python script, or a folder has ``__main__.py``."""
    if path.is_dir():
        return (path / "__main__.py").is_file()
    with path.open("rb") as file:
        content = file.read(_READ_BYTES)
    if content.startswith(b"#!"):
        return b"py" in content.partition(b"\n")[0]
    if path.suffix in {".sh", ".bash"}:
        return False
    if path.suffix in {".py", ".pyc", ".pyz"} or zipfile.is_zipfile(path):
        return True
    try:
        return (len(content) == _READ_BYTES and b"\0" not in content) or bool(ast.parse(content))
    except (SyntaxError, ValueError):
        return False
