"""Agents and successive managers, all of which can be killed or stopped at any time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from bftrain_elastic.agent.process_tree import children, descendants, kill
from bftrain_elastic.wire.authenticated_stream import make_secret
from tests.helpers import storm_manager
from tests.helpers.processes import alive, listening
from tests.helpers.storm_manager import TASK

PROGRAMS: Final = Path(__file__).parent / "programs"
PATIENCE_S: Final = 90.0
_ENDING_S: Final = 15.0


class StormSite:
    """Nodes of this machine and one task under one launcher; use it in a ``with`` block."""

    def __init__(self, folder: Path, launcher: str, script: str, nodes: Sequence[str], *words: str) -> None:
        self.folder = folder
        self.launcher = launcher
        self.nodes = tuple(nodes)
        self.records = folder / "records"
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.messages: list[dict[str, Any]] = []
        self.held: list[str] = []
        self._argv = [str(PROGRAMS / script), "--record", str(self.records), *words]
        self._news = threading.Condition()
        self._epoch = 0
        self._readers: list[threading.Thread] = []
        self.manager: subprocess.Popen[str]
        self._seen_pids: set[int] = set()

    def __enter__(self) -> Self:
        self.records.mkdir()
        (self.folder / "tmp").mkdir()
        make_secret(self.folder / "secret")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self.start_manager()
        for node in self.nodes:
            self.start_agent(node)
        self.until(lambda: len(self.of("warm")) >= len(self.nodes), "all agents have imported torch")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        pids = {pid for agent in self.agents.values() for pid in (agent.pid, *descendants(agent.pid))}
        self._seen_pids |= pids
        ports = {port for _, port in listening(pids)}
        self._close_manager()
        for agent in self.agents.values():
            kill(agent.pid, signal.SIGCONT)
            agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        for reader in self._readers:
            reader.join(10)
        if kind is None:  # else that is what is to be seen
            self._demand_nothing_is_left(ports)

    def start_agent(self, node: str) -> None:
        where = ["--manager", f"127.0.0.1:{self._port}", "--secret", str(self.folder / "secret"), "--node", node]
        command = [sys.executable, "-m", "bftrain_elastic.agent", *where, "--slots", "1", "--parent", str(os.getpid())]
        env = {**os.environ, "TMPDIR": str(self.folder / "tmp")}
        with (self.folder / f"{node}.log").open("ab") as log:
            self.agents[node] = subprocess.Popen(command, start_new_session=True, env=env, stdout=log, stderr=log)

    def start_manager(self) -> None:
        """Start a manager of the next epoch, which knows the nodes that the task holds."""
        self._epoch += 1
        command = [sys.executable, "-m", storm_manager.__name__]
        with (self.folder / "manager.log").open("ab") as log:
            self.manager = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=_ROOT
            )
        self._readers.append(threading.Thread(target=self._read, args=(self.manager,), daemon=True))
        self._readers[-1].start()
        settings = {
            "secret": str(self.folder / "secret"),
            "port": self._port,
            "epoch": self._epoch,
            "launcher": self.launcher,
            "job": {"argv": self._argv, "folder": str(self.folder / "task"), "stop_grace_s": 5.0},
            "held": self.held,
        }
        self._write(json.dumps(settings))

    def replace_manager(self) -> None:
        """Kill the manager as nothing can be prepared for, and start another."""
        self.manager.kill()
        self.manager.wait()
        with suppress(BrokenPipeError):  # of what it did not read any more
            assert self.manager.stdin is not None
            self.manager.stdin.close()
        self.start_manager()

    def hold(self, nodes: Sequence[str], *, cause: str = "decided") -> None:
        """Let the task hold these nodes; those that it leaves are left for ``cause``."""
        new = [node for node in nodes if node not in self.held]
        left = [node for node in self.held if node not in nodes]
        actions: list[dict[str, Any]] = []
        if left:
            what = "shrink" if set(nodes) & set(self.held) or new else "stop"
            actions.append({"action": what, "task": TASK, "nodes": left, "cause": cause})
        if new:
            actions.append({"action": "grow" if self.held else "start", "task": TASK, "nodes": new})
        self.held = [node for node in self.held if node in nodes] + new
        if actions:
            self._write(json.dumps(actions))

    def preempt(self, nodes: Sequence[str], gap_s: float) -> None:
        """Take nodes as Slurm does: SIGTERM to all their processes, children first; here with ``gap_s`` between."""
        below = {node: [self.agents[node].pid, *descendants(self.agents[node].pid)] for node in nodes}
        for depth in range(max(map(len, below.values()))):
            for pids in below.values():
                if depth < len(pids):
                    kill(pids[-1 - depth], signal.SIGTERM)
            time.sleep(gap_s)
        self.mark_taken(nodes, _ENDING_S)

    def mark_taken(self, nodes: Sequence[str], patience_s: float = 0.0) -> None:
        """Record that these nodes were taken: their agents end or are killed, and the task no longer holds them."""
        for node in nodes:
            agent = self.agents.pop(node)
            self._seen_pids |= {agent.pid, *descendants(agent.pid)}
            try:
                agent.wait(max(patience_s, 0.01))
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        self.hold([node for node in self.held if node not in nodes], cause="preempted")

    def prefork(self, node: str) -> int | None:
        """Return the process that forks the scripts of a node; it starts after that for commands."""
        return next(reversed(children(self.agents[node].pid)), None)

    def worker(self, node: str) -> int | None:
        """Return the worker of a node, if there is one."""
        prefork = self.prefork(node)
        return next(iter(children(prefork)), None) if prefork else None

    def of(self, what: str, since: int = 0) -> list[dict[str, Any]]:
        return [one for one in self.messages[since:] if one["type"] == what]

    def step(self) -> int:
        return max((one["step"] for one in self.of("report")), default=0)

    def until(self, true: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + patience_s
        while not true():
            assert self.manager.poll() is None, f"the manager ended before {what}: {self.story()}"
            assert time.monotonic() < deadline, f"{what}: not within {patience_s:g} s; {self.story()}"
            with self._news:
                self._news.wait(0.05)

    def story(self) -> str:
        """Return the last messages and log lines, for error texts."""
        last = [one for one in self.messages if one["type"] not in {"report", "on_disk", "in_memory"}][-14:]
        logs = [f"--- {log.name}\n{log.read_text(errors='replace')[-1200:]}" for log in self._logs()]
        tree = {node: self._tree(agent.pid) for node, agent in self.agents.items()}
        lines = "\n".join(f"{_message_line(one)}" for one in last)
        return f"held {self.held}, step {self.step()}, {tree}; its last messages:\n{lines}\n" + "\n".join(logs)

    def record(self) -> list[dict[str, Any]]:
        file = self.records / "record"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _logs(self) -> list[Path]:
        return [*sorted(self.folder.glob("*.log")), *sorted((self.folder / "task" / "logs").glob("*"))]

    def _tree(self, pid: int) -> list[str]:
        found = []
        for one in (pid, *descendants(pid)):
            with suppress(OSError):
                found.append(f"{one} {Path(f'/proc/{one}/stat').read_text().rpartition(')')[2].split()[0]}")
        return found

    def _read(self, manager: subprocess.Popen[str]) -> None:
        assert manager.stdout is not None
        with manager.stdout:
            for line in manager.stdout:
                with self._news, suppress(ValueError):  # half a line of one that was killed
                    self.messages.append(json.loads(line))
                    self._news.notify_all()

    def _write(self, line: str) -> None:
        assert self.manager.stdin is not None
        with suppress(BrokenPipeError):
            self.manager.stdin.write(line + "\n")
            self.manager.stdin.flush()

    def _close_manager(self) -> None:
        assert self.manager.stdin is not None
        kill(self.manager.pid, signal.SIGCONT)
        with suppress(BrokenPipeError):
            self.manager.stdin.close()
        try:
            self.manager.wait(_ENDING_S + 20)
        except subprocess.TimeoutExpired:
            self.manager.kill()
            self.manager.wait()

    def _demand_nothing_is_left(self, ports: set[int]) -> None:
        deadline = time.monotonic() + _ENDING_S
        while (left := (alive(self._seen_pids), ports & {port for _, port in listening()})) != (set(), set()):
            assert time.monotonic() < deadline, f"processes {left[0]} and open ports {left[1]} are left behind"
            time.sleep(0.02)
        folders = {path.name for path in (self.folder / "tmp").glob("bftrain*")}
        assert not folders, f"{folders} are left behind in the folder for temporary files"
        unknown = {path.name for path in (self.folder / "task").iterdir()} - {"state", "logs"}
        assert not unknown, f"{unknown} are left behind in the task's folder"


_ROOT: Final = Path(__file__).parents[2]


def _message_line(one: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in one.items() if name != "t")
