"""A task as its owner sees it: what is written down of it, and what is known beyond that while it runs."""

from __future__ import annotations

from bftrain.live.model.schemas import TaskView, state_of, view_fields
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.live.tasks.task_progress import TaskProgressTrack


def view_of(kept: LiveTaskRecord, track: TaskProgressTrack | None, now: float) -> TaskView:
    """Return the view of a task; ``track`` follows it until it is over."""
    held = track.held if track is not None else ()
    progress = kept.progress if track is None else track.settle(now)
    return TaskView(
        number=kept.number,
        name=kept.name,
        user=kept.user,
        state=state_of(kept, len(held)),
        launcher=kept.launcher,
        nodes=held,
        running=0 if track is None else track.running,
        submitted_s=kept.submitted_s,
        started_s=progress.started_s,
        ended_s=kept.ended_s,
        samples=progress.samples,
        step=progress.step,
        in_memory_step=max(progress.in_memory_step, progress.committed_step),
        committed_step=progress.committed_step,
        loss=progress.loss,
        speed=0.0 if track is None else track.speed(now),
        speeds=progress.speeds if track is None else track.speeds,
        costs=progress.costs,
        node_s=progress.node_s,
        rescales=progress.rescales,
        preemptions=progress.preemptions,
        failures=progress.failures,
        folder=kept.run.folder,
        argv=kept.run.argv,
        reason=kept.reason,
        **view_fields(kept.spec),
    )
