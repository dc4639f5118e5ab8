"""A course on paper: what happens to it is said by the test, and what it asks for is noted by its floor."""

from __future__ import annotations

from typing import Any

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.native import NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from tests.unit.elastic.floor import PaperFloor


class NativePlay:
    """A native course, its floor, and workers that do as they are told."""

    def __init__(self, *nodes: str) -> None:
        self.floor = PaperFloor(*nodes)
        self.course = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="f"), self.floor)
        self.step: dict[str, int] = {}

    def want(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.course.want(nodes, at_once=frozenset(at_once))

    def ready(self, worker: str, step: int = -1, generation: int = 0, reason: str = "") -> None:
        message = {"type": "ready", "step": step, "generation": generation, "store": [worker, 1], "reason": reason}
        self.course.said(worker, message)

    def all_new_ready(self) -> None:
        new, self.floor.spawned = self.floor.spawned, []
        for worker in new:
            self.ready(worker)

    def go(self, step: int) -> list[str]:
        """Let the group form that was told to go; gives its members in the order of their ranks."""
        orders = sorted(self.floor.heard("go"), key=lambda order: order[1]["rank"])
        assert [order["rank"] for _, order in orders] == list(range(orders[0][1]["workers"]))
        leader, order = orders[0]
        assert all(other["store"] == [leader, 1] for _, other in orders), "all meet where rank 0 is"
        self.course.said(leader, {"type": "confirmed", "generation": order["generation"], "step": step})
        return [worker for worker, _ in orders]

    def running(self, *nodes: str, step: int = 0) -> list[str]:
        self.want(*nodes)
        self.all_new_ready()
        return self.go(step)

    def tick(self, seconds: float) -> None:
        self.floor.time += seconds
        self.course.tick(self.floor.time)


def at(worker: str) -> str:
    return worker.split("/")[1]


class ProcessPlay:
    """A process course and its floor."""

    def __init__(self, *nodes: str, **job: Any) -> None:  # noqa: ANN401 - a job's own fields
        self.floor = PaperFloor(*nodes)
        self.course = ProcessLifecycle("t", LauncherJob(argv=("./train",), folder="f", **job), self.floor)

    def want(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.course.want(nodes, at_once=frozenset(at_once))

    def started(self, port: int = 4000) -> list[str]:
        """Give rank 0's port, and all that were started then."""
        first = self.floor.spawned[0]
        self.course.spawned(first, port)
        new, self.floor.spawned = self.floor.spawned, []
        return new

    def report(self, worker: str, step: int) -> None:
        message = {"type": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None, "total": step}
        self.course.said(worker, message)

    def tick(self, seconds: float) -> None:
        self.floor.time += seconds
        self.course.tick(self.floor.time)

    def settle(self) -> None:
        """Let the time pass in which an end may turn out to be a preemption."""
        self.tick(self.floor.settle_s + 0.1)

    def lose(self, *nodes: str) -> None:
        """Let a scheduler take nodes."""
        for node in nodes:
            self.floor.there[node] = 0
            self.course.node_gone(node)

    def find(self, *nodes: str) -> None:
        """Let agents come back."""
        for node in nodes:
            self.floor.there[node] = 1
            self.course.node_up(node)
