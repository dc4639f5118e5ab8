"""Launchers that stand on agents: a course for every task, and actions turned into the nodes each one wants."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager import availability
from bftrain_elastic.manager.agent_hub import AgentHub, Tell
from bftrain_elastic.manager.availability import LauncherAvailability
from bftrain_elastic.manager.fake_launcher import FakeLauncher
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_context import HubTaskContext
from bftrain_elastic.manager.task_lifecycles import LeftWorker, MakeCourse, TaskLifecycle, WorkerExit
from bftrain_elastic.manager.task_lifecycles.horovod import HorovodLifecycle
from bftrain_elastic.manager.task_lifecycles.native import NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from bftrain_elastic.manager.task_lifecycles.torchrun import TorchrunLifecycle
from bftrain_elastic.wire.messages import Message

_AT_ONCE: Final = frozenset({"preempted", "cancelled", "failed"})
_CLOSING_S: Final = 30.0


class AgentLauncher:
    """A launcher whose tasks run on a hub's agents; ``make_course`` says how.

    Messages go to the hub's ``tell``.
    """

    def __init__(self, name: str, make_course: MakeCourse, hub: AgentHub) -> None:
        self.name = name
        self._make = make_course
        self._hub = hub
        self._names: set[str] = set()  # as its callers know it; the rest belongs to the hub's thread
        self._jobs: dict[str, LauncherJob] = {}
        self._courses: dict[str, TaskLifecycle] = {}
        self._wants: dict[str, tuple[str, ...]] = {}  # the nodes that a task is to hold
        self._limits: dict[str, int] = {}  # on how many of them it is to run, if not on all
        hub.ask(lambda: hub.attach(self))

    # -- from any thread

    def add(self, task: str, job: Mapping[str, Any] | LauncherJob) -> None:
        """Know what to run for ``task``."""
        what = job if isinstance(job, LauncherJob) else LauncherJob.read(job)
        course = self._course(task, what)
        Path(what.folder).mkdir(mode=0o700, parents=True, exist_ok=True)  # may hang; others may come meanwhile
        if task in self._names:
            raise BadJob("is there already", where=f"task '{task}'")
        self._names.add(task)
        self._hub.call(lambda: self._add(task, what, course))

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns at once."""
        self._hub.call(lambda: self._apply(list(actions)))

    def narrow(self, task: str, size: int | None) -> None:
        """Let a task run on the first ``size`` of its nodes only, until the next call; all of them stay its own."""
        self._hub.call(lambda: self._narrow(task, size))

    def drop(self, task: str) -> None:
        """Forget a task; all its processes are killed."""
        self._names.discard(task)
        self._hub.call(lambda: self._drop(task))

    def close(self) -> None:
        """Kill all workers of all tasks; returns when they are gone."""
        for task in list(self._names):
            self.drop(task)
        deadline = time.monotonic() + _CLOSING_S
        while self._hub.ask(lambda: self._hub.busy(self)) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._hub.ask(lambda: self._hub.detach(self))

    # -- in the hub's thread

    def _course(self, task: str, job: LauncherJob) -> TaskLifecycle:
        return self._make(task, job, HubTaskContext(self._hub, self, task, {"cwd": job.cwd, "logs": str(job.logs)}))

    def _add(self, task: str, job: LauncherJob, course: TaskLifecycle) -> None:
        self._jobs[task], self._courses[task], self._wants[task] = job, course, ()

    def _apply(self, actions: list[Mapping[str, Any]]) -> None:
        now: set[str] = set()
        before: dict[str, tuple[str, ...]] = {}
        for action in actions:
            nodes, task = tuple(action["nodes"]), action.get("task", "")
            match action["action"]:
                case "start" | "grow" if task not in self._wants:
                    reason = f"the {self.name} launcher does not know what to run for it"
                    self._hub.tell({"type": "failed", "task": task, "reason": reason})
                case "start" | "grow":
                    before.setdefault(task, self._wants[task])
                    self._wants[task] += tuple(node for node in nodes if node not in self._wants[task])
                case "shrink" | "stop" if task in self._wants:
                    before.setdefault(task, self._wants[task])
                    self._leave(task, nodes)
                    now |= set(nodes) if action.get("cause") in _AT_ONCE else set()
                case "release":
                    now |= set(nodes)
                    for holder, held in self._wants.items():
                        if set(held) & set(nodes):
                            before.setdefault(holder, held)
                            self._leave(holder, nodes)
        for task, held in before.items():
            if self._wants[task] and not held:
                self._hub.tell({"type": "starting", "task": task, "nodes": list(self._wants[task])})
            self._want(task, frozenset(now))
            self._tell_empty(task, set(held) - set(self._wants[task]) - now)
        self._hub.clear(frozenset(now - {node for wanted in self._wants.values() for node in wanted}))

    def _tell_empty(self, task: str, left: set[str]) -> None:
        """Tell at once of nodes that a task left and where it has no worker, so that no course hears of its end."""
        empty = left - self._hub.nodes_with(self, task) if left else left
        if empty:
            self._hub.tell({"type": "vacated", "task": task, "nodes": sorted(empty)})

    def _leave(self, task: str, nodes: tuple[str, ...]) -> None:
        self._wants[task] = tuple(node for node in self._wants[task] if node not in nodes)

    def _narrow(self, task: str, size: int | None) -> None:
        if task in self._wants:
            self._limits.pop(task, None)
            if size is not None:
                self._limits[task] = max(1, size)
            self._want(task, frozenset())

    def _want(self, task: str, now: frozenset[str]) -> None:
        wanted = self._wants[task]
        running = wanted[: self._limits.get(task, len(wanted))]
        self._with(task, lambda course: course.want(running, at_once=now - set(wanted)))

    def _drop(self, task: str) -> None:
        for known in (self._jobs, self._courses, self._wants, self._limits):
            known.pop(task, None)
        self._hub.kill_task(self, task)
        self._hub.forget(task)

    def _with(self, task: str, do: Callable[[TaskLifecycle], object]) -> object:
        """Let a task's course do something. One that goes wrong fails its own task, and no other.

        The next start of the task makes a new one.
        """
        course = self._courses.get(task)
        try:
            return course is not None and do(course)
        except Exception as error:  # noqa: BLE001 - a launcher of others may do anything
            traceback.print_exc()
            job = self._jobs[task]
            self._drop(task)
            self._add(task, job, self._course(task, job))
            reason = f"the {self.name} launcher broke: {type(error).__name__}: {error}"
            self._hub.tell({"type": "failed", "task": task, "reason": reason})
            return False

    # -- what the hub says

    def node_up(self, node: str) -> None:
        """Tell the courses that want it."""
        for task, wanted in list(self._wants.items()):
            if node in wanted:
                self._with(task, lambda course: course.node_up(node))

    def node_gone(self, node: str) -> None:
        """Tell the courses that want it."""
        for task, wanted in list(self._wants.items()):
            if node in wanted:
                self._with(task, lambda course: course.node_gone(node))

    def notice(self, node: str, grace_s: float) -> None:
        """Tell the courses that want it, or have workers there."""
        for task, wanted in list(self._wants.items()):
            if node in wanted or node in self._hub.nodes_with(self, task):
                self._with(task, lambda course: course.notice(node, grace_s))

    def adopt(self, task: str, node: str, left: Message) -> bool:
        """Tell whether a worker that another manager started is one of ours: it goes on, or its end is reported.

        A live one must be on a node that its task holds; of one that ended it counts how, not where.
        """
        there = LeftWorker.read(left)
        if there.exit is None and node not in self._wants.get(task, ()):
            return False
        return bool(self._with(task, lambda course: course.adopt(node, there)))

    def spawned(self, task: str, worker: str, port: int) -> None:
        """Hand it on."""
        self._with(task, lambda course: course.spawned(worker, port))

    def said(self, task: str, worker: str, message: Message) -> None:
        """Hand it on."""
        self._with(task, lambda course: course.said(worker, message))

    def inspected(self, task: str, worker: str, process_state: str) -> None:
        """Hand it on."""
        self._with(task, lambda course: course.inspected(worker, process_state))

    def exited(self, task: str, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in Course
        """Hand it on."""
        self._with(task, lambda course: course.exited(worker, exit))

    def tick(self, now: float) -> None:
        """Hand it on."""
        for task in list(self._courses):
            self._with(task, lambda course: course.tick(now))


@dataclass(frozen=True, slots=True)
class LauncherFactory:
    """Makes a launcher from a receiver of messages and a hub; ``available``: whether its workers can run here."""

    name: str
    course: MakeCourse
    available: Callable[[], LauncherAvailability]

    def __call__(self, tell: Tell, hub: AgentHub) -> AgentLauncher:  # noqa: ARG002 - the hub tells
        """Make one."""
        return AgentLauncher(self.name, self.course, hub)


# Plain PyTorch: processes stay, and form a new group for each change
native: Final = LauncherFactory("native", NativeLifecycle, availability.torch)
# Scripts that use Elastic Horovod
horovod: Final = LauncherFactory("horovod", HorovodLifecycle, availability.horovod)
# Any command: stopped and started again from its checkpoint at each change
process: Final = LauncherFactory("process", ProcessLifecycle, availability.nothing)
# Scripts that insist on torchrun
torchrun: Final = LauncherFactory("torchrun", TorchrunLifecycle, availability.torch)


def fake(tell: Tell, hub: AgentHub | None = None) -> FakeLauncher:  # noqa: ARG001 - it needs none
    """Give the launcher whose tasks run nowhere."""
    return FakeLauncher(tell)
