"""Lifecycle of one task under the torchrun launcher."""

from __future__ import annotations

from typing import ClassVar

from bftrain_elastic.manager.task_lifecycles.process import GroupProcess, ProcessLifecycle
from bftrain_elastic.starters import torchrun


class TorchrunLifecycle(ProcessLifecycle):
    """One task under the torchrun launcher: ``torchrun`` on each node, which starts the node's workers itself.

    For scripts that insist on torchrun. Its workers are forks that have torch already, but start again at each change.
    """

    launcher: ClassVar = "torchrun"

    def _slots(self, node: str) -> int:  # noqa: ARG002 - torchrun itself starts one worker a slot
        return 1

    def _argv(self, process: GroupProcess, address: str, port: int) -> tuple[str, ...]:
        workers = self._job.workers_per_node or self._context.slots(process.node)
        # Rank 0's agent finds a port, and puts it there
        where = f"{address}:{port or '$MASTER_PORT'}"
        return (
            str(torchrun.__file__),
            str(self._size_of_group),
            str(process.rank),
            str(workers),
            where,
            *self._job.argv,
        )
