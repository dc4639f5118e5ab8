"""Hosts on one machine: network namespaces on one switch, each with an address of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

_NETWORK: Final = "10.213.77"
_PATIENCE_S: Final = 60.0


def run(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def missing() -> str:
    """Return why there can be no hosts here; empty if there can."""
    if shutil.which("ip") is None:
        return "no ip command (iproute2) here"
    name = f"bftrain-{os.getpid()}"
    try:
        run("netns", "add", name)
        run("netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted here: {error.stderr.strip()}"
    return ""


class Hosts:
    """Hosts with these names; the first one has the switch. Processes are started with the ``prefix`` of their host."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._space = f"bftrain-{os.getpid()}-"
        self._spaces = {name: f"{self._space}{name}" for name in names}

    def __enter__(self) -> Self:
        for space in self._spaces.values():
            run("netns", "add", space)
            run("-n", space, "link", "set", "lo", "up")
        head = self._spaces[self._names[0]]
        run("-n", head, "link", "add", "switch", "type", "bridge")
        run("-n", head, "address", "add", f"{self.address(self._names[0])}/24", "dev", "switch")
        run("-n", head, "link", "set", "switch", "up")
        for name in self._names[1:]:
            space, port = self._spaces[name], f"to-{name}"
            run("-n", head, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("-n", head, "link", "set", port, "master", "switch", "up")
            run("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            run("-n", space, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while processes := [pid for space in self._spaces.values() for pid in run("netns", "pids", space).split()]:
            assert time.monotonic() < deadline, f"processes do not end: {processes}"
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)
            time.sleep(0.5)
        for space in self._spaces.values():
            run("netns", "delete", space)

    def address(self, name: str) -> str:
        return f"{_NETWORK}.{self._names.index(name) + 1}"

    def prefix(self, name: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self._space}{name}"]

    def cut_off(self, name: str) -> None:
        """Pull the cable of a host."""
        run("-n", self._spaces[self._names[0]], "link", "set", f"to-{name}", "down")

    def connect(self, name: str) -> None:
        run("-n", self._spaces[self._names[0]], "link", "set", f"to-{name}", "up")
