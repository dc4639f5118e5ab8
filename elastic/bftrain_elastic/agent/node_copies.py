"""The copies of other nodes' states on this node: the agent's view of its copy server."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bftrain_elastic.agent import copy_server
from bftrain_elastic.agent.agent_settings import AgentSettings
from bftrain_elastic.agent.prefork_process import PreforkProcess
from bftrain_elastic.wire.agent_messages import CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import copy_key
from bftrain_elastic.wire.messages import Message, WireMessage


class NodeCopies:
    """Runs the copy server as a process, and reports its copies by ``send`` to the manager."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        settings: AgentSettings,
        *,
        send: Callable[[WireMessage], None],
        on_lost: Callable[[PreforkProcess], None],
    ) -> None:
        self._secret = settings.secret
        self._send = send
        serve = partial(
            copy_server.serve, address=settings.address, secret=settings.secret, limit=settings.copies_bytes
        )
        self.process = PreforkProcess(
            selector, serve=serve, nice=settings.nice, on_message=self._on_message, on_lost=on_lost
        )
        self._started_at = time.monotonic()
        self._serving: CopyServing | None = None  # None until the server runs
        self._held: dict[str, CopyHeld] = {}  # copies by task

    def report(self) -> None:
        """Report the server and its copies to a new manager."""
        if self._serving is not None:
            age_s = time.monotonic() - self._started_at
            self._send(replace(self._serving, age_s=age_s, held=tuple(self._held.values())))

    def drop(self, task: str) -> None:
        """Free the copy of a task."""
        if self._held.pop(task, None) is not None:
            self.process.send(DropCopy(task))

    def with_key(self, order: Message, task: str) -> Message:
        """Add the task's key to an order that names a copy server; it never travels between nodes."""
        if not order.get("copy"):
            return order
        key = copy_key(self._secret, task).hex()
        return order | {"copy": order["copy"] | {"task": task, "key": key}}

    def _on_message(self, _process: PreforkProcess, message: WireMessage) -> None:
        match message:
            case CopyServing():  # the server has just started
                self._serving, self._held = message, {}
                self.report()
            case CopyHeld(task=task, step=step):
                if step >= 0:
                    self._held[task] = message
                self._send(message)
