"""Launchers that run tasks on agents: one lifecycle for each task, driven by actions and events."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager import availability, environment
from bftrain_elastic.manager.agent_hub import AgentHub, HubListener, OnEvent
from bftrain_elastic.manager.availability import LauncherAvailability
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import MakeLifecycle, TaskLifecycle
from bftrain_elastic.manager.task_lifecycles.native import HorovodLifecycle, NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from bftrain_elastic.wire.agent_messages import LeftWorker, SpawnWorker
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.wire.worker_messages import CopyPlace

_AT_ONCE: Final = frozenset({"preempted", "cancelled", "failed"})
_FOR_PYTHON: Final = frozenset({"native", "horovod"})
_CLOSING_S: Final = 30.0


class AgentLauncher:
    """A launcher for tasks on a hub's agents; ``make_lifecycle`` builds the lifecycle of a task.

    Messages are sent to the hub's ``tell``.
    """

    def __init__(self, name: str, make_lifecycle: MakeLifecycle, hub: AgentHub) -> None:
        self.name = name
        self._make_lifecycle = make_lifecycle
        self._hub = hub
        self._names: set[str] = set()  # tasks known to callers; the rest belongs to the hub's thread
        self._jobs: dict[str, LauncherJob] = {}
        self._lifecycles: dict[str, TaskLifecycle] = {}
        self._held: dict[str, tuple[str, ...]] = {}  # allocated nodes by task
        self._by_node: dict[str, list[str]] | None = None  # tasks by node; None after a change
        self._limits: dict[str, int] = {}  # size limit by task, if it should not run on all its nodes
        hub.ask(lambda: hub.attach(self))

    # -- from any thread

    def add(self, task: str, job: Mapping[str, Any] | LauncherJob) -> None:
        """Register the job of ``task``."""
        what = job if isinstance(job, LauncherJob) else LauncherJob.read(job)
        if self.name in _FOR_PYTHON:
            what.require_python(self.name)
        lifecycle = self._new_lifecycle(task, what)
        Path(what.folder).mkdir(mode=0o700, parents=True, exist_ok=True)  # may hang; other tasks may be added meanwhile
        if task in self._names:
            raise BadJob("already exists", where=f"task '{task}'")
        self._names.add(task)
        self._hub.call(lambda: self._add(task, what, lifecycle))

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns immediately."""
        self._hub.call(lambda: self._apply(list(actions)))

    def narrow(self, task: str, size: int | None) -> None:
        """Limit a task to the first ``size`` of its nodes, until the next call; it keeps all nodes."""
        self._hub.call(lambda: self._narrow(task, size))

    def set_batch(self, task: str, batch: int) -> None:
        """Set the samples per step of a task over all of its nodes, if its lifecycle supports that."""
        nothing = lambda _: None  # noqa: E731 - of a lifecycle that cannot
        self._hub.call(lambda: self.tell_task(task, lambda one: getattr(one, "set_batch", nothing)(batch)))

    def drop(self, task: str) -> None:
        """Forget a task and kill all its processes."""
        self._names.discard(task)
        self._hub.call(lambda: self._forget(task))

    def close(self) -> None:
        """Kill all workers of all tasks; return once they have exited."""
        for task in list(self._names):
            self.drop(task)
        deadline = time.monotonic() + _CLOSING_S
        while self._hub.ask(lambda: self._hub.busy(self)) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._hub.ask(lambda: self._hub.detach(self))

    # -- in the hub's thread

    def _new_lifecycle(self, task: str, job: LauncherJob) -> TaskLifecycle:
        return self._make_lifecycle(task, job, HubTaskContext(self._hub, self, task, job))

    def _add(self, task: str, job: LauncherJob, lifecycle: TaskLifecycle) -> None:
        self._jobs[task], self._lifecycles[task], self._held[task] = job, lifecycle, ()
        self._by_node = None
        if job.argv[0].endswith(".py") and not environment.is_own(job):
            self._hub.expect_scripts(task)

    def _apply(self, actions: list[Mapping[str, Any]]) -> None:
        now: set[str] = set()
        before: dict[str, tuple[str, ...]] = {}
        for action in actions:
            nodes, task = tuple(action["nodes"]), action.get("task", "")
            match action["action"]:
                case "start" | "grow" if task not in self._held:
                    reason = f"the {self.name} launcher does not know what to run for it"
                    self._hub.emit({"type": "failed", "task": task, "reason": reason})
                case "start" | "grow":
                    before.setdefault(task, self._held[task])
                    self._held[task] += tuple(node for node in nodes if node not in self._held[task])
                    self._by_node = None
                case "shrink" | "stop" if task in self._held:
                    before.setdefault(task, self._held[task])
                    self._remove_nodes(task, nodes)
                    now |= set(nodes) if action.get("cause") in _AT_ONCE else set()
                case "release":
                    now |= set(nodes)
                    for holder, held in self._held.items():
                        if set(held) & set(nodes):
                            before.setdefault(holder, held)
                            self._remove_nodes(holder, nodes)
        for task, held in before.items():
            if self._held[task] and not held:
                self._hub.emit({"type": "starting", "task": task, "nodes": list(self._held[task])})
            self._update_nodes(task, frozenset(now))
            self._report_vacated(task, set(held) - set(self._held[task]) - now)
        self._hub.clear(frozenset(now - {node for wanted in self._held.values() for node in wanted}))

    def _report_vacated(self, task: str, left: set[str]) -> None:
        """Report nodes that a task left and where it has no worker with an exit to report."""
        if empty := left - self._hub.nodes_with(self, task) if left else left:
            self._hub.emit({"type": "vacated", "task": task, "nodes": sorted(empty)})

    def _remove_nodes(self, task: str, nodes: tuple[str, ...]) -> None:
        self._held[task] = tuple(node for node in self._held[task] if node not in nodes)
        self._by_node = None

    def _narrow(self, task: str, size: int | None) -> None:
        if task in self._held:
            self._limits.pop(task, None)
            if size is not None:
                self._limits[task] = max(1, size)
            self._update_nodes(task, frozenset())

    def _update_nodes(self, task: str, now: frozenset[str]) -> None:
        wanted = self._held[task]
        running = wanted[: self._limits.get(task, len(wanted))]
        self.tell_task(task, lambda lifecycle: lifecycle.set_nodes(running, at_once=now - set(wanted)))

    def _forget(self, task: str) -> None:
        job = self._jobs.get(task)
        self._drop(task)
        if job is not None:
            self._hub.forget_copies(job.identity)

    def _drop(self, task: str) -> None:
        self._by_node = None
        for known in (self._jobs, self._lifecycles, self._held, self._limits):
            known.pop(task, None)
        self._hub.drop_task(self, task)

    def tell_task(self, task: str, tell: Callable[[TaskLifecycle], object]) -> object:
        """Call a task's lifecycle. An error fails only this task; its next start creates a new lifecycle."""
        lifecycle = self._lifecycles.get(task)
        try:
            return lifecycle is not None and tell(lifecycle)
        except Exception as error:  # noqa: BLE001 - a launcher of others may do anything
            traceback.print_exc()
            job = self._jobs[task]
            self._drop(task)
            self._add(task, job, self._new_lifecycle(task, job))
            reason = f"the {self.name} launcher broke: {type(error).__name__}: {error}"
            self._hub.emit({"type": "failed", "task": task, "reason": reason})
            return False

    def tell_node(self, node: str, tell: Callable[[TaskLifecycle], object], *, leaves: bool = False) -> None:
        """Call the lifecycles of the tasks on the node; if it ``leaves``, also of tasks with workers there."""
        if self._by_node is None:
            self._by_node = {}
            for task, wanted in self._held.items():
                for one in wanted:
                    self._by_node.setdefault(one, []).append(task)
        tasks = list(self._by_node.get(node, ()))
        tasks += [
            task for task in self._held if leaves and task not in tasks and node in self._hub.nodes_with(self, task)
        ]
        for task in tasks:
            self.tell_task(task, tell)

    def adopt(self, task: str, node: str, left: LeftWorker) -> bool:
        """Return whether a worker of another manager belongs to a task here: it continues, or its exit is reported.

        A running worker must be on a node of its task; for an exited one the node does not matter.
        """
        if left.exit is None and node not in self._held.get(task, ()):
            return False
        return bool(self.tell_task(task, lambda lifecycle: lifecycle.adopt(node, left)))

    def task_of(self, identity: str) -> str:
        """Return the task with an identity, or ""."""
        return next((task for task, job in self._jobs.items() if job.identity == identity), "")

    def tick(self, now: float) -> None:
        """Call all lifecycles."""
        for task in list(self._lifecycles):
            self.tell_task(task, lambda lifecycle: lifecycle.tick(now))


@dataclass(frozen=True, slots=True)
class LauncherFactory:
    """Builds a launcher from a receiver of messages and a hub; ``available``: whether its workers can run here."""

    name: str
    lifecycle: MakeLifecycle
    available: Callable[[], LauncherAvailability]

    def __call__(self, emit: OnEvent, hub: AgentHub) -> AgentLauncher:  # noqa: ARG002 - the hub tells
        """Build a launcher."""
        return AgentLauncher(self.name, self.lifecycle, hub)


# Plain PyTorch: processes stay, and form a new group for each change
native: Final = LauncherFactory("native", NativeLifecycle, availability.torch)
# Scripts that use Elastic Horovod
horovod: Final = LauncherFactory("horovod", HorovodLifecycle, availability.horovod)
# Any command: stopped and started again from its checkpoint at each change
process: Final = LauncherFactory("process", ProcessLifecycle, availability.nothing)


class HubTaskContext:
    """Access of one task's lifecycle to agents, workers and the manager."""

    def __init__(self, hub: AgentHub, listener: HubListener, task: str, job: LauncherJob) -> None:
        self._hub = hub
        self._listener = listener
        self._task = task
        self._job = job
        self.settle_s = hub.settle_s
        self.now = time.monotonic
        self.inspect, self.send, self.stop = hub.inspect, hub.send, hub.stop

    def slots(self, node: str) -> int:
        """Return the number of workers a node takes; 0 if no agent is registered there."""
        agent = self._hub.agent(node)
        return agent.slots if agent else 0

    def address(self, node: str) -> str:
        """Return the node's address for connections from other nodes."""
        agent = self._hub.agent(node)
        return agent.address if agent else ""

    def name(self, node: str, slot: int) -> str:
        """Return the name for a new worker."""
        return self._hub.new_name(self._task, node, slot)

    def spawn(self, node: str, worker: str, **how: Any) -> None:  # noqa: ANN401 - as in TaskContext
        """Start a worker."""
        argv, warm = environment.command(self._job, how["argv"], how["env"], warm=how.get("warm", True))
        how |= {"argv": argv, "warm": warm, "env": dict(how["env"])}
        log = f"{self._job.logs}/{node.replace('/', '_')}-{how.get('slot', 0)}.log"
        how |= {"task": self._task, "cwd": self._job.cwd, "log": log}
        self._hub.spawn(self._listener, node, SpawnWorker(worker=worker, **how))

    def copy_place(self, nodes: Sequence[str]) -> CopyPlace | None:
        """Return where the task sends copies of its state while it is on these nodes."""
        return self._hub.copies.choose(self._job.identity, nodes, self.now())

    def newest_copy(self) -> CopyPlace | None:
        """Return where the newest copy of its state is."""
        return self._hub.copies.newest(self._job.identity)

    def emit(self, event: Message) -> None:
        """Send an event to the manager."""
        self._hub.emit({"task": self._task, **event})
