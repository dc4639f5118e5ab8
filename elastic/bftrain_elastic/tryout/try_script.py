"""Runs a script on agents of this machine under a launcher, with sizes that change on demand."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.errors import BadScript, ElasticError
from bftrain_elastic.manager.agent_hub import AgentHub, OnEvent
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement
from bftrain_elastic.wire.authenticated_stream import make_secret
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.worker import step_records

TASK: Final = "trial"
_OVER: Final = frozenset({"done", "failed"})
_GRACE_S: Final = 10.0  # time for a planned stop
_SPARE_S: Final = 2.0  # additional time to report it
_ENDING_S: Final = 30.0  # time for an agent to exit


class LocalAgents:
    """Starts and stops agents for ``hub``; they exit with this process, even if it is killed.

    ``options`` are further options of an agent's command line. By default, it runs one worker and keeps no copies.
    """

    def __init__(self, hub: AgentHub, secret_file: Path, *options: str) -> None:
        self._hub = hub
        self._secret = secret_file
        self._gpu_indices: dict[str, int] = {}  # node -> index of its first start, for its GPU
        self._options = ["--slots", "1", "--copies", "0", "--parent", str(os.getpid()), *options]
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *nodes: str) -> None:
        """Start an agent for each of ``nodes``."""
        host, port = self._hub.address
        for node in nodes:
            if node in self.running:  # its agent was killed
                self.running.pop(node).wait(_ENDING_S)
            options = ["--manager", f"{host}:{port}", "--secret", str(self._secret), "--node", node]
            options += ["--first-gpu", str(self._gpu_indices.setdefault(node, len(self._gpu_indices)))]
            command = [sys.executable, "-m", "bftrain_elastic.agent", *options, *self._options]
            self.running[node] = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def terminate(self, *nodes: str) -> None:
        """Take nodes like a scheduler: send SIGTERM, and wait until the agents have exited."""
        for node in nodes:
            self.running[node].terminate()
            self.running[node].send_signal(signal.SIGCONT)  # it may have been stopped
        for node in nodes:
            self.running.pop(node).wait(_ENDING_S)

    def close(self) -> None:
        """Stop all agents."""
        self.terminate(*list(self.running))


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A change of the number of nodes to ``size`` at ``at_s`` seconds."""

    size: int
    at_s: float


def schedule(text: str) -> tuple[SizeChange, ...]:
    """Read changes such as ``1@0,3@5,2@10``: 1 node at the start, 3 after 5 seconds, 2 after 10."""
    changes = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)@(\d+(?:\.\d+)?)\s*", part)
        if not match:
            raise ElasticError(f"'{part}' is not SIZE@SECONDS", fix="such as 1@0,3@5,2@10")
        changes.append(SizeChange(int(match[1]), float(match[2])))
    if changes[0].at_s != 0:
        raise ElasticError("the first size must be given for second 0", fix=f"{changes[0].size}@0,{text}")
    if any(after.at_s <= before.at_s for before, after in pairwise(changes)):
        raise ElasticError("times must rise", fix="such as 1@0,3@5,2@10")
    return tuple(changes)


class TrialMessages:
    """All messages of a launcher; call it to add one."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self._news = threading.Condition()

    def __call__(self, message: Message) -> None:
        """Add a message."""
        with self._news:
            self.all.append(message)
            self._news.notify_all()

    def wait(self, true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until ``true`` returns true or the timeout expires; return whether it is true.

        ``true`` is called without the lock: it may ask the hub, which may be waiting to add a message.
        """
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = len(self.all)
            if true():
                return True
            left_s = end_s - time.monotonic()
            with self._news:
                news = self._news.wait_for(
                    lambda: len(self.all) > seen,  # noqa: B023 - called within this turn
                    None if left_s == math.inf else left_s,
                )
            if not news:
                return true()


class ScriptTrial:
    """One task on local agents."""

    def __init__(
        self,
        make: Callable[[OnEvent, AgentHub], Any],
        argv: Sequence[str],
        *,
        nodes: int,
        folder: Path | None = None,
        preload: Sequence[str] = PRELOADED,
        records_steps: bool = False,
    ) -> None:
        if not Path(argv[0]).is_file():
            raise BadScript("there is no such file", where=argv[0])
        self._make = make
        self._argv = (str(Path(argv[0]).resolve()), *argv[1:])
        self._names = tuple(f"node{number}" for number in range(1, nodes + 1))
        self._given_folder = folder
        self._preload = preload
        self._records_steps = records_steps
        self._log = TrialMessages()
        self._drained = 0
        self.measuring = SpeedMeasurement()
        self.held: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        with ExitStack() as begun:  # stops the started parts if another part cannot start
            self._scratch = Path(tempfile.mkdtemp(prefix="bftrain-try-"))
            begun.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            self.folder = self._given_folder or self._scratch / "task"
            self.hub = AgentHub(self._hear, make_secret(self._scratch / "secret"))
            options = ("--preload", ",".join(self._preload), "--remove", str(self._scratch))
            agents = LocalAgents(self.hub, self._scratch / "secret", *options)
            begun.callback(agents.close)
            begun.callback(self.hub.close)
            self._launcher = self._make(self._hear, self.hub)
            begun.callback(self._launcher.close)
            job = {"argv": self._argv, "folder": str(self.folder), "stop_grace_s": _GRACE_S}
            if self._records_steps:
                job["env"] = {step_records.FOLDER: str(self._scratch / "steps")}
            self._launcher.add(TASK, job)
            agents.start(*self._names)
            self._begun = begun.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.close()

    @property
    def messages(self) -> list[Message]:
        """All messages of the launcher."""
        return self._log.all

    def is_warm(self) -> bool:
        """Return whether all agents are connected and have imported the modules; programs need none."""
        return len(self._all("warm" if self.hub.tasks.expects_scripts else "registered")) >= len(self._names)

    def resize(self, size: int) -> None:
        """Assign ``size`` nodes to the task."""
        self.hold(*range(1, size + 1))

    def hold(self, *numbers: int) -> None:
        """Assign these nodes, counted from 1, to the task."""
        wanted, held = tuple(self._names[number - 1] for number in numbers), self.held
        new, gone = ([node for node in one if node not in other] for one, other in ((wanted, held), (held, wanted)))
        self.held = wanted
        for action, nodes in (("grow" if held else "start", new), ("shrink", gone)):
            if nodes:
                kind = "stop" if action == "shrink" and not wanted else action
                self._launcher.apply([{"action": kind, "task": TASK, "nodes": nodes}])

    def pause(self) -> None:
        """Take all nodes away and wait until the state is in the folder."""
        if self.held and not self.ended:
            self.resize(0)
            self.until(lambda: bool(self._all("paused")), _GRACE_S + _SPARE_S)

    def count(self, size: int, since: int) -> int:
        """Return the number of steps at ``size`` nodes reported after the first ``since`` messages."""
        return len([one for one in self.messages[since:] if one["type"] == "report" and one["size"] == size])

    def until(self, true: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``true`` returns true, the task has finished, or the timeout expires.

        Returns whether one of the first two happened.
        """
        return self._log.wait(lambda: true() or bool(self.ended), timeout_s)

    def news(self) -> list[Message]:
        """Return the messages since the last call."""
        new = self.messages[self._drained :]
        self._drained += len(new)
        return new

    @property
    def ended(self) -> str:
        """``done`` or ``failed`` once the task has finished, before that ""."""
        return next((one["type"] for one in self.messages if one["type"] in _OVER), "")

    @property
    def failure(self) -> str:
        """The reason why the task failed; "" if it did not."""
        return next((one["reason"] for one in self.messages if one["type"] == "failed"), "")

    def state_costs(self) -> Message | None:
        """Return the size of the state and the cost of growth; ``None`` if the launcher does not report the size."""
        groups = [one for one in self._all("confirmed") if "state_bytes" in one]
        grown = self.measuring.changes().get("grow")
        return {"bytes": groups[-1]["state_bytes"], "grow_s": median(grown) if grown else None} if groups else None

    def step_records(self) -> list[list[Message]]:
        """Return the step records in groups, as one list per process with steps."""
        texts = [path.read_text() for path in sorted((self._scratch / "steps").glob("*.jsonl"))]
        return [[json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")] for text in texts]

    @property
    def is_silent(self) -> bool:
        """Whether neither a step nor a note was reported."""
        return not (self._all("report") or self._all("note"))

    def lines(self) -> list[Message]:
        """Return all reported steps."""
        return self._all("report")

    def _all(self, what: str) -> list[Message]:
        return [one for one in self.messages if one["type"] == what]

    def _hear(self, message: Message) -> None:
        if message.get("task") == TASK:
            self.measuring.on_message(message)
        self._log(message)
