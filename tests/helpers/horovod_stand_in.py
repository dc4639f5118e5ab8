"""A stand-in for Horovod that knows groups of one process, and the agent's end of a worker's channel."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain_elastic.worker.agent_channel import AgentChannel

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")


class InternalError(RuntimeError):
    """As Horovod's: another member is gone."""


class UpdatedError(RuntimeError):
    """As Horovod's: leave the group at this commit."""

    def __init__(self, *, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class Kept:
    """As Horovod's TorchState: a model, and a number."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self._handlers = {"model": SimpleNamespace(value=self.model)}
        self.position = 0
        self._saved_state = {"position": 0}
        self._weight = 0.0
        self.resets = 0
        self.syncs = 0

    def save(self) -> None:
        self._saved_state, self._weight = {"position": self.position}, self.model.weight.item()

    def restore(self) -> None:
        self.position = self._saved_state["position"]
        torch.nn.init.constant_(self.model.weight, self._weight)

    def check_host_updates(self) -> None:
        pytest.fail("Horovod's own driver was asked")

    def commit(self) -> None:
        self.save()
        self.check_host_updates()

    commit.__module__ = "horovod.common.elastic"

    def on_reset(self) -> None:
        self.resets += 1

    def sync(self) -> None:
        self.syncs += 1


class StandIn:
    """What Horovod was asked to do, and the environment in which it formed its groups."""

    def __init__(self) -> None:
        self.groups: list[dict[str, str]] = []
        self.formed = True
        self.others: list[Any] | None = None  # what another member's numbers are in an allreduce
        self.values: Any = None  # what rank 0 has, if that is another member
        self.sent: list[Any] = []

    def come(self, *_: object) -> None:
        """All members are there."""

    def allreduce(self, tensor: Any, name: str, **_: object) -> Any:  # noqa: ANN401 - tensors
        if self.others is None or name != "bftrain.largest.int64":
            return tensor
        return torch.maximum(tensor, torch.tensor(self.others))

    def broadcast(self, found: object, **_: object) -> Any:  # noqa: ANN401 - as sent
        self.sent.append(found)
        return found if self.values is None else self.values

    def init(self) -> None:
        self.groups.append({name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")})
        if not self.formed:
            raise ValueError("Horovod initialization failed")


class Agent:
    """The other end of a worker's channel."""

    def __init__(self, path: Path) -> None:
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(str(path))
        self._door.listen(1)
        self.said: list[dict[str, Any]] = []
        self.channels: list[AgentChannel] = []  # a worker keeps its own until its process ends
        self._worker: socket.socket | None = None

    def hear(self, what: str) -> dict[str, Any]:
        """Wait until the worker says ``what``."""
        if self._worker is None:
            self._worker, _ = self._door.accept()
            self._worker.settimeout(30)
        while True:
            self.said.append(json.loads(self._worker.recv(65536)))
            if self.said[-1]["type"] == what:
                return self.said[-1]

    def tell(self, **message: object) -> None:
        assert self._worker is not None
        self._worker.send(json.dumps(message).encode())

    def go(self, generation: int, rank: int = 0, workers: int = 1, *, sync: bool = True) -> None:
        store = ["127.0.0.1", 12345]
        self.tell(type="go", generation=generation, rank=rank, workers=workers, size=workers, store=store, sync=sync)

    def close(self) -> None:
        for one in (self._worker, self._door):
            if one is not None:
                one.close()
