"""Agents on this machine, for trying scripts and for tests: each stands for a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.manager.agent_hub import AgentHub

_ENDING_S: Final = 30.0


class LauncherPort(Protocol):
    """The part of the Launcher port that is needed here."""

    name: str

    def add(self, task: str, job: dict[str, Any]) -> None: ...  # noqa: D102 - as in the port Launcher
    def apply(self, actions: Sequence[dict[str, Any]]) -> None: ...  # noqa: D102 - as in the port Launcher
    def drop(self, task: str) -> None: ...  # noqa: D102 - as in the port Launcher
    def close(self) -> None: ...  # noqa: D102 - as in the port Launcher


class LocalAgents:
    """Starts and stops agents for ``hub``; they end with this process, even if it is killed.

    ``grace_s`` is how long an agent runs on after SIGTERM if there are workers. If this process is killed, the agents
    remove the folder ``remove``.
    """

    def __init__(
        self,
        hub: AgentHub,
        secret_file: Path,
        *,
        preload: Sequence[str] = PRELOADED,
        slots: int = 1,
        tmp: Path | None = None,
        grace_s: float = 0.0,
        remove: Path | None = None,
    ) -> None:
        self._hub = hub
        self._secret = secret_file
        self._preload = ",".join(preload)
        self._slots = slots
        self._places: dict[str, int] = {}  # of nodes in the order of their first start, for their GPUs
        self._words = ["--slots", str(slots), "--grace", f"{grace_s:g}", "--parent", str(os.getpid()), "--yield", "0"]
        self._words += ["--remove", str(remove)] if remove is not None else []
        self._environment = dict(os.environ) if tmp is None else {**os.environ, "TMPDIR": str(tmp)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *nodes: str) -> None:
        """Start an agent for each of ``nodes``."""
        host, port = self._hub.address
        for node in nodes:
            if node in self.running:  # it was killed
                self.running.pop(node).wait(_ENDING_S)
            words = ["--manager", f"{host}:{port}", "--secret", str(self._secret), "--node", node]
            words += ["--preload", self._preload, *self._words]
            words += ["--first-gpu", str(self._slots * self._places.setdefault(node, len(self._places)))]
            command = [sys.executable, "-m", "bftrain_elastic.agent", *words]
            self.running[node] = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command, stdin=subprocess.DEVNULL, start_new_session=True, env=self._environment
            )

    def terminate(self, *nodes: str) -> None:
        """Take nodes as a scheduler would: SIGTERM, and wait until the agents are gone."""
        for node in nodes:
            self.running[node].terminate()
            self.running[node].send_signal(signal.SIGCONT)  # it may have been stopped
        for node in nodes:
            self.running.pop(node).wait(_ENDING_S)

    def close(self) -> None:
        """End them all."""
        self.terminate(*list(self.running))
