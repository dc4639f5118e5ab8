"""The copies of other nodes' states on this node: the agent's view of its copy server."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

from bftrain_elastic.agent import copy_server
from bftrain_elastic.agent.agent_settings import AgentSettings
from bftrain_elastic.agent.prefork_process import PreforkProcess
from bftrain_elastic.wire.agent_messages import CopyDropped, CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import copy_key
from bftrain_elastic.wire.messages import Message, WireMessage


@dataclass(eq=False)
class NodeCopies:
    """Runs the copy server as a process, and reports its copies by ``send`` to the manager."""

    selector: selectors.BaseSelector
    settings: AgentSettings
    _: KW_ONLY
    send: Callable[[WireMessage], None]
    on_lost: Callable[[PreforkProcess], None]

    def __post_init__(self) -> None:
        """Prepare the copy server; its process is started later."""
        settings = self.settings
        serve = partial(
            copy_server.serve, address=settings.address, secret=settings.secret, limit=settings.copies_bytes
        )
        self.process = PreforkProcess(
            self.selector, serve=serve, nice=settings.nice, on_message=self._on_message, on_lost=self._on_process_lost
        )
        self._started_at = time.monotonic()
        self._serving: CopyServing | None = None  # None until the server runs
        self._held: dict[str, CopyHeld] = {}  # copies by task

    def report(self) -> None:
        """Report the server and its copies to a new manager."""
        if self._serving is not None:
            age_s = time.monotonic() - self._started_at
            self.send(replace(self._serving, age_s=age_s, held=tuple(self._held.values())))

    def drop(self, task: str) -> None:
        """Free the copy of a task, also one that is arriving; the server reports it, in order with new copies."""
        self.process.send(DropCopy(task))

    def with_key(self, order: Message) -> Message:
        """Add the task's key to an order that names a copy server; it never travels between nodes."""
        if not order.get("copy"):
            return order
        key = copy_key(self.settings.secret, order["copy"]["task"]).hex()
        return order | {"copy": order["copy"] | {"key": key}}

    def _on_process_lost(self, process: PreforkProcess) -> None:
        """Report that the copies are gone; a new server reports itself."""
        self._held = {}
        if self._serving is not None:
            self._serving = replace(self._serving, limit=0)
            self.report()
            self._serving = None
        self.on_lost(process)

    def _on_message(self, _process: PreforkProcess, message: WireMessage) -> None:
        match message:
            case CopyServing():  # the server has just started
                self._serving, self._held = message, {}
                self.report()
            case CopyHeld(task=task, step=step):
                if step >= 0:
                    self._held[task] = message
                self.send(message)
            case CopyDropped(task=task):
                self._held.pop(task, None)
                self.send(message)
