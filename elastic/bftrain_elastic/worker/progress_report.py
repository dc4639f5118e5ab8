"""Progress: one line of JSON a step, to the agent or to the file that the environment names.

A line is ``{"t": seconds since 1970, "step": n, "size": nodes, "samples": of all workers in this step, "loss": number
or null}``; an agent receives more: ``"total"`` is the sum of all samples since step ``"since"``, so that samples are
counted right even if lines are lost; ``"nan"`` is true if the loss was no number, and ``"restarted"`` if the script's
own count of steps fell, as it does when it does not go on from its state. A line is written with a single system call
that never waits, so lines of several workers do not mix, a worker that is killed leaves no half of one behind, and a
slow manager slows no training.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, SupportsFloat

from bftrain_elastic.worker.agent_channel import SOCKET, AgentChannel

if TYPE_CHECKING:
    from bftrain_elastic.worker.process_groups import GroupRank
    from bftrain_elastic.worker.state import State

REPORT_FILE: Final = "BFTRAIN_REPORT_FILE"  # where lines go
SIZE: Final = "BFTRAIN_SIZE"  # number of nodes this worker's generation runs on
RANK: Final = "RANK"  # which worker this is, if it is set; the first one's lines count

Write = Callable[[bytes], object]


class Reporter:
    """Writes the progress of one worker to the file ``path``."""

    def __init__(self, path: str, *, size: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = size
        self._step = 0

    def __call__(self, *, samples: int, loss: SupportsFloat | None = None, step: int | None = None) -> None:
        """Write one line; ``step`` is counted from 1 unless the script counts itself."""
        self._step = self._step + 1 if step is None else step
        os.write(self._file, _line(self._step, self._size, samples, loss) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


Report = Callable[[int, "SupportsFloat | None", "int | None"], None]
_current: Report | None = None


def report(samples: int, loss: SupportsFloat | None = None, *, step: int | None = None) -> None:
    """Say that a step is done, over ``samples`` samples of all workers together; nothing happens without a manager.

    Every worker calls it: the first one's line counts. It never stops the training: if nothing can be written (a
    full disk, a bad environment), it warns and the step goes unreported.
    """
    global _current  # noqa: PLW0603 - found in the environment the first time
    try:
        if _current is None:
            _current = _from_environment()
        _current(samples, loss, step)
    except (OSError, ValueError) as error:
        warnings.warn(f"this step's progress is not reported: {error}", RuntimeWarning, stacklevel=2)


def use(one: Report) -> None:
    """Report through ``one`` from now on."""
    global _current  # noqa: PLW0603 - a process has one training
    _current = one


def through(channel: AgentChannel, state: State, place: GroupRank) -> Report:
    """Report through a channel, for a worker at ``place``; the state counts the steps."""
    from bftrain_elastic.worker.state_values import inner

    own = inner(state)

    def write(samples: int, loss: SupportsFloat | None, step: int | None) -> None:
        restarted = step is not None and step < own.counted
        own.counted = own.counted if step is None else step
        # A script may count something else, such as epochs: what is counted here never goes back
        own.step = own.step + 1 if step is None else max(own.step + 1, step)
        own.samples += int(samples)
        if place.rank == 0:
            sums = own.samples, own.samples_since
            channel.mention("report", _said(own.step, place.size, samples, loss, sums, restarted=restarted))

    return write


def _from_environment() -> Report:
    if os.environ.get(REPORT_FILE):
        reporter = Reporter(os.environ[REPORT_FILE], size=int(os.environ.get(SIZE, "1")))
        return lambda samples, loss, step: reporter(samples=samples, loss=loss, step=step)
    if os.environ.get(SOCKET) and os.environ.get(RANK, "0") == "0":
        channel = AgentChannel.from_environment()
        if channel is not None:
            return _counting(channel, int(os.environ.get(SIZE, "1")))
    return lambda _samples, _loss, _step: None


def _counting(channel: AgentChannel, size: int) -> Report:
    steps, total, since = 0, 0, -1

    def write(samples: int, loss: SupportsFloat | None, step: int | None) -> None:
        nonlocal steps, total, since
        if since < 0:
            since = 0 if step is None else step - 1
        steps = steps + 1 if step is None else step
        total += int(samples)
        channel.mention("report", _said(steps, size, samples, loss, (total, since)))

    return write


def _said(
    step: int, size: int, samples: int, loss: SupportsFloat | None, sums: tuple[int, int], *, restarted: bool = False
) -> bytes:
    number, is_nan = _number(loss)
    line = _fields(step, size, samples, number)
    more = {"total": sums[0], "since": sums[1], "nan": is_nan, "restarted": restarted}
    return json.dumps({"type": "report", **line, **more}).encode()


def _line(step: int, size: int, samples: int, loss: SupportsFloat | None) -> bytes:
    return json.dumps(_fields(step, size, samples, _number(loss)[0])).encode()


def _fields(step: int, size: int, samples: int, loss: float | None) -> dict[str, float | None]:
    return {"t": time.time(), "step": step, "size": size, "samples": int(samples), "loss": loss}


def _number(loss: SupportsFloat | None) -> tuple[float | None, bool]:
    """Return a loss as JSON can say it, and whether it is no number: a step with such a loss still counts."""
    if loss is None:
        return None, False
    number = float(getattr(loss, "detach", lambda: loss)())  # a tensor may carry gradients
    return (number, False) if math.isfinite(number) else (None, True)
