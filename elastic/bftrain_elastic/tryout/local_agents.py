"""Agents on this machine, for trying scripts and for tests: each stands for a node."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.agent.process_tree import is_running
from bftrain_elastic.manager.agent_hub import AgentHub

_ENDING_S: Final = 30.0
_LISTENS: Final = "0A"  # as the kernel writes the state of a connection


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


def alive(pids: Iterable[int]) -> set[int]:
    """Return which of these processes are alive; zombies are not."""
    return {pid for pid in pids if is_running(pid)}


def listening(pids: Iterable[int] | None = None) -> set[tuple[str, int]]:
    """Return the addresses and TCP ports on which any of these processes listens; without any, all processes here."""
    all_processes = pids is None
    wanted = set() if pids is None else {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and (all_processes or words[9] in wanted):
                    host, _, port = words[1].partition(":")
                    found.add((_address(host), int(port, 16)))
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 - called often: no Path for each descriptor
                if name.startswith("socket:["):
                    found.add(name[8:-1])
    return found


def _address(digits: str) -> str:
    """Parse an address of ``/proc/net/tcp``: words of four bytes, each in this machine's byte order."""
    raw = b"".join(struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8))
    if len(raw) == 4:  # noqa: PLR2004 - of bytes
        return socket.inet_ntop(socket.AF_INET, raw)
    text = socket.inet_ntop(socket.AF_INET6, raw)
    return text.removeprefix("::ffff:")
