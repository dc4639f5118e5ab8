"""The speed of the wire: how long a raw broadcast takes from one process of this machine to another.

It is the least that a new worker can cost that receives a whole state while the others wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median
from typing import Final

import torch
import torch.distributed as dist

_TIMES: Final = 5
_MOST_BYTES: Final = 1_000_000_000  # a longer broadcast takes as much longer
_PATIENCE_S: Final = 180.0


def broadcast_s(size_bytes: int) -> float | None:
    """Return the seconds that a broadcast of so many bytes takes with Gloo; ``None`` if it fails, as without memory."""
    command = [sys.executable, "-m", __name__, str(min(size_bytes, _MOST_BYTES))]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as first:
        try:
            port = first.stdout.readline().strip() if first.stdout else ""
            second = [*command, port]
            subprocess.run(second, check=True, env=environment, capture_output=True, timeout=_PATIENCE_S)
            took_s = float(first.communicate(timeout=_PATIENCE_S)[0])
        except (OSError, ValueError, subprocess.SubprocessError):
            first.kill()
            return None
    return took_s * max(1.0, size_bytes / _MOST_BYTES)


def _broadcast(size: int, port: int | None) -> None:
    """Broadcast as the first of two processes, or as the one that connects to ``port`` and prints nothing."""
    torch.set_num_threads(1)
    rank = int(port is not None)
    store = dist.TCPStore("127.0.0.1", port or 0, is_master=not rank, wait_for_workers=False)
    if not rank:
        sys.stdout.write(f"{store.port}\n")
        sys.stdout.flush()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    box, took = torch.full((size,), rank, dtype=torch.uint8), []
    for _ in range(_TIMES):
        dist.barrier()
        begun = time.perf_counter()
        dist.broadcast(box, src=0)
        dist.barrier()
        took.append(time.perf_counter() - begun)
    if not rank:
        sys.stdout.write(f"{median(took)}\n")
        sys.stdout.flush()
    os._exit(0)  # PyTorch may abort at the end of one whose peer ended first


if __name__ == "__main__":
    _broadcast(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None)
