"""The processes of a group that is started as a whole, and what each of them finds in its environment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.failures import WorkerDeath, exit_text


@dataclass(eq=False)
class GroupProcess:
    """One process of the present generation."""

    name: str
    node: str
    rank: int
    slot: int
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class GroupSize:
    """How large a group is: processes in all, nodes, and processes on the node of one of them."""

    processes: int
    nodes: int
    on_node: int


def environment(
    job: LauncherJob, launcher: str, process: GroupProcess, size: GroupSize, meeting: tuple[str, int]
) -> dict[str, str]:
    """Return the environment of a process, with torchrun's names.

    ``meeting`` is the address and port of rank 0; the port is 0 for rank 0 itself, whose agent finds one.
    """
    address, port = meeting
    return {
        **job.env,
        "BFTRAIN_LAUNCHER": launcher,
        "BFTRAIN_FOLDER": job.folder,
        "BFTRAIN_SIZE": str(size.nodes),
        "RANK": str(process.rank),
        "LOCAL_RANK": str(process.slot),
        "LOCAL_WORLD_SIZE": str(size.on_node),
        "WORLD_SIZE": str(size.processes),
        "MASTER_ADDR": address,
        **({"MASTER_PORT": str(port)} if port else {}),
    }


def death_of(
    process: GroupProcess, end: WorkerExit, nodes: Iterable[str], began_s: float, *, started: bool
) -> WorkerDeath:
    """Describe the end of a process that was not ordered. ``nodes`` are those of its group, started at ``began_s``."""
    return WorkerDeath(
        text=exit_text(process.name, end.code),
        node=process.node,
        nodes=frozenset({process.node, *nodes}),
        exit=end,
        began_s=began_s,
        started=started,
    )
