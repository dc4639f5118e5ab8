"""Origins: what a result was made from and with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from bftrain import summaries
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.saturating import SaturatingWorkload

FORMAT: Final = "bftrain replay 1"  # of the files in a replay's folder


class InputSource(msgspec.Struct, frozen=True, kw_only=True):
    """How the caller named the inputs: a log, a task file, a baseline. Empty for what was made in memory.

    ``options`` are those that say more of the inputs, such as ``--kinds FILE``, or a cluster instead of a log.
    ``workload`` is what was replayed where no tasks were given.
    """

    log: str = ""
    tasks: str = ""
    baseline: str = ""
    options: tuple[str, ...] = ()
    workload: SaturatingWorkload | None = None

    @property
    def task_name(self) -> str:
        """The name of the tasks: that of their file, or what was made in its place."""
        return self.tasks or (f"{self.workload.trials} trials of {self.workload.model}" if self.workload else "")


def tasks_sha256(tasks: Sequence[TaskSpec]) -> str:
    """SHA-256 of what the tasks say, from any file."""
    # With every field, since equal tasks may differ in which defaults their JSON leaves out; but for batches and
    # spread that are not given, so that results from before tasks had these are of the same tasks
    specs = [msgspec.structs.asdict(spec) for spec in tasks]
    for fields in specs:
        for name in ("batch", "spread"):
            if fields[name] is None:
                del fields[name]
    return hashlib.sha256(wire.encode(specs)).hexdigest()


def versions_with(solver: str) -> dict[str, str]:
    """Give the versions of what figures depend on that ``solver`` decides."""
    from bftrain.assembly import find_solver  # noqa: PLC0415 - rounds ask no solver, and its search is slow

    return {
        **summaries.versions(),
        f"solver {solver}": find_solver(solver).available().version,
    }
