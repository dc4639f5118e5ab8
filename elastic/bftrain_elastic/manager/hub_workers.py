"""The workers of all tasks: their names, nodes and slots, and starts that wait until a node has room."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from bftrain_elastic.manager.hub_inputs import AgentConnection, RunningWorker
from bftrain_elastic.wire import agent_messages as wire
from bftrain_elastic.wire.agent_messages import WorkerExit
from bftrain_elastic.wire.messages import WireMessage

KILLED: Final = WorkerExit(-9)  # exit of a worker that never started, or that lost its agent
_ENDS: Final = 10_000  # number of remembered worker exits


class HubWorkers:
    """All workers on the hub's ``agents``, by node. Used in the hub's thread.

    ``epoch`` rises with each start of a manager. ``on_exit`` is called once for each worker of a task, ``defer`` runs a
    function in the next turn of the thread.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentConnection],
        epoch: int,
        on_exit: Callable[[RunningWorker, str, WorkerExit], object],
        defer: Callable[[Callable[[], object]], object],
    ) -> None:
        self._agents = agents
        self._epoch = epoch
        self._on_exit = on_exit
        self._defer = defer
        self._names = 0  # number of names given so far
        self._records: dict[str, RunningWorker] = {}  # workers that have not exited
        self._ends: dict[str, bool] = {}  # exited worker -> whether its agent reported the exit
        self._waiting: dict[str, wire.SpawnWorker] = {}  # workers that wait until their node has room for them
        self._holding = False  # worker starts are suspended

    def new_name(self, task: str, node: str, slot: int) -> str:
        """Return a new worker name; names are never reused."""
        self._names += 1
        return f"{task}/{node}/{slot}/{self._epoch}-{self._names}"

    def _never_name_again(self, worker: str) -> None:
        epoch, _, number = worker.rpartition("/")[2].partition("-")
        if epoch == str(self._epoch) and number.isdecimal():
            self._names = max(self._names, int(number))

    def spawn(self, node: str, order: wire.SpawnWorker) -> None:
        """Start a worker as soon as its node has room for it."""
        self._records[order.worker] = RunningWorker(order.task, node, order.slot)
        self._waiting[order.worker] = order
        self.start_waiting()

    def hold(self, *, holding: bool) -> None:
        """Suspend worker starts, or start the suspended workers."""
        self._holding = holding
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start waiting workers with a free node and slot."""
        for worker, order in () if self._holding else list(self._waiting.items()):
            agent = self._agents.get(self._records[worker].node)
            if agent is not None and agent.has_room(order):
                del self._waiting[worker]
                agent.workers[worker] = self._records[worker]
                agent.send(order)

    def task_of(self, worker: str) -> str | None:
        """Return the task of a worker that has not exited."""
        return self._records[worker].task if worker in self._records else None

    def send(self, worker: str, message: WireMessage) -> None:
        """Send a worker a message, unless it has exited."""
        self._order(worker, wire.MessageToWorker(worker, message.to_dict()))

    def inspect(self, worker: str) -> None:
        """Request a dump of a worker's stacks into its log; its task receives the state of its process."""
        self._order(worker, wire.InspectWorker(worker))

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; a waiting worker is dropped."""
        if self._waiting.pop(worker, None) is not None:
            self._defer(lambda: self.ended(worker, KILLED))  # the caller is the worker's lifecycle
        else:
            self._order(worker, wire.StopWorker(worker, grace_s))

    def _order(self, worker: str, message: WireMessage) -> None:
        if (record := self._records.get(worker)) is not None and record.node in self._agents:
            self._agents[record.node].send(message)

    def clear(self, nodes: Collection[str]) -> None:
        """Kill all workers on these nodes, including workers of other managers."""
        for worker in self.take_waiting(nodes):
            self.ended(worker, KILLED)
        for node in nodes:
            if (agent := self._agents.get(node)) is not None and agent.workers:
                agent.send(wire.ClearNode())

    def take_waiting(self, nodes: Collection[str]) -> list[str]:
        """Remove all workers that wait for room on these nodes; return their names for :meth:`ended`.

        Remove all of them before the first exit is reported: a lifecycle may then stop the rest.
        """
        taken = [worker for worker in self._waiting if self._records[worker].node in nodes]
        for worker in taken:
            del self._waiting[worker]
        return taken

    def drop_task(self, task: str) -> None:
        """Kill all workers of a task, and let agents drop their exit records."""
        for worker in self.of({task}):
            self.stop(worker, 0.0)
        self._ends = {worker: reported for worker, reported in self._ends.items() if not worker.startswith(f"{task}/")}
        for agent in self._agents.values():
            agent.send(wire.ForgetWorkers(task))

    def of(self, tasks: Collection[str]) -> list[str]:
        """Return the workers of these tasks that have not exited."""
        return [worker for worker, record in self._records.items() if record.task in tasks]

    def nodes_with(self, task: str) -> frozenset[str]:
        """Return the nodes where workers of a task run or are being started."""
        return frozenset(self._records[worker].node for worker in self.of({task}))

    def ended(self, worker: str, exit_: WorkerExit, *, reported: bool = False) -> None:
        """Record a worker's exit: its agent reported it (``reported``), is gone, or never started it."""
        self._remember_end(worker, reported=reported)
        if (record := self._records.pop(worker, None)) is not None:
            self._on_exit(record, worker, exit_)

    def _remember_end(self, worker: str, *, reported: bool) -> None:
        self._ends[worker] = reported
        while len(self._ends) > _ENDS:
            del self._ends[next(iter(self._ends))]

    def adopt(self, agent: AgentConnection, left: wire.LeftWorker, adopts: Callable[[], bool]) -> None:
        """Take over a worker of an earlier manager or connection, or its exit, if its task ``adopts`` it.

        Other running workers are killed. An exit is reported once; the agent keeps it for the next manager, and drops
        it if no task needs it.
        """
        worker, task = left.worker, left.task
        self._never_name_again(worker)
        if left.exit is None:
            agent.workers[worker] = self._records[worker] = RunningWorker(task, agent.node, left.slot)
        elif self._ends.get(worker):
            return
        else:
            self._remember_end(worker, reported=True)
        if adopts():
            return
        agent.send(wire.ForgetWorkers(task, worker))
        if left.exit is None:
            self._records.pop(worker, None)
            # It keeps the slot blocked until it has exited
            agent.workers[worker] = RunningWorker("", agent.node, left.slot)
            agent.send(wire.StopWorker(worker))
