"""Agents on this machine, for trying scripts and for tests: each stands for a node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bftrain_elastic.hub import Hub
from bftrain_elastic.nursery import PRELOADED

_ENDING_S: Final = 30.0


class LocalAgents:
    """Starts and stops agents for ``hub``; they end with us, whatever happens to us."""

    def __init__(
        self,
        hub: Hub,
        secret_file: Path,
        *,
        preload: Sequence[str] = PRELOADED,
        slots: int = 1,
        tmp: Path | None = None,
    ) -> None:
        self._hub = hub
        self._secret = secret_file
        self._preload = ",".join(preload)
        self._slots = slots
        self._environment = dict(os.environ) if tmp is None else {**os.environ, "TMPDIR": str(tmp)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *nodes: str) -> None:
        """Start an agent for each of ``nodes``."""
        host, port = self._hub.address
        for node in nodes:
            words = ["--manager", f"{host}:{port}", "--secret", str(self._secret), "--node", node]
            words += ["--slots", str(self._slots), "--preload", self._preload, "--parent", str(os.getpid())]
            command = [sys.executable, "-m", "bftrain_elastic.agent", *words]
            self.running[node] = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command, stdin=subprocess.DEVNULL, start_new_session=True, env=self._environment
            )

    def terminate(self, *nodes: str) -> None:
        """Take nodes as a scheduler would: SIGTERM, and wait until the agents are gone."""
        for node in nodes:
            self.running[node].terminate()
        for node in nodes:
            self.running.pop(node).wait(_ENDING_S)

    def close(self) -> None:
        """End them all."""
        self.terminate(*list(self.running))
