"""Endless records through a pipe, into a program with little memory."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.program import PROGRAM, environment

DAY = 1_700_000_000
ROWS_A_BLOCK = 5000  # about a megabyte


def block_that_counts_for_nothing() -> bytes:
    """Return rows that are all set aside, each with another job and another set of nodes."""
    rows = (f"{at}|{DAY}|{DAY + at % 2}|n[{at}-{at + 9}]|COMPLETED{'x' * 150}\n" for at in range(ROWS_A_BLOCK))
    return "".join(rows).encode()


def flooded(blocks: int, limit_mb: int, out: Path) -> dict[str, Any]:
    """Import one row that counts and so many blocks that do not, in no more memory than that; return the report."""
    block = block_that_counts_for_nothing()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mb << 20, limit_mb << 20))

    with subprocess.Popen(
        [PROGRAM, "import", "-", "-o", str(out), "--window", f"{DAY - 10}:{DAY - 5}", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(OPENBLAS_NUM_THREADS="1"),
        preexec_fn=limited,  # noqa: PLW1509 - no threads here
    ) as running:
        assert running.stdin is not None
        running.stdin.write(b"JobID|Start|End|NodeList|State\n")
        running.stdin.write(f"0|{DAY - 10}|{DAY - 7}|n1|COMPLETED\n".encode())
        for _ in range(blocks):
            running.stdin.write(block)
        said, complaint = running.communicate(timeout=600)
        assert running.returncode == 0, complaint
    output: dict[str, Any] = json.loads(said)
    assert output["rows"] == {
        "read": 1 + blocks * ROWS_A_BLOCK,
        "used": 1,
        "aside": {"no_usage": blocks * ROWS_A_BLOCK // 2, "not_selected": blocks * ROWS_A_BLOCK // 2},
    }
    return output
