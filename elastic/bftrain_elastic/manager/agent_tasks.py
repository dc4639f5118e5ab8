"""The tasks on a hub's agents: their nodes and lifecycles. Used in the hub's thread."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bftrain_elastic.manager import environment
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import MakeLifecycle, TaskContext, TaskLifecycle
from bftrain_elastic.wire.agent_messages import LeftWorker

if TYPE_CHECKING:
    from bftrain_elastic.manager.agent_hub import AgentHub

_AT_ONCE: Final = frozenset({"preempted", "cancelled", "failed"})


@dataclass(eq=False)
class AgentTask:
    """One task; ``make`` builds its lifecycle."""

    name: str
    launcher: str
    job: LauncherJob
    make: Callable[[], TaskLifecycle]
    lifecycle: TaskLifecycle
    nodes: tuple[str, ...] = ()  # allocated, oldest first
    limit: int | None = None  # run on the first of these nodes only

    @classmethod
    def of(cls, name: str, launcher: str, job: LauncherJob, make: MakeLifecycle, hub: AgentHub) -> AgentTask:
        """Return a task with a new lifecycle."""

        def new() -> TaskLifecycle:
            return make(name, job, TaskContext(hub, name, job))

        return cls(name, launcher, job, new, new())


class AgentTasks:
    """All tasks of a hub's launchers."""

    def __init__(self, hub: AgentHub) -> None:
        self._hub = hub
        self._tasks: dict[str, AgentTask] = {}
        self._by_node: dict[str, list[AgentTask]] | None = None  # None after a change

    def add(self, task: AgentTask) -> None:
        """Add a task without nodes."""
        self._tasks[task.name] = task
        if task.job.argv[0].endswith(".py") and not environment.is_own(task.job):
            self._hub.expect_scripts(task.name)

    def drop(self, name: str) -> None:
        """Forget a task and its copies, and kill its processes."""
        task = self._tasks.pop(name, None)
        self._by_node = None
        self._hub.drop_task(name)
        if task is not None:
            self._hub.forget_copies(task.job.identity)

    def apply(self, launcher: str, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions in their JSON form."""
        now: set[str] = set()  # nodes to leave immediately
        before: dict[AgentTask, tuple[str, ...]] = {}
        for action in actions:
            now |= self._apply_one(launcher, action, before)
        self._by_node = None
        for task, held in before.items():
            if task.nodes and not held:
                self._hub.emit({"type": "starting", "task": task.name, "nodes": list(task.nodes)})
            self._update_nodes(task, frozenset(now))
            left = set(held) - set(task.nodes) - now
            # Other workers report their exits
            if empty := left - self._hub.nodes_with(task.name) if left else left:
                self._hub.emit({"type": "vacated", "task": task.name, "nodes": sorted(empty)})
        self._hub.clear(frozenset(now.difference(*(task.nodes for task in self._tasks.values()))))

    def _apply_one(
        self, launcher: str, action: Mapping[str, Any], before: dict[AgentTask, tuple[str, ...]]
    ) -> frozenset[str]:
        """Update the nodes of tasks, and note those before; return the nodes that tasks must leave immediately."""
        kind, nodes, name = action["action"], frozenset(action["nodes"]), action.get("task", "")
        grows, releases, task = kind in {"start", "grow"}, kind == "release", self._tasks.get(name)
        if grows and task is None:
            reason = f"the {launcher} launcher does not know what to run for it"
            self._hub.emit({"type": "failed", "task": name, "reason": reason})
        holders = (one for one in self._tasks.values() if not nodes.isdisjoint(one.nodes))
        for one in holders if releases else filter(None, [task]):
            before.setdefault(one, one.nodes)
            if grows:
                one.nodes += tuple(node for node in action["nodes"] if node not in one.nodes)
            else:
                one.nodes = tuple(node for node in one.nodes if node not in nodes)
        return nodes if releases or (task and action.get("cause") in _AT_ONCE) else frozenset()

    def narrow(self, name: str, size: int | None) -> None:
        """Let a task run on only the first ``size`` of its nodes; None: on all."""
        if (task := self._tasks.get(name)) is not None:
            task.limit = None if size is None else max(1, size)
            self._update_nodes(task, frozenset())

    def _update_nodes(self, task: AgentTask, now: frozenset[str]) -> None:
        running, at_once = task.nodes[: task.limit], now.difference(task.nodes)
        self.tell(task.name, lambda lifecycle: lifecycle.set_nodes(running, at_once=at_once))

    def tell(self, name: str, tell: Callable[[TaskLifecycle], object]) -> object:
        """Call a task's lifecycle. An error fails only this task; its next start has a new lifecycle."""
        if (task := self._tasks.get(name)) is None:
            return False
        try:
            return tell(task.lifecycle)
        except Exception as error:  # noqa: BLE001 - a launcher of others may do anything
            traceback.print_exc()
            self._hub.drop_task(name)
            task.lifecycle, task.nodes, task.limit, self._by_node = task.make(), (), None, None
            self.add(task)
            reason = f"the {task.launcher} launcher broke: {type(error).__name__}: {error}"
            self._hub.emit({"type": "failed", "task": name, "reason": reason})
            return False

    def tell_node(self, node: str, tell: Callable[[TaskLifecycle], object], *, leaves: bool = False) -> None:
        """Call the lifecycles of the tasks on the node; if it ``leaves``, also of tasks with workers there."""
        if self._by_node is None:
            self._by_node = {}
            for task in self._tasks.values():
                for one in task.nodes:
                    self._by_node.setdefault(one, []).append(task)
        names = [task.name for task in self._by_node.get(node, ())]
        names += [name for name in self._tasks if leaves and name not in names and node in self._hub.nodes_with(name)]
        for name in names:
            self.tell(name, tell)

    def adopt(self, name: str, node: str, left: LeftWorker) -> bool:
        """Return whether a worker of another manager belongs to a task here: it continues, or its exit is reported.

        A running worker must be on a node of its task; for an exited one the node does not matter.
        """
        task = self._tasks.get(name)
        if task is None or (left.exit is None and node not in task.nodes):
            return False
        return bool(self.tell(name, lambda lifecycle: lifecycle.adopt(node, left)))

    def of_identity(self, identity: str) -> str:
        """Return the task with an identity, or ""."""
        return next((name for name, task in self._tasks.items() if task.job.identity == identity), "")

    def tick(self, now: float) -> None:
        """Call all lifecycles."""
        for name in list(self._tasks):
            self.tell(name, lambda lifecycle: lifecycle.tick(now))
