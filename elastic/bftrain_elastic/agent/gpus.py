"""GPUs of this node, counted without asking CUDA: a process that did could not be forked any more."""

from __future__ import annotations

import os
import re
from pathlib import Path


def visible_gpus(devices: Path = Path("/dev")) -> list[str]:
    """Give the names by which CUDA_VISIBLE_DEVICES may call the GPUs that are ours; none where there are none."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() and name.strip() != "-1"]
    present = [path.name for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [str(number) for number in range(len(present))]
