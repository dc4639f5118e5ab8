"""The manager's register of workers: which launcher started each, for which task and node, and which have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bftrain_elastic.manager.spawn_queue import HubListener
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.wire.messages import Message, text_of, whole_of

_ENDS: Final = 10_000  # of workers that are remembered


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """The launcher that started a worker, and for what."""

    listener: HubListener
    task: str
    node: str


class WorkerRegistry:
    """The workers of one manager; ``epoch`` counts its starts."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._count = 0  # of names
        self._owners: dict[str, WorkerOwner] = {}
        self._ends: dict[str, bool] = {}  # worker that ended -> whether its agent said so

    def new_name(self, task: str, node: str, slot: int) -> str:
        """Return a name that no worker has or had."""
        self._count += 1
        return f"{task}/{node}/{slot}/{self._epoch}-{self._count}"

    def read(self, left: Message) -> tuple[str, str, int]:
        """Read name, task and slot of a worker that an agent has or had; no other will get its name."""
        worker = text_of(left, "worker")
        epoch, _, number = worker.rpartition("/")[2].partition("-")
        if epoch == str(self._epoch) and number.isdecimal():
            self._count = max(self._count, int(number))
        return worker, text_of(left, "task"), whole_of(left, "slot")

    def add(self, worker: str, owner: WorkerOwner) -> None:
        """Know whose a worker is."""
        self._owners[worker] = owner

    def remove(self, worker: str) -> None:
        """Know that a worker belongs to no launcher."""
        self._owners.pop(worker, None)

    def owner(self, worker: str) -> WorkerOwner | None:
        """Return whose a worker is; nothing if it has ended, or belongs to no launcher."""
        return self._owners.get(worker)

    def of(self, listener: HubListener) -> Iterator[tuple[str, WorkerOwner]]:
        """Return the workers of one launcher; they may end meanwhile."""
        return ((worker, owner) for worker, owner in list(self._owners.items()) if owner.listener is listener)

    def clear(self) -> None:
        """Know nothing of any worker."""
        self._owners.clear()

    # -- ends

    def ended(self, worker: str, exit_: WorkerExit, *, said: bool) -> None:
        """Tell the owner that a worker has ended: its agent ``said`` so, or is gone."""
        self.remember_end(worker, said=said)
        owner = self._owners.pop(worker, None)
        if owner is not None:
            owner.listener.exited(owner.task, worker, exit_)

    def remember_end(self, worker: str, *, said: bool) -> None:
        """Remember that a worker has ended; ``said``: how it ended is known from its agent."""
        self._ends[worker] = said
        while len(self._ends) > _ENDS:
            del self._ends[next(iter(self._ends))]

    def end_is_known(self, worker: str) -> bool:
        """Return whether an agent said how a worker ended."""
        return self._ends.get(worker, False)

    def forget(self, task: str) -> None:
        """Forget the ends of a task's workers."""
        self._ends = {worker: said for worker, said in self._ends.items() if not worker.startswith(f"{task}/")}
