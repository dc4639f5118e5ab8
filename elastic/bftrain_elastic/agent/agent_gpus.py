"""The GPUs of an agent, and which of them each of its workers sees."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentGpus:
    """``names`` are those of the GPUs as in CUDA_VISIBLE_DEVICES, ``first`` is the place there of the first slot's.

    Agents that share a machine have different first places. Where there are more slots than GPUs, slots share a GPU.
    """

    names: tuple[str, ...]
    first: int = 0

    def environment(self, slot: int, *, all_gpus: bool) -> dict[str, str]:
        """Return variables for a worker: its own GPU, or all with its own as the first."""
        if not self.names:
            return {}
        turn, own = divmod(self.first + slot, len(self.names))
        found = {}
        if not all_gpus:
            found["CUDA_VISIBLE_DEVICES"] = self.names[own]
        elif first := self.first % len(self.names):
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.names[first:] + self.names[:first])
        if turn:  # NCCL refuses two workers of a host on one GPU, but not if they seem to be on different hosts
            found["NCCL_HOSTID"] = f"{socket.gethostname()}-{turn}"
        return found


# Counted without asking CUDA: a process that did could not be forked any more
def visible_gpus(devices: Path = Path("/dev")) -> list[str]:
    """Return the names for CUDA_VISIBLE_DEVICES of the GPUs of this machine that may be used; empty without GPUs."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() and name.strip() != "-1"]
    present = [path.name for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [str(number) for number in range(len(present))]
