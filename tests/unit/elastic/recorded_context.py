"""A TaskContext that runs nothing and records the calls of a lifecycle."""

from __future__ import annotations

from typing import Any

from bftrain_elastic.wire.messages import Message


class RecordedContext:
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

    def send(self, worker: str, message: Message) -> None:
        self.sent.append((worker, message))

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
