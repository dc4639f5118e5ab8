"""A manager in a process of its own, so that it can be killed.

Its command line: ``manager.py LAUNCHER PORT SECRET FOLDER SCRIPT NODES [KEEP_S]``.

It starts one task on the nodes (with commas between), prints the messages that it receives as JSON lines, and does
what it reads: a line of JSON is a list of actions. It ends when its input does, and all training with it. With
KEEP_S it gives signs of life as the daemon beside ``slurm-nodes`` does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bftrain import registry
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.authenticated_stream import read_secret

TASK = "task"


def main(name: str, port: str, secret: str, folder: str, script: str, nodes: str, *keep_s: str) -> None:
    keeps = {"keep_s": float(keep_s[0])} if keep_s else {}
    # Closed until it is known what the task holds: so workers of a manager before us are recognised
    hub = AgentHub(tell, read_secret(Path(secret)), port=int(port), closed=True, **keeps)
    launcher = registry.load("launcher", name)(tell, hub)
    launcher.add(TASK, {"argv": [script, "--steps", "1000000"], "folder": folder})
    launcher.apply([{"action": "start", "task": TASK, "nodes": nodes.split(",")}])
    hub.open()
    threading.Thread(target=beat, args=(hub,), daemon=True).start()
    for line in sys.stdin:
        launcher.apply(json.loads(line))
    launcher.close()
    hub.close()


def beat(hub: AgentHub) -> None:
    """Send a sign of life each second until the hub is closed."""
    while True:
        time.sleep(1.0)
        with suppress(OSError):
            hub.beat()


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Manager:
    """The test's side of such a process."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, __file__, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.messages: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.messages.append(json.loads(line))
                self._news.notify_all()

    def of(self, what: str) -> list[dict[str, Any]]:
        return [one for one in list(self.messages) if one["type"] == what]

    def steps(self, size: int, count: int, patience_s: float = 60.0) -> None:
        with self._news:
            enough = self._news.wait_for(
                lambda: len([one for one in self.of("report") if one["size"] == size]) >= count, patience_s
            )
        assert enough, f"{count} steps at size {size}: {[one for one in self.messages if one['type'] != 'report'][-8:]}"

    def first(self, what: str, patience_s: float = 60.0) -> dict[str, Any]:
        with self._news:
            assert self._news.wait_for(lambda: bool(self.of(what)), patience_s), f"no message '{what}'"
        return self.of(what)[0]

    def do(self, *actions: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(actions) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self._gone()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.send_signal(signal.SIGCONT)  # the test may have stopped it
        self._gone()

    def _gone(self) -> None:
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
        self._reader.join(60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
