"""Launchers that stand on agents: a course for every task, and actions turned into the nodes each one wants."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.courses import Course, MakeCourse
from bftrain_elastic.courses.horovod import HorovodCourse
from bftrain_elastic.courses.native import NativeCourse
from bftrain_elastic.courses.process import ProcessCourse
from bftrain_elastic.courses.torchrun import TorchrunCourse
from bftrain_elastic.errors import BadJob
from bftrain_elastic.fake import Fake
from bftrain_elastic.hub import FloorOfTask, Hub, Tell
from bftrain_elastic.jobs import Job
from bftrain_elastic.messages import Message

_AT_ONCE: Final = frozenset({"preempted", "cancelled", "failed"})
_CLOSING_S: Final = 30.0


class AgentLauncher:
    """A launcher whose tasks run on a hub's agents; ``make_course`` says how.

    What is told goes to the hub's ``tell``.
    """

    def __init__(self, name: str, make_course: MakeCourse, hub: Hub) -> None:
        self.name = name
        self._make = make_course
        self._hub = hub
        self._courses: dict[str, Course] = {}
        self._wants: dict[str, tuple[str, ...]] = {}
        hub.ask(lambda: hub.attach(self))

    # -- from any thread

    def add(self, task: str, job: Mapping[str, Any] | Job) -> None:
        """Know what to run for ``task``."""
        what = job if isinstance(job, Job) else Job.read(job)
        if task in self._wants:
            raise BadJob("is there already", where=f"task '{task}'")
        Path(what.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._wants[task] = ()
        self._hub.call(lambda: self._add(task, what))

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns at once."""
        self._hub.call(lambda: self._apply(list(actions)))

    def drop(self, task: str) -> None:
        """Forget a task; whatever is left of it is killed."""
        self._wants.pop(task, None)
        self._hub.call(lambda: self._drop(task))

    def close(self) -> None:
        """Kill all workers of all tasks; returns when they are gone."""
        for task in list(self._wants):
            self.drop(task)
        deadline = time.monotonic() + _CLOSING_S
        while self._hub.ask(lambda: self._hub.busy(self)) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._hub.ask(lambda: self._hub.detach(self))

    # -- in the hub's thread

    def _add(self, task: str, job: Job) -> None:
        places = {"cwd": job.cwd, "logs": str(job.logs)}
        self._courses[task] = self._make(task, job, FloorOfTask(self._hub, self, task, places))

    def _apply(self, actions: list[Mapping[str, Any]]) -> None:
        now: set[str] = set()
        changed: dict[str, None] = {}
        for action in actions:
            nodes, task = tuple(action["nodes"]), action.get("task", "")
            match action["action"]:
                case "start" | "grow":
                    changed[task] = None
                    self._wants[task] = (*self._wants.get(task, ()), *nodes)
                case "shrink" | "stop":
                    changed[task] = None
                    self._leave(task, nodes)
                    now |= set(nodes) if action.get("cause") in _AT_ONCE else set()
                case "release":
                    now |= set(nodes)
                    for holder, held in self._wants.items():
                        if set(held) & set(nodes):
                            changed[holder] = None
                            self._leave(holder, nodes)
        for task in changed:
            wanted = self._wants.get(task, ())
            if task in self._courses:
                self._courses[task].want(wanted, at_once=frozenset(now) - set(wanted))
        self._hub.clear(frozenset(now - {node for wanted in self._wants.values() for node in wanted}))

    def _leave(self, task: str, nodes: tuple[str, ...]) -> None:
        self._wants[task] = tuple(node for node in self._wants.get(task, ()) if node not in nodes)

    def _drop(self, task: str) -> None:
        self._courses.pop(task, None)
        self._hub.kill_task(self, task)

    # -- what the hub says

    def node_up(self, node: str) -> None:
        """Tell the courses that want it."""
        for task, course in list(self._courses.items()):
            if node in self._wants.get(task, ()):
                course.node_up(node)

    def node_gone(self, node: str) -> None:
        """Tell the courses that want it."""
        for task, course in list(self._courses.items()):
            if node in self._wants.get(task, ()):
                course.node_gone(node)

    def spawned(self, task: str, worker: str, port: int) -> None:
        """Hand it on."""
        if task in self._courses:
            self._courses[task].spawned(worker, port)

    def said(self, task: str, worker: str, message: Message) -> None:
        """Hand it on."""
        if task in self._courses:
            self._courses[task].said(worker, message)

    def exited(self, task: str, worker: str, code: int, tail: str) -> None:
        """Hand it on."""
        if task in self._courses:
            self._courses[task].exited(worker, code, tail)

    def tick(self, now: float) -> None:
        """Hand it on."""
        for course in list(self._courses.values()):
            course.tick(now)


def native(tell: Tell, hub: Hub) -> AgentLauncher:  # noqa: ARG001 - the hub tells
    """Give the launcher for plain PyTorch: processes stay, a new group for each change."""
    return AgentLauncher("native", NativeCourse, hub)


def horovod(tell: Tell, hub: Hub) -> AgentLauncher:  # noqa: ARG001 - the hub tells
    """Give the launcher for scripts that use Elastic Horovod."""
    return AgentLauncher("horovod", HorovodCourse, hub)


def process(tell: Tell, hub: Hub) -> AgentLauncher:  # noqa: ARG001 - the hub tells
    """Give the launcher for any command: stopped and started again from its checkpoint at each change."""
    return AgentLauncher("process", ProcessCourse, hub)


def torchrun(tell: Tell, hub: Hub) -> AgentLauncher:  # noqa: ARG001 - the hub tells
    """Give the launcher for scripts that insist on torchrun."""
    return AgentLauncher("torchrun", TorchrunCourse, hub)


def fake(tell: Tell, hub: Hub | None = None) -> Fake:  # noqa: ARG001 - it needs none
    """Give the launcher whose tasks run nowhere."""
    return Fake(tell)
