"""What happens in a live run, in words as it happens; and what a demo tells when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrain.live.api.server import ApiServer
    from bftrain.live.api.service import LiveService
    from bftrain.live.model.schemas import TaskView
    from bftrain.live.run.daemon import LiveDaemon
    from bftrain.values.events import Event

_NAMED = 4


class EventNarrator:
    """Tells ``say`` of nodes and tasks; keeps first and last losses, and how long nodes were idle."""

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self._say = say or (lambda _: None)
        self._begun = time.monotonic()
        self._daemon: LiveDaemon | None = None
        self._sizes: dict[str, int] = {}
        self._losses: dict[str, tuple[float, float]] = {}
        self._pool = 0
        self._pool_since = time.monotonic()
        self.idle_s = 0.0  # node-seconds that were ours

    async def begin(self, daemon: LiveDaemon, api: ApiServer, office: LiveService) -> None:  # noqa: ARG002 - as running.Beside
        """Tell from now on."""
        self._daemon = daemon
        self._begun = self._pool_since = time.monotonic()
        self._pool = daemon.harvester.pool_size
        daemon.observers.append(self._observe)

    def tasks(self, office: LiveService) -> tuple[TaskView, ...]:
        """Give all tasks as they are now, and stop the clock."""
        from bftrain.live.model.callers import ourselves

        self._count()
        return office.tasks(ourselves(), over=True)

    def losses(self, task: str) -> str:
        """Give the first and the last loss of a task."""
        if task not in self._losses:
            return ""
        first, last = self._losses[task]
        return f"{first:.3g} -> {last:.3g}"

    def _observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        match what:
            case "events":
                self._count()
                self._happened(value)
                self._resized()
            case "decision":
                self._resized()
            case "message":
                self._count_loss(value)

    def _count(self) -> None:
        now = time.monotonic()
        self.idle_s += self._pool * (now - self._pool_since)
        self._pool_since = now
        self._pool = self._daemon.harvester.pool_size if self._daemon else 0

    def tell(self, text: str) -> None:
        """Tell of something, with the time since the begin."""
        self._say(f"{time.monotonic() - self._begun:7.1f} s  {text}")

    def _happened(self, events: Sequence[Event]) -> None:
        from bftrain.values.events import NodesJoined, NodesLeft, TaskFinished

        for event in events:
            match event:
                case NodesJoined():
                    self.tell(f"{_named(event.nodes)} became idle: {self._pool} nodes")
                case NodesLeft():
                    self.tell(f"{_named(event.nodes)} {self._left(event.nodes)}: {self._pool} nodes")
                case TaskFinished():
                    self.tell(f"{event.task}: finished")

    def _left(self, nodes: Sequence[str]) -> str:
        if self._daemon is not None and self._daemon.state == "draining":
            return "given back"
        return "was taken back" if len(nodes) == 1 else "were taken back"

    def _resized(self) -> None:
        sizes = dict(self._daemon.harvester.plan.sizes) if self._daemon else {}
        for task in {**self._sizes, **sizes}:
            before, now = self._sizes.get(task, 0), sizes.get(task, 0)
            if before != now:
                self.tell(f"{task}: {before} -> {now} nodes")
        self._sizes = sizes

    def _count_loss(self, message: dict[str, Any]) -> None:
        loss = message.get("loss") if message["type"] == "report" else None
        if loss is not None:
            first, _ = self._losses.get(message["task"], (loss, loss))
            self._losses[message["task"]] = (first, loss)


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _NAMED} others" if len(nodes) > _NAMED else ""
    return f"{' '.join(nodes[:_NAMED])}{more}"
