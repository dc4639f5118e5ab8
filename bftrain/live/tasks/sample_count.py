"""Count the samples of a task exactly to the step, also when lines of its reports were lost.

A worker reports with each step the running sum ``total`` of its samples since step ``since``. Lines get lost when a
socket is full, when the daemon is dead, or when a node goes. Two lines with the same ``since`` say by the difference of
their sums what was done between them, whether the lines between arrived or not. A script with a State keeps the sum in
the state: its ``since`` is 0, and the sum counts from the beginning of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bftrain.live.model.task_record import Progress


def counted(progress: Progress, message: Mapping[str, Any], *, began_at_step: int | None = None) -> Progress:
    """Return the progress of a task after a report; the sum of its samples never falls.

    ``began_at_step`` is the step from which the task went on when its processes ran for the first time, if known.
    """
    step, samples, total = int(message["step"]), int(message["samples"]), message.get("total")
    since = int(message.get("since") or 0)
    from_the_beginning = total is not None and since == 0
    if total is None:
        after = replace(progress, samples=progress.samples + samples, counted_since=None)
    elif from_the_beginning:
        after = replace(progress, samples=max(progress.samples, float(total)), counted_since=None)
    else:
        after = _with_difference(progress, step, since, float(total))
    if step <= progress.step:  # done before: only the sum is remembered, for the next line to be compared with
        return replace(after, samples=progress.samples)
    if progress.earlier_samples is None:
        earlier = _earlier(progress, after, step, samples, began_at_step) if from_the_beginning else 0.0
        after = replace(after, earlier_samples=earlier)
    loss = message.get("loss")
    return replace(after, step=step, loss=progress.loss if loss is None else float(loss))


def _with_difference(progress: Progress, step: int, since: int, total: float) -> Progress:
    """Add what was done since the last line with the same ``since``, or since ``since``.

    If steps of that were counted before, such as those done again after a restart, only the rest of it is added. Steps
    between the last one that is known and ``since`` are those of a process whose last lines were not written down: they
    are taken to be as large as the others.
    """
    first, before, stride = since, 0.0, progress.report_stride
    if since == progress.counted_since and progress.counted_step < step:
        first, before = progress.counted_step, progress.counted_total
        stride = min(stride or step - first, step - first)
    done, steps = max(0.0, total - before), step - first
    if first < progress.step < step:
        done *= (step - progress.step) / steps
    elif first == since and 0 < progress.step < step:  # a script that reports each tenth step is ahead by nine
        ahead = max(1, stride) - 1
        done += done / (steps + ahead) * max(0, since - progress.step - ahead)
    return replace(
        progress,
        samples=progress.samples + done,
        counted_since=since,
        counted_step=step,
        counted_total=total,
        report_stride=stride,
    )


def _earlier(before: Progress, after: Progress, step: int, samples: int, began_at_step: int | None) -> float:
    """Return the samples of a sum from the beginning that were done before this task, in the folder it goes on from."""
    if before.samples or before.step or step <= 1:
        return 0.0
    others = max(0.0, after.samples - samples)  # all but those of this step
    return others if began_at_step is None else others * min(1.0, max(0, began_at_step) / (step - 1))
