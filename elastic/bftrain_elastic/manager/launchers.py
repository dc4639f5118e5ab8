"""Launchers that run tasks on agents: one lifecycle for each task, driven by actions and events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadJob, install_hint
from bftrain_elastic.manager.agent_hub import AgentHub, AgentTask, OnEvent, TaskContext, TaskLifecycle
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.native import HorovodLifecycle, NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.process import ProcessLifecycle
from bftrain_elastic.timeouts import TIMEOUTS

_FOR_PYTHON: Final = frozenset({"native", "horovod"})
_HOROVOD: Final = "make horovod (in a checkout of bftrain)"


MakeLifecycle = Callable[[str, LauncherJob, TaskContext], TaskLifecycle]


class AgentLauncher:
    """A launcher for tasks on a hub's agents; ``make_lifecycle`` builds the lifecycle of a task.

    The hub emits its messages. All methods may be called from any thread except the hub's.
    """

    def __init__(self, name: str, make_lifecycle: MakeLifecycle, hub: AgentHub) -> None:
        self.name = name
        self._make_lifecycle = make_lifecycle
        self._hub = hub
        self._names: set[str] = set()

    def add(self, task: str, job: Mapping[str, Any] | LauncherJob) -> None:
        """Register the job of ``task``."""
        what = job if isinstance(job, LauncherJob) else LauncherJob.read(job)
        if self.name in _FOR_PYTHON:
            what.require_python(self.name)
        make = partial(self._make_lifecycle, task, what, TaskContext(self._hub, task, what))
        new = AgentTask(task, self.name, what, make)
        Path(what.folder).mkdir(mode=0o700, parents=True, exist_ok=True)  # may hang; other tasks may be added meanwhile
        if task in self._names:
            raise BadJob("already exists", where=f"task '{task}'")
        self._names.add(task)
        self._hub.call(lambda: self._hub.tasks.add(new))

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns immediately."""
        actions = list(actions)
        self._hub.call(lambda: self._hub.tasks.apply(self.name, actions))

    def narrow(self, task: str, size: int | None) -> None:
        """Limit a task to the first ``size`` of its nodes, until the next call; it keeps all nodes."""
        self._hub.call(lambda: self._hub.tasks.narrow(task, size))

    def set_batch(self, task: str, batch: int) -> None:
        """Set the samples per step of a task over all of its nodes, if its lifecycle supports that."""
        nothing = lambda _: None  # noqa: E731 - for a lifecycle without set_batch
        self._hub.call(lambda: self._hub.tasks.tell(task, lambda one: getattr(one, "set_batch", nothing)(batch)))

    def drop(self, task: str) -> None:
        """Forget a task and kill all its processes."""
        self._names.discard(task)
        self._hub.call(lambda: self._hub.tasks.drop(task))

    def close(self) -> None:
        """Kill all workers of all tasks; return once they have exited."""
        names = set(self._names)
        for task in names:
            self.drop(task)
        deadline = time.monotonic() + TIMEOUTS.closing_s
        while self._hub.ask(lambda: self._hub.workers.of(names)) and time.monotonic() < deadline:
            time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class LauncherAvailability:
    """Whether a launcher can be used here; otherwise the reason and the command that fixes it."""

    ok: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


def _always() -> LauncherAvailability:
    """Return that it is available: it has no requirements."""
    return LauncherAvailability(ok=True)


def _torch() -> LauncherAvailability:
    """Return whether torch is installed."""
    if find_spec("torch") is None:
        return LauncherAvailability(ok=False, reason="torch is not installed", fix=install_hint("torch"))
    return LauncherAvailability(ok=True, version=f"torch {_version('torch')}")


def _horovod() -> LauncherAvailability:
    """Return whether a Horovod is installed that fits the installed torch.

    Horovod works only with the torch version it was built against, and notes that version next to its code.
    """
    spec = find_spec("horovod")
    if spec is None:
        return LauncherAvailability(ok=False, reason="Horovod is not installed", fix=_HOROVOD)
    here, wanted = _version("torch"), _built_for(spec.submodule_search_locations or [])
    name = f"Horovod {_version('horovod')}"
    if not wanted:
        return LauncherAvailability(ok=False, reason=f"{name} was built without PyTorch", fix=_HOROVOD)
    if wanted != here:
        why = f"{name} was built for torch {wanted}, and {here or 'none'} is installed"
        return LauncherAvailability(ok=False, reason=why, fix=_HOROVOD)
    return LauncherAvailability(ok=True, version=f"{name}, torch {here}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _built_for(places: list[str]) -> str:
    for place in places:
        try:
            notes = json.loads((Path(place) / "metadata.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(notes, dict) and isinstance(notes.get("pytorch"), str):
            return str(notes["pytorch"])
    return ""


@dataclass(frozen=True, slots=True)
class LauncherFactory:
    """Builds a launcher on a hub; ``available`` returns whether its workers can run here."""

    name: str
    lifecycle: MakeLifecycle
    available: Callable[[], LauncherAvailability]

    def __call__(self, emit: OnEvent, hub: AgentHub) -> AgentLauncher:  # noqa: ARG002 - the hub emits its messages
        """Build a launcher; ``emit``, the receiver of messages, is for other launchers."""
        return AgentLauncher(self.name, self.lifecycle, hub)


# Plain PyTorch: processes stay, and form a new group for each change
native: Final = LauncherFactory("native", NativeLifecycle, _torch)
# Scripts that use Elastic Horovod
horovod: Final = LauncherFactory("horovod", HorovodLifecycle, _horovod)
# Any command: stopped and started again from its checkpoint at each change
process: Final = LauncherFactory("process", ProcessLifecycle, _always)
