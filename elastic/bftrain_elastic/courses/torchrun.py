"""The torchrun course: the process course with ``torchrun`` on each node, which starts the node's workers itself.

For scripts that insist on torchrun. It is slower: Python and torch are started anew at each change, and its meeting
point listens on all interfaces.
"""

from __future__ import annotations

import sys

from bftrain_elastic.courses import Floor
from bftrain_elastic.courses.process import Process, ProcessCourse
from bftrain_elastic.errors import BadJob
from bftrain_elastic.jobs import Job


class TorchrunCourse(ProcessCourse):
    """One task under the torchrun launcher."""

    def __init__(self, task: str, job: Job, floor: Floor) -> None:
        if not job.argv[0].endswith(".py"):
            raise BadJob("torchrun starts Python scripts", where="argv", fix="use the process launcher")
        super().__init__(task, job, floor)

    def _slots(self, node: str) -> int:  # noqa: ARG002 - torchrun itself starts one worker a slot
        return 1

    def _argv(self, process: Process, address: str, port: int) -> tuple[str, ...]:
        workers = self._job.workers_per_node or self._floor.slots(process.node)
        return (
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes={self._size_of_group}", f"--node-rank={process.rank}", f"--nproc-per-node={workers}"),
            # Rank 0's agent finds a port, and puts it there
            *(f"--master-addr={address}", f"--master-port={port or '$MASTER_PORT'}"),
            *self._job.argv,
        )
