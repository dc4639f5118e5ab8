"""Lifecycles whose events come from the test, and whose orders are recorded: the only place where tests import them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bftrain_elastic.manager.agent_hub import TaskContext, TaskLifecycle
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.native import ASTRAY, NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.native_group import SURVIVED, UNHEEDED
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import LeftWorker, WorkerExit
from bftrain_elastic.wire.messages import Message, WireMessage, decode, encode, read_message
from bftrain_elastic.wire.worker_messages import FROM_WORKER, CopyPlace, StepReport

__all__ = [
    "ABORT_S",
    "ABSENCE_S",
    "ASTRAY",
    "COMPANY_S",
    "FAREWELL_S",
    "FIRST_S",
    "HANG_S",
    "LOADING_S",
    "LONGEST_RETRY_S",
    "LONGEST_S",
    "MEETING_S",
    "REPEAT_S",
    "SILENT_S",
    "SURVIVED",
    "UNHEEDED",
    "CopyPlace",
    "LauncherJob",
    "LeftWorker",
    "LifecycleCase",
    "Message",
    "NativeCase",
    "NativeLifecycle",
    "ProcessCase",
    "ProcessLifecycle",
    "RecordedContext",
    "StepReport",
    "WorkerExit",
    "at",
    "left_worker",
]

ABORT_S, ABSENCE_S, COMPANY_S, FAREWELL_S = (
    TIMEOUTS.abort_s,
    TIMEOUTS.absence_s,
    TIMEOUTS.company_s,
    TIMEOUTS.farewell_s,
)
FIRST_S, LONGEST_S = TIMEOUTS.growth_retry_s, TIMEOUTS.growth_longest_retry_s
HANG_S, LOADING_S, MEETING_S, REPEAT_S = TIMEOUTS.hang_s, TIMEOUTS.loading_s, TIMEOUTS.meeting_s, TIMEOUTS.repeat_s
LONGEST_RETRY_S, SILENT_S = TIMEOUTS.longest_retry_s, TIMEOUTS.silent_command_s


class RecordedContext(TaskContext):
    """Every node is there with one slot unless it is taken away."""

    settle_s = 2.0

    def __init__(self, *nodes: str) -> None:
        self.time = 100.0
        self.inspected: list[str] = []
        self.how: dict[str, dict[str, Any]] = {}
        self.there = dict.fromkeys(nodes, 1)
        self.names = 0
        self.spawned: list[str] = []
        self.env: dict[str, dict[str, str]] = {}
        self.sent: list[tuple[str, Message]] = []
        self.stopped: list[tuple[str, float]] = []
        self.messages: list[Message] = []
        self.copies: dict[str, CopyPlace | None] = {"place": None, "newest": None}

    def copy_place(self, nodes: Sequence[str]) -> CopyPlace | None:  # noqa: ARG002 - as in TaskContext
        return self.copies["place"]

    def newest_copy(self) -> CopyPlace | None:
        return self.copies["newest"]

    def name(self, node: str, slot: int) -> str:
        self.names += 1
        return f"t/{node}/{slot}/{self.names}"

    def now(self) -> float:
        return self.time

    def slots(self, node: str) -> int:
        return self.there.get(node, 0)

    def address(self, node: str) -> str:
        return f"{node}.example"

    def spawn(self, node: str, worker: str, **how: Any) -> None:  # noqa: ANN401 - as in TaskContext
        assert self.there[node]
        self.spawned.append(worker)
        self.env[worker] = how["env"]
        self.how[worker] = how

    def send(self, worker: str, message: WireMessage) -> None:
        self.sent.append((worker, decode(encode(message.to_dict()))))

    def stop(self, worker: str, *, grace_s: float) -> None:
        self.stopped.append((worker, grace_s))

    def inspect(self, worker: str) -> None:
        self.inspected.append(worker)

    def notes(self) -> list[str]:
        return [one["text"] for one in self.messages if one["type"] == "note"]

    def emit(self, message: Message) -> None:
        self.messages.append(message)

    def kinds(self) -> list[str]:
        return [one["type"] for one in self.messages]

    def take_sent(self, what: str) -> list[tuple[str, Message]]:
        """Return, and remove, the messages of one type that were sent to workers."""
        found = [(worker, message) for worker, message in self.sent if message["type"] == what]
        self.sent = [one for one in self.sent if one not in found]
        return found


class LifecycleCase:
    lifecycle: TaskLifecycle

    def hear(self, worker: str, message: Message) -> None:
        """Let the lifecycle hear a message of a worker."""
        found = read_message(FROM_WORKER, message)
        assert found is not None
        self.lifecycle.on_worker_message(worker, found)


class NativeCase(LifecycleCase):
    """A native lifecycle, its context, and workers that follow all orders."""

    def __init__(self, *nodes: str) -> None:
        self.context = RecordedContext(*nodes)
        self.lifecycle = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="f"), self.context)
        self.step: dict[str, int] = {}

    def set_nodes(self, *nodes: str, at_once: tuple[str, ...] = ()) -> None:
        self.lifecycle.set_nodes(nodes, at_once=frozenset(at_once))

    def ready(self, worker: str, step: int = -1, generation: int = 0, reason: str = "") -> None:
        message = {"type": "ready", "step": step, "generation": generation, "store": [worker, 1], "reason": reason}
        self.hear(worker, message)

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
        self.hear(leader, {"type": "confirmed", "generation": order["generation"], "step": step})
        return [worker for worker, _ in orders]

    def running(self, *nodes: str, step: int = 0) -> list[str]:
        self.set_nodes(*nodes)
        self.all_new_ready()
        return self.go(step)

    def tick(self, seconds: float) -> None:
        self.context.time += seconds
        self.lifecycle.tick(self.context.time)


def left_worker(name: str, step: int, place: tuple[int, int, int], **more: Any) -> LeftWorker:  # noqa: ANN401 - its other fields
    """Return a worker that outlived its manager; ``place`` is its generation, rank and number of workers."""
    generation, rank, workers = place
    go = {"generation": generation, "rank": rank, "workers": workers} if workers else None
    return LeftWorker.read({"worker": name, "slot": 0, "step": step, "go": go, **more})


def at(worker: str) -> str:
    return worker.split("/")[1]


class ProcessCase(LifecycleCase):
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

    def report(self, worker: str, step: int, **more: object) -> None:
        message = {"type": "report", "t": 1.0, "step": step, "size": 1, "samples": 1, "loss": None, "total": step}
        self.hear(worker, message | more)

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
