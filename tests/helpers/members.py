"""Runs scripts side by side as members of a process group."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.warm_python import warm_python

PATIENCE_S = 90.0


def run_members(folder: Path, scripts: Sequence[str], words: Sequence[Sequence[object]]) -> list[tuple[int, str]]:
    """Run scripts beside each other, each with its words; return the exit code and the output of each."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    members = []
    for number, (script, own) in enumerate(zip(scripts, words, strict=True)):
        path, log = (folder / f"member{number}.{suffix}" for suffix in ("py", "log"))
        path.write_text(script, encoding="utf-8")
        members.append((warm_python().start([str(path), *map(str, own)], environment, log), log))
    deadline = time.monotonic() + PATIENCE_S
    try:
        return [(member.wait(max(0.0, deadline - time.monotonic())), log.read_text()) for member, log in members]
    finally:
        for member, _ in members:
            member.kill()
