"""The agents of many nodes in one process: they speak the agents' protocol, and their workers are only records.

Connections, greetings, epochs and what is said of workers to a new manager are those of real agents. On each line of
input the present counts are printed as JSON.
"""

from __future__ import annotations

import json
import selectors
import sys
import time
from pathlib import Path
from typing import Final

from bftrain_elastic.agent.connections import ManagerLink
from bftrain_elastic.agent.worker_records import WorkerRecord
from bftrain_elastic.wire import agent_messages as messages
from bftrain_elastic.wire.authenticated_stream import read_secret
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import StepReport

_PAUSE_S: Final = 0.02  # between two looks at all clocks
_STEP_S: Final = 2.0
_PORT: Final = 12345


class StubAgent:
    """One node's agent."""

    started = 0  # workers, by all agents

    def __init__(self, selector: selectors.BaseSelector, manager: tuple[str, int], secret: bytes, node: str) -> None:
        self._node = node
        self._workers: dict[str, WorkerRecord] = {}
        how = {"on_message": self._on_message, "on_greeted": self._register}
        self.link = ManagerLink(selector, manager, secret, **how, note=lambda text: sys.stderr.write(f"{text}\n"))

    def _register(self) -> None:
        workers = tuple(worker.left for worker in self._workers.values())
        address = {"node": self._node, "address": "127.0.0.1", "slots": 1, "pid": 1, "instance": self._node}
        self.link.send(
            messages.RegisterAgent(**address, epoch=self.link.welcome.epoch, version=messages.VERSION, workers=workers)
        )

    def _on_message(self, message: WireMessage) -> None:
        match message:
            case messages.SpawnWorker():
                StubAgent.started += 1
                self._workers[message.worker] = WorkerRecord(message)
                self.link.send(messages.WorkerSpawned(message.worker, 1, _PORT if message.want_port else 0))
                self.report()
            case messages.StopWorker(worker=name) if self._workers.pop(name, None):
                self.link.send(messages.WorkerExited(name, -9))
            case messages.ClearNode():
                for name in list(self._workers):
                    self._on_message(messages.StopWorker(name))

    @property
    def running(self) -> int:
        return len(self._workers)

    def report(self) -> None:
        """Report a step of each task whose first worker is here."""
        for worker in self._workers.values():
            if worker.left.go and not worker.left.place.rank:
                step, workers = worker.left.step + 1, worker.left.place.workers
                report = StepReport(time.time(), step, workers, samples=1, loss=None)
                worker.record_message(report)
                self.link.send(messages.MessageFromWorker(worker.name, report.to_dict()))


def main(host: str, port: str, secret: str, *nodes: str) -> None:
    """Run agents on ``nodes`` until the input ends."""
    selector = selectors.DefaultSelector()
    key = read_secret(Path(secret))
    agents = [StubAgent(selector, (host, int(port)), key, node) for node in nodes]
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    look_at = report_at = 0.0
    while True:
        now = time.monotonic()
        if now >= look_at:
            for agent in agents:
                agent.link.on_time()
            look_at = time.monotonic() + _PAUSE_S
        if now >= report_at:
            report_at = now + _STEP_S
            for agent in agents:
                agent.report()
        for found, events in selector.select(max(0.0, look_at - time.monotonic())):
            if found.data is not None:
                found.data(events)
            elif not sys.stdin.readline():
                return
            else:
                counts = {"welcomed": sum(agent.link.welcomed for agent in agents), "started": StubAgent.started}
                sys.stdout.write(json.dumps({**counts, "running": sum(agent.running for agent in agents)}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
