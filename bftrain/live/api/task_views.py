"""The view of a task as its owner sees it."""

from __future__ import annotations

from typing import Any, Final

from bftrain.live.model import schemas
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.live.tasks.task_progress import TaskProgressTrack

_SHOWN: Final = frozenset(schemas.TaskView.__struct_fields__)


def view_of(record: LiveTaskRecord, track: TaskProgressTrack | None, now: float, unit: str) -> schemas.TaskView:
    """Return the view of a task; ``track`` is its progress while it is unfinished."""
    held = track.held if track is not None else ()
    progress = record.progress if track is None else track.advance_to(now)
    shown: dict[str, Any] = {"unit": unit}
    for source in (record, progress):
        shown |= {name: getattr(source, name) for name in source.__struct_fields__ if name in _SHOWN}
    shown |= schemas.view_fields(record.spec)  # last: the work is that of the task, not the finished part
    shown |= {"state": schemas.state_of(record, len(held)), "nodes": held}
    shown |= {"folder": record.run.folder, "argv": record.run.argv}
    shown["done_samples"] = progress.done_samples
    shown["in_memory_step"] = max(progress.in_memory_step, progress.committed_step)
    if track is not None:
        shown |= {"running": track.running, "speed": track.speed(now), "speeds": track.speeds}
    return schemas.TaskView(**shown)
