"""``bftrain live`` as a process of its own, on slots of this machine: it can be killed and started again."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from bftrain import BftrainError, Client

PATIENCE_S: Final = 180.0


class LocalDaemon:
    """A daemon with the settings ``site``, which need not say where its state is; ``prefix`` precedes its command."""

    def __init__(self, folder: Path, site: str, prefix: Sequence[str] = ()) -> None:
        self.folder = folder
        self._prefix = prefix
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        self._site = folder / "site.toml"
        self.write_site(site)
        self._output = folder / "live.log"
        self.socket = str(self.state / "api.sock")
        self.client = Client(self.socket)
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        self.until(self.runs, "it runs")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def write_site(self, site: str) -> None:
        """Set what the next start reads."""
        self._site.write_text(f'state = "{self.state}"\n{site}')

    def start(self) -> None:
        """Start it, and do not wait."""
        with self._output.open("ab") as output:
            command = [*self._prefix, sys.executable, "-m", "bftrain", "live", "--config", str(self._site), "-v"]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """End it in order; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def until(self, true: Callable[[], object], what: str = "what is waited for is so") -> None:
        """Wait until something is so, while it runs; ``what`` says what."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert self.process.poll() is None, f"it ended before {what}: {self.story()}"
            assert time.monotonic() < deadline, f"after {PATIENCE_S:g} s it is not so that {what}: {self.story()}"
            time.sleep(0.05)

    def runs(self) -> bool:
        with suppress(BftrainError):
            return self.client.status().state == "running"
        return False

    def metrics(self) -> dict[str, float]:
        """Return the metrics by their names with labels."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.socket)
        connection.request("GET", "/metrics", headers={"host": "localhost"})
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def story(self) -> str:
        views: list[str] = []
        with suppress(BftrainError):
            views = [f"{one.name} {one.state} step {one.step} {one.reason}" for one in self.client.tasks(over=True)]
        return "\n".join([*views[-12:], self._output.read_text(errors="replace")[-4000:]])
