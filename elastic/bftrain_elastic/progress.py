"""Progress: one line of JSON a step, appended to the file that the environment names.

A line is ``{"t": seconds since 1970, "step": n, "size": nodes, "samples": in this step, "loss": number or null}``.
It is written with a single ``write`` to a file opened for appending, so lines of several workers do not mix and a
worker that is killed leaves no half of one behind.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from functools import cache

REPORT_FILE = "BFTRAIN_REPORT_FILE"  # where lines go; unset: nowhere
SIZE = "BFTRAIN_SIZE"  # number of nodes this worker's generation runs on


class Reporter:
    """Writes the progress of one worker to ``path``."""

    def __init__(self, path: str, *, size: int) -> None:
        self._size = size
        self._step = 0
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __call__(self, *, samples: int, loss: float | None = None, step: int | None = None) -> None:
        """Write one line; ``step`` is counted from 1 unless the script counts itself."""
        self._step = self._step + 1 if step is None else step
        line = {
            "t": time.time(),
            "step": self._step,
            "size": self._size,
            "samples": int(samples),
            # A diverged loss is no JSON number; that the step was done still counts
            "loss": float(loss) if loss is not None and math.isfinite(loss) else None,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@cache
def _reporter() -> Reporter | None:
    path = os.environ.get(REPORT_FILE)
    return Reporter(path, size=int(os.environ.get(SIZE, "1"))) if path else None


def report(*, samples: int, loss: float | None = None, step: int | None = None) -> None:
    """Say that a step over ``samples`` samples is done; does nothing when no manager asked for it.

    It never stops the training: if nothing can be written (a full disk, a bad environment), it warns and the step
    goes unreported.
    """
    try:
        reporter = _reporter()
        if reporter is not None:
            reporter(samples=samples, loss=loss, step=step)
    except (OSError, ValueError) as error:
        warnings.warn(f"this step's progress is not reported: {error}", RuntimeWarning, stacklevel=2)
