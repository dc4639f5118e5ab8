"""Real worker processes, each with a scripted agent: tests send the messages of an agent."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.helpers.warm_python import warm_python

PATIENCE_S = 60.0
SOON_S = 15.0  # within which members notice that one is gone: they would wait 20 s for one that does not answer


class Worker:
    """A process that runs a script, and the agent's end of its channel."""

    def __init__(self, name: str, folder: Path, script: Path, *words: str, **env: str) -> None:
        folder.mkdir(exist_ok=True)
        address = f"{folder.parent}/{name}"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(f"\0{address}")
        self._door.listen(4)
        self._guest: socket.socket | None = None
        self.log = folder.parent / f"{name}.log"
        self.said: list[dict[str, Any]] = []
        environment = os.environ | {
            "GLOO_SOCKET_IFNAME": "lo",
            "BFTRAIN_SOCKET": address,
            "BFTRAIN_WORKER": name,
            "BFTRAIN_FOLDER": str(folder),
            "BFTRAIN_ADDRESS": "127.0.0.1",
            "BFTRAIN_LAUNCHER": "native",
            **env,
        }
        self.process = warm_python().start([str(script), *words], environment, self.log)

    def hear(self, what: str = "", true: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Wait until the worker says ``what``; give it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = self._next(deadline - time.monotonic())
            if message is None:
                break
            self.said.append(message)
            if message["type"] == what and true(message):
                return message
        last = [one["type"] for one in self.said][-8:]
        raise AssertionError(f"no '{what}' was said, the last was {last}; its log: {self.log.read_text()[-3000:]}")

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return what the worker says next; nothing if it is gone or the time is up."""
        with suppress(TimeoutError):
            if self._guest is None:
                self._door.settimeout(timeout_s)
                self._guest, _ = self._door.accept()
            self._guest.settimeout(timeout_s)
            packet = self._guest.recv(65536)
            return json.loads(packet) if packet else None
        return None

    def next_connection(self) -> None:
        """Hear from the next connection that the process makes from now on."""
        if self._guest is not None:
            self._guest.close()
        self._guest = None

    def tell(self, **message: object) -> None:
        assert self._guest is not None
        self._guest.send(json.dumps(message).encode())

    def is_at(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask the worker for its position until that is as expected; return the last answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.tell(type="position")
            where = self.hear("position")
            if true(where) or time.monotonic() > deadline:
                return where
            time.sleep(0.02)

    def ends(self) -> int:
        """Receive its remaining messages, and return its exit code."""
        while (message := self._next(PATIENCE_S)) is not None:
            self.said.append(message)
        return self.process.wait(PATIENCE_S)

    def of(self, what: str) -> list[dict[str, Any]]:
        return [one for one in self.said if one["type"] == what]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith('{"')]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for one in (self._guest, self._door):
            if one is not None:
                one.close()


class Workers:
    """Several workers of one task, formed into groups."""

    def __init__(self, folder: Path, script: str, *words: str, count: int = 2, **env: str) -> None:
        path = folder / "script.py"
        path.write_text(script)
        self.folder = folder / "task"
        self.all = [Worker(f"w{number}", self.folder, path, *words, **env) for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.all:
            worker.close()

    def go(
        self,
        generation: int,
        members: Sequence[Worker] | None = None,
        *,
        sync: bool = True,
        size: int = 0,
        batch: int = 0,
    ) -> None:
        """Let workers that are ready form a group; the first of them is rank 0."""
        members = self.all if members is None else members
        store = members[0].of("ready")[-1]["store"]
        for rank, worker in enumerate(members):
            order = {"generation": generation, "rank": rank, "workers": len(members), "size": size or len(members)}
            order |= {"batch": batch} if batch else {}
            worker.tell(type="go", store=store, sync=sync, **order)

    def ready(self, members: Sequence[Worker] | None = None) -> list[dict[str, Any]]:
        """Wait until workers are ready; give what they said."""
        return [worker.hear("ready") for worker in (self.all if members is None else members)]

    def gather(self, generation: int, members: Sequence[Worker] | None = None) -> list[dict[str, Any]]:
        """Let workers leave their group at the next commit."""
        members = self.all if members is None else members
        for worker in members:
            worker.tell(type="gather", generation=generation)
        return self.ready(members)

    def go_on_without_first(self, *, planned: bool) -> list[dict[str, Any]]:
        """Let the first of two leave the group after 20 steps, or kill it; return what the other writes when alone."""
        first, second = self.all
        self.ready()
        self.go(1)
        first.hear("report", lambda one: one["step"] >= 20)
        if planned:
            self.gather(2)
            first.tell(type="leave", save=False)
        else:
            first.process.kill()
            self.ready([second])
        self.go(2, [second], sync=False)
        second.hear("report", lambda one: one["size"] == 1 and one["step"] > 25)
        return [one for one in second.lines() if one["workers"] == 1]
