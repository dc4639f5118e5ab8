"""The process course: any command, stopped and started again from its own checkpoint at each change.

For programs that cannot change their group. A command runs on every node (and every slot), with torchrun's names in
the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and as under torchrun it
sees all GPUs of the node, of which the one numbered LOCAL_RANK is its own. It gets SIGTERM and ``stop_grace_s`` seconds
to write its checkpoint, into the folder BFTRAIN_FOLDER or wherever it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

from bftrain_elastic.courses import Floor, Left
from bftrain_elastic.courses.strikes import Strikes, last_word, told_how
from bftrain_elastic.jobs import Job
from bftrain_elastic.messages import Message

COMPANY_S: Final = 5.0  # how long a start waits for agents that are not there yet
SILENT_S: Final = 10.0  # a command that says nothing and lives that long runs
BROKEN_GRACE_S: Final = 2.0  # for those whose group lost a member: there is nothing left to agree on


@dataclass(eq=False)
class Process:
    """One process of the present generation."""

    name: str
    node: str
    rank: int
    slot: int
    stopping: bool = False


class ProcessCourse:
    """One task under the process launcher."""

    launcher: ClassVar = "process"  # as workers are told

    def __init__(self, task: str, job: Job, floor: Floor) -> None:
        self._task = task
        self._job = job
        self._floor = floor
        self._wanted: tuple[str, ...] = ()
        self._running: dict[str, Process] = {}
        self._nodes: tuple[str, ...] = ()  # of the present generation
        self._to_start: list[Process] = []  # those that wait for rank 0's port
        self._generation = 0
        self._confirmed = True
        self._since = inf  # since when the youngest process lives
        self._waiting_since = 0.0
        self._ended_well = 0
        self._size_of_group = 0
        self._step = 0
        self._strikes = Strikes()
        self._over = ""
        self._paused = True

    # -- what happened

    def want(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Hold these nodes; clear those ``at_once``."""
        if nodes and not self._wanted:
            self._waiting_since = self._floor.now()
        self._wanted = nodes
        if nodes and self._over != "done":
            if self._over:
                self._strikes = Strikes()
            self._over, self._paused = "", False
        for process in list(self._running.values()):
            if process.node in at_once:
                self._stop(process, 0.0)
        self._settle()

    def node_up(self, node: str) -> None:  # noqa: ARG002 - all wanted nodes are looked at
        """Start there what is wanted."""
        self._settle()

    def node_gone(self, node: str) -> None:  # noqa: ARG002 - its processes' ends were told
        """Go on with the rest."""
        self._waiting_since = self._floor.now() - COMPANY_S
        self._settle()

    def adopt(self, node: str, left: Left) -> bool:
        """Take over a process that went on without a manager: it may write its checkpoint, and is started again."""
        if node not in self._wanted or self._over or self._generation:
            return False
        process = Process(left.worker, node, rank=-1, slot=left.slot)
        self._running[left.worker] = process
        self._step = max(self._step, left.step)
        self._stop(process, self._job.stop_grace_s)
        return True

    def spawned(self, worker: str, port: int) -> None:
        """Start the others once rank 0 has its port."""
        self._since = self._floor.now()
        first = self._running.get(worker)
        if first is None or first.rank or not self._to_start:
            return
        waiting, self._to_start = self._to_start, []
        for process in waiting:
            if not first.stopping:
                self._launch(process, self._floor.address(first.node), port)

    def said(self, worker: str, message: Message) -> None:
        """Hear what a process says."""
        if worker not in self._running:
            return
        match message.get("say"):
            case "report":
                self._further(int(message["step"]))
                fields = ("t", "step", "size", "samples", "loss")
                self._floor.tell({"told": "report", **{name: message.get(name) for name in fields}})
            case "committed" | "saved" as what:
                self._step = max(self._step, int(message["step"]))
                self._floor.tell({"told": what, "step": int(message["step"])})
        self._settle()

    def exited(self, worker: str, code: int, tail: str) -> None:
        """Know how a process ended."""
        process = self._running.pop(worker, None)
        if process is None:
            return
        if code == 0 and not process.stopping:
            self._ended_well += 1
            if self._ended_well == self._size_of_group:
                self._over = "done"
        else:
            if not process.stopping and self._floor.slots(process.node):
                self._strike(process, code, tail)
            for other in self._running.values():
                self._stop(other, min(BROKEN_GRACE_S, self._job.stop_grace_s))
        if not any(one.node == process.node for one in self._running.values()):
            self._floor.tell({"told": "vacated", "nodes": [process.node]})
        self._settle()

    def tick(self, now: float) -> None:
        """Believe that a silent command runs; start without agents that do not come."""
        if self._running and not self._confirmed and now - self._since > SILENT_S:
            self._further(self._step)
        self._settle()

    # -- what follows

    def _settle(self) -> None:
        if self._running:
            there = self._there()
            if self._confirmed and (self._over or (there and there != self._nodes) or not self._wanted):
                for process in self._running.values():
                    self._stop(process, self._job.stop_grace_s)
            return
        self._to_start = []
        if self._over or not self._wanted:
            self._end()
            return
        there = self._there()
        if there and (len(there) == len(self._wanted) or self._floor.now() - self._waiting_since > COMPANY_S):
            self._start(there)

    def _there(self) -> tuple[str, ...]:
        return tuple(node for node in self._wanted if self._floor.slots(node))

    def _start(self, nodes: tuple[str, ...]) -> None:
        self._generation += 1
        self._nodes, self._confirmed, self._since = nodes, False, inf
        self._ended_well = 0
        places = [(node, slot) for node in nodes for slot in range(self._slots(node))]
        processes = [
            Process(self._floor.name(node, slot), node, rank, slot) for rank, (node, slot) in enumerate(places)
        ]
        self._size_of_group = len(processes)
        self._to_start = processes[1:]
        self._launch(processes[0], self._floor.address(processes[0].node), 0)

    def _slots(self, node: str) -> int:
        return self._job.workers_per_node or self._floor.slots(node)

    def _argv(self, process: Process, address: str, port: int) -> tuple[str, ...]:  # noqa: ARG002 - for those who start it otherwise
        """Give what to run; the port is 0 for rank 0, whose agent finds one."""
        return self._job.argv

    def _launch(self, process: Process, address: str, port: int) -> None:
        argv = self._argv(process, address, port)
        self._running[process.name] = process
        env = {
            **self._job.env,
            "BFTRAIN_LAUNCHER": self.launcher,
            "BFTRAIN_FOLDER": self._job.folder,
            "BFTRAIN_SIZE": str(len(self._nodes)),
            "RANK": str(process.rank),
            "LOCAL_RANK": str(process.slot),
            "LOCAL_WORLD_SIZE": str(self._slots(process.node)),
            "WORLD_SIZE": str(self._size_of_group),
            "MASTER_ADDR": address,
            **({"MASTER_PORT": str(port)} if port else {}),
        }
        self._floor.spawn(
            process.node,
            process.name,
            argv=argv,
            env=env,
            slot=process.slot,
            warm=argv[0].endswith(".py"),
            want_port=process.rank == 0,
            all_gpus=True,
        )

    def _further(self, step: int) -> None:
        self._step = max(self._step, step)
        if not self._confirmed:
            self._confirmed = True
            told = {"told": "confirmed", "generation": self._generation, "size": len(self._nodes)}
            self._floor.tell({**told, "nodes": list(self._nodes), "step": step})

    def _stop(self, process: Process, grace_s: float) -> None:
        if not process.stopping or grace_s == 0:
            process.stopping = True
            self._floor.stop(process.name, grace_s=grace_s)

    def _strike(self, process: Process, code: int, tail: str) -> None:
        how = told_how(process.name, code)
        if self._strikes.another(self._step):
            self._over = f"{how}\n{tail}".strip()
        else:
            self._floor.tell({"told": "note", "text": f"{how}{last_word(tail)}; all are started again"})

    def _end(self) -> None:
        if self._paused:
            return
        self._paused, self._confirmed = True, True
        if self._over == "done":
            self._floor.tell({"told": "done", "step": self._step})
        elif self._over:
            self._floor.tell({"told": "failed", "reason": self._over})
        else:
            self._floor.tell({"told": "paused", "step": self._step})
