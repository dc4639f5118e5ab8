"""Lifecycles whose events come from the test, and whose orders are recorded by their context."""

from __future__ import annotations

from typing import Any

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.native import NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from tests.unit.elastic.recorded_context import RecordedContext


class NativeCase:
    """A native lifecycle, its context, and workers that follow all orders."""

    def __init__(self, *nodes: str) -> None:
        self.context = RecordedContext(*nodes)
        self.lifecycle = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="f"), self.context)
        self.step: dict[str, int] = {}

    def set_nodes(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.lifecycle.set_nodes(nodes, at_once=frozenset(at_once))

    def ready(self, worker: str, step: int = -1, generation: int = 0, reason: str = "") -> None:
        message = {"type": "ready", "step": step, "generation": generation, "store": [worker, 1], "reason": reason}
        self.lifecycle.on_worker_message(worker, message)

    def all_new_ready(self) -> None:
        new, self.context.spawned = self.context.spawned, []
        for worker in new:
            self.ready(worker)

    def go(self, step: int) -> list[str]:
        """Let the group form that was asked to; return its members in the order of their ranks."""
        orders = sorted(self.context.take_sent("go"), key=lambda order: order[1]["rank"])
        assert [order["rank"] for _, order in orders] == list(range(orders[0][1]["workers"]))
        leader, order = orders[0]
        assert all(other["store"] == [leader, 1] for _, other in orders), "all meet where rank 0 is"
        self.lifecycle.on_worker_message(leader, {"type": "confirmed", "generation": order["generation"], "step": step})
        return [worker for worker, _ in orders]

    def running(self, *nodes: str, step: int = 0) -> list[str]:
        self.set_nodes(*nodes)
        self.all_new_ready()
        return self.go(step)

    def tick(self, seconds: float) -> None:
        self.context.time += seconds
        self.lifecycle.tick(self.context.time)


def at(worker: str) -> str:
    return worker.split("/")[1]


class ProcessCase:
    """A process lifecycle and its context."""

    def __init__(self, *nodes: str, **job: Any) -> None:  # noqa: ANN401 - a job's own fields
        self.context = RecordedContext(*nodes)
        self.lifecycle = ProcessLifecycle("t", LauncherJob(argv=("./train",), folder="f", **job), self.context)

    def set_nodes(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.lifecycle.set_nodes(nodes, at_once=frozenset(at_once))

    def started(self, port: int = 4000) -> list[str]:
        """Return rank 0's port, and all that were started then."""
        first = self.context.spawned[0]
        self.lifecycle.spawned(first, port)
        new, self.context.spawned = self.context.spawned, []
        return new

    def report(self, worker: str, step: int) -> None:
        message = {"type": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None, "total": step}
        self.lifecycle.on_worker_message(worker, message)

    def tick(self, seconds: float) -> None:
        self.context.time += seconds
        self.lifecycle.tick(self.context.time)

    def settle(self) -> None:
        """Let the time pass in which an end may turn out to be a preemption."""
        self.tick(self.context.settle_s + 0.1)

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.context.there[node] = 0
            self.lifecycle.node_gone(node)

    def find(self, *nodes: str) -> None:
        for node in nodes:
            self.context.there[node] = 1
            self.lifecycle.node_up(node)
