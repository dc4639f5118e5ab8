"""The fake launcher: simulated tasks, for tests of programs that use launchers.

A step takes ``step_s`` seconds of real time on one node, and 1/size of that on several. A job's ``argv`` may have
``--steps N``, after which it is done, or ``--fail``: then it dies whenever it starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager.agent_hub import OnEvent
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.failures import ALLOWED
from bftrain_elastic.wire.messages import Message

SAMPLES: Final = 32  # of every step


@dataclass
class _Task:
    steps: int | None
    fails: bool
    held: tuple[str, ...] = ()
    limit: int | None = None
    generation: int = 0
    step: int = 0
    next_at: float = 0.0
    over: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.held[: self.limit]


class FakeLauncher:
    """Applies orders at once, and counts steps."""

    name = "fake"

    def __init__(self, emit: OnEvent, *, step_s: float = 0.01) -> None:
        self._tell = emit
        self._step_s = step_s
        self._tasks: dict[str, _Task] = {}
        self._lock = threading.RLock()  # a receiver of messages may call back
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bftrain-fake", daemon=True)
        self._thread.start()

    def add(self, task: str, job: Mapping[str, Any] | LauncherJob) -> None:
        """Register the job of ``task``."""
        words = (job if isinstance(job, LauncherJob) else LauncherJob.read(job)).argv
        steps = int(words[words.index("--steps") + 1]) if "--steps" in words else None
        with self._lock:
            if task in self._tasks:
                raise BadJob("is there already", where=f"task '{task}'")
            self._tasks[task] = _Task(steps, "--fail" in words)

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form."""
        with self._lock:
            before = {name: task.nodes for name, task in self._tasks.items()}
            for action in actions:
                nodes, task = tuple(action["nodes"]), self._tasks.get(action.get("task", ""))
                if action["action"] in {"start", "grow"} and task is not None:
                    task.held += _without(nodes, task.held)
                elif action["action"] == "release":
                    for one in self._tasks.values():
                        one.held = _without(one.held, nodes)
                elif task is not None:
                    task.held = _without(task.held, nodes)
            for name, held in before.items():
                if self._tasks[name].nodes != held:
                    self._changed(name, self._tasks[name], held)

    def narrow(self, task: str, size: int | None) -> None:
        """Let a task run on only the first ``size`` of its nodes, until the next call."""
        with self._lock:
            held = self._tasks[task].nodes
            self._tasks[task].limit = size
            if self._tasks[task].nodes != held:
                self._changed(task, self._tasks[task], held)

    def lose(self, node: str) -> None:
        """Remove a node, as when its agent dies."""
        self.apply([{"action": "release", "nodes": [node]}])

    def drop(self, task: str) -> None:
        """Forget a task."""
        with self._lock:
            self._tasks.pop(task, None)

    def close(self) -> None:
        """Stop."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _changed(self, name: str, task: _Task, held: tuple[str, ...]) -> None:
        if not held:
            self._emit(name, {"type": "starting", "nodes": list(task.nodes)})
        left = [node for node in held if node not in task.nodes]
        if left:
            self._emit(name, {"type": "vacated", "nodes": left})
        if not task.nodes:
            self._emit(name, {"type": "on_disk", "step": task.step})
            self._emit(name, {"type": "paused", "step": task.step})
        elif task.fails:
            for _ in range(ALLOWED - 1):
                self._emit(name, {"type": "note", "text": "it ended with 1; it is started again"})
            task.held = ()
            self._emit(name, {"type": "failed", "reason": "it ended with 1\nValueError: as it was asked to"})
        elif not task.over:
            task.generation += 1
            task.next_at = time.monotonic() + self._step_s / len(task.nodes)
            message = {"type": "confirmed", "generation": task.generation, "size": len(task.nodes)}
            self._emit(name, {**message, "nodes": list(task.nodes), "step": task.step})

    def _run(self) -> None:
        while not self._ending.wait(self._step_s / 4):
            with self._lock:
                for name, task in list(self._tasks.items()):
                    while task.nodes and not task.over and time.monotonic() >= task.next_at:
                        self._do_step(name, task)

    def _do_step(self, name: str, task: _Task) -> None:
        task.step += 1
        task.next_at += self._step_s / len(task.nodes)
        done = {"step": task.step, "size": len(task.nodes), "samples": SAMPLES, "loss": 1.0 / task.step}
        self._emit(name, {"type": "report", **done, "total": SAMPLES * task.step, "since": 0, "nan": False})
        self._emit(name, {"type": "in_memory" if len(task.nodes) > 1 else "on_disk", "step": task.step})
        if task.steps is not None and task.step >= task.steps:
            task.over = True
            self._emit(name, {"type": "vacated", "nodes": list(task.nodes)})
            self._emit(name, {"type": "done", "step": task.step, "finished": True})

    def _emit(self, task: str, message: Message) -> None:
        self._tell({"t": time.time(), "task": task, **message})


def _without(nodes: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(node for node in nodes if node not in gone)
