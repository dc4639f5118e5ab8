"""Provenance: the inputs and versions behind a result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bftrain import summaries
from bftrain.errors import UnknownName
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.task_generators import SaturatingWorkload

FORMAT: Final = "bftrain replay 1"  # format of a replay folder's files
LOG_FILE: Final = "log.npz"  # the part of the log that was replayed, in the folder of a replay


class InputSource(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the inputs: a log, a task file, a baseline solver; empty for values in memory.

    ``options`` are further input options, such as ``--kinds FILE``, or ``--cluster`` instead of a log. ``workload``
    describes the generated tasks if none were given.
    """

    log: str = ""
    tasks: str = ""
    baseline: str = ""
    options: tuple[str, ...] = ()
    workload: SaturatingWorkload | None = None

    @property
    def task_name(self) -> str:
        """The task file, or a description of the generated tasks."""
        return self.tasks or (f"{self.workload.trials} trials of {self.workload.model}" if self.workload else "")

    def command(self, name: str) -> Sequence[str]:
        """Return the words of the command ``bftrain NAME`` that repeats the run; empty if an input is in memory."""
        if not (self.log or self.options) or not (self.tasks or self.workload):
            return ()
        words = ["bftrain", name, *filter(None, (self.log,)), *self.options]
        words += ["--tasks", self.tasks] if self.tasks else []
        return [*words, *(["--baseline", self.baseline] if self.baseline else [])]


def file_name(source: object) -> str:
    """Return the name of an input file; "" for a value in memory."""
    return str(source) if isinstance(source, str | Path) else ""


def tasks_sha256(tasks: Sequence[TaskSpec]) -> str:
    """Return the SHA-256 of the tasks; it does not depend on the form of their file."""
    # All fields are hashed, since equal tasks may omit different defaults in JSON. Unset batches, spread and resources
    # are left out, so hashes of results from before these fields stay valid
    specs = [msgspec.structs.asdict(spec) for spec in tasks]
    for fields in specs:
        for name in ("batch", "spread", "resources"):
            if fields[name] is None:
                del fields[name]
    return hashlib.sha256(wire.encode(specs)).hexdigest()


def versions_with(solver: str) -> dict[str, str]:
    """Return the versions of the software that figures with ``solver`` depend on; raise if it is not installed."""
    from bftrain.assembly import find_solver  # noqa: PLC0415 - takes a moment, and rounds ask no solver

    found = summaries.versions()
    with suppress(UnknownName):
        found[f"solver {solver}"] = find_solver(solver).available().version
    return found
