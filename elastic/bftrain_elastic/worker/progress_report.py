"""Progress: one message for each step, to the agent.

In a :class:`StepReport`, ``total`` is the sum of all samples since step ``since``, so that lost messages do not lose
samples; ``noise`` is the noise scale, if the script passes one. ``nan`` is true if the loss was not finite.
``restarted`` is true if the script's own step count fell, as in scripts that do not resume from their state. A message
is sent with a single system call that never blocks, so a slow manager does not slow down training.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, SupportsFloat

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.worker_messages import StepReport, WorkFinished
from bftrain_elastic.worker.agent_channel import SOCKET, AgentChannel

if TYPE_CHECKING:
    from bftrain_elastic.worker.process_groups import GroupRank
    from bftrain_elastic.worker.state_values import StateBase


SIZE: Final = "BFTRAIN_SIZE"  # number of nodes of this worker's generation
RANK: Final = "RANK"  # rank of this worker, if set; rank 0's messages count


Listener = Callable[[int, dict[str, float]], object]
_listeners: list[Listener] = []
_untold: list[tuple[int, dict[str, float]]] = []  # sent steps that listeners do not know

Report = Callable[[int, "SupportsFloat | None", "int | None", "SupportsFloat | None"], None]
_current: Report | None = None


def report(
    samples: int,
    loss: SupportsFloat | None = None,
    *,
    step: int | None = None,
    noise_scale: SupportsFloat | None = None,
) -> None:
    """Report a completed step over ``samples`` samples of all workers together to the manager and all listeners.

    Call it on every worker with the ``loss`` of its share: under :func:`run` the mean over all workers is reported.
    ``step`` is the script's own step number (default: one more than before). ``noise_scale`` is the gradients' current
    noise scale in samples, for objectives that choose batches; the first worker's value counts.
    ``report`` raises no error if sending fails (the agent is gone, a value is impossible): it warns, and the step is
    unreported.

    >>> from bftrain_elastic import report
    >>> report(samples=256, loss=0.7)
    """
    global _current  # noqa: PLW0603 - made from the environment at the first step
    try:
        if _current is None:
            _current = _from_environment()
        _current(samples, loss, step, noise_scale)
    except (OSError, ValueError, BadMessage) as error:
        warnings.warn(f"this step's progress is not reported: {error}", RuntimeWarning, stacklevel=2)
    _tell_listeners()


def on_report(listener: Listener) -> None:
    """Call ``listener(step, metrics)`` with each reported step, on the first worker; add it before ``run``.

    Metrics are ``samples``, ``nodes`` and, where known, ``loss``: under :func:`run` the mean over all workers since the
    last commit, with Horovod that of rank 0. An error that ``listener`` raises stops the training.

    >>> from bftrain_elastic import on_report
    >>> metrics_by_step = {}
    >>> on_report(metrics_by_step.__setitem__)
    """
    _listeners.append(listener)


def _send_step(channel: AgentChannel | None, step: StepReport) -> None:
    """Send a step to the agent, if there is one; listeners are called later, since their errors are not caught."""
    if channel is not None:
        channel.send_nonblocking(StepReport.read(step.to_dict()))  # values of the script are checked here
    metrics = {"samples": float(step.samples), "nodes": float(step.size)}
    if step.loss is not None:
        metrics["loss"] = step.loss
    _untold.append((step.step, metrics))


def _tell_listeners() -> None:
    while _untold:
        step, metrics = _untold.pop(0)
        for listener in _listeners:
            listener(step, metrics)


def use(one: Report) -> None:
    """Report through ``one`` for all later steps."""
    global _current  # noqa: PLW0603 - a process has one training
    _current = one


class GroupReport:
    """Reports through a channel, for a worker at ``place``; the state counts the steps.

    Each worker has the loss of its share, so in a group a message waits for the next commit. There, :meth:`average`
    inserts the mean over all workers and all steps since the previous commit. Messages between commits carry no loss.
    With ``averages`` false, messages are sent immediately, with the loss of rank 0.
    """

    def __init__(self, channel: AgentChannel, state: StateBase, place: GroupRank, *, averages: bool = True) -> None:
        from bftrain_elastic.worker.state_values import inner

        self._channel = channel
        self._own = inner(state)
        self._place = place
        self._averages = averages and place.workers > 1
        self._waiting: StepReport | None = None
        self._losses: list[float] = []  # losses since the previous commit

    def __call__(
        self, samples: int, loss: SupportsFloat | None, step: int | None, noise_scale: SupportsFloat | None = None
    ) -> None:
        """Count a step, and report it now or at the next commit."""
        self.flush()
        own, number = self._own, _number(loss)
        restarted = step is not None and step < own.progress.counted
        own.progress.counted = own.progress.counted if step is None else step
        # Scripts may count something different, such as epochs: the step counted here never decreases
        own.progress.step = own.progress.step + 1 if step is None else max(own.progress.step + 1, step)
        own.progress.samples += int(samples)
        sums = {"total": own.progress.samples, "since": own.progress.samples_since, "restarted": restarted}
        message = _step_report(own.progress.step, self._place.size, samples, number, noise_scale, **sums)
        if not self._averages:
            self._send(message)
            return
        self._waiting = message
        if number is not None:
            self._losses.append(number)

    def average(self, sums_of: Callable[[Sequence[float]], Sequence[float]]) -> None:
        """Report the step before this commit with the mean loss of all workers; called by all members of a group."""
        if self._averages:
            total, count = sums_of([sum(self._losses), len(self._losses)])
            message, self._waiting, self._losses = self._waiting, None, []
            if message is not None:
                self._send(replace(message, **_loss_fields(total / count if count else None)))

    def flush(self) -> None:
        """Report the waiting step and omit its loss, because no commit followed."""
        message, self._waiting = self._waiting, None
        if message is not None:
            self._send(replace(message, loss=None, nan=False))

    def _send(self, message: StepReport) -> None:
        if self._place.rank == 0:
            _send_step(self._channel, message)


def average(sums_of: Callable[[Sequence[float]], Sequence[float]]) -> None:
    """Report the step before a commit with the mean loss of all workers; called by all members, at each commit."""
    if isinstance(_current, GroupReport):
        _current.average(sums_of)
        _tell_listeners()


def flush() -> None:
    """Report the step that waits for a commit."""
    if isinstance(_current, GroupReport):
        _current.flush()
        _tell_listeners()


def _from_environment() -> Report:
    if os.environ.get(RANK, "0") == "0" and (os.environ.get(SOCKET) or _listeners):
        return _counting(AgentChannel.from_environment(), int(os.environ.get(SIZE, "1")))
    return lambda *_: None


def _counting(channel: AgentChannel | None, size: int) -> Report:
    steps, total, since = 0, 0, -1

    def send(samples: int, loss: SupportsFloat | None, step: int | None, noise_scale: SupportsFloat | None) -> None:
        nonlocal steps, total, since
        if since < 0:
            since = 0 if step is None else step - 1
        steps = steps + 1 if step is None else step
        total += int(samples)
        _send_step(channel, _step_report(steps, size, samples, _number(loss), noise_scale, total=total, since=since))

    return send


def _step_report(
    step: int,
    size: int,
    samples: int,
    loss: float | None,
    noise_scale: SupportsFloat | None,
    **more: Any,  # noqa: ANN401 - fields of the message
) -> StepReport:
    """Return the message of a step; omits noise scales that are negative or not finite."""
    noise = _number(noise_scale)
    noise = noise if noise is not None and 0.0 <= noise < math.inf else None
    return StepReport(time.time(), step, size, int(samples), noise=noise, **_loss_fields(loss), **more)


def _loss_fields(loss: float | None) -> dict[str, Any]:
    """Return the fields of a loss; NaN counts as none."""
    is_nan = loss is not None and not math.isfinite(loss)
    return {"loss": None if is_nan else loss, "nan": is_nan}


def _number(value: SupportsFloat | None) -> float | None:
    return None if value is None else float(getattr(value, "detach", lambda: value)())  # a tensor may carry gradients


def finish() -> None:
    """Report that the work is done, so that the task counts as finished when this program exits.

    A scheduler that takes a node sends SIGTERM to all processes there. A program that saves and exits with 0 then looks
    finished, so the launcher ``process`` does not always count an exit code of 0 as done. A call of this function
    always counts. Call it on any rank, once. Scripts that return from ``train`` under :func:`bftrain_elastic.run` need
    no call. No-op without an agent.

    >>> from bftrain_elastic import finish
    >>> finish()  # after the last checkpoint
    """
    try:
        channel = AgentChannel.from_environment()
        if channel is not None:
            channel.send(WorkFinished())
            channel.close()
    except OSError as error:
        warnings.warn(f"completion could not be reported: {error}", RuntimeWarning, stacklevel=2)
