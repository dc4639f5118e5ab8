"""Ways to keep a task's progress: the task's own settings, memory, copies on other nodes, or checkpoints on disk.

docs/explanation/semantics.md has the rules with their formulas ("How progress is kept").
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from bftrain import text_formats
from bftrain.durations import parse_duration

MEMORY: Final = "memory"
COPIES: Final = "copies"
DISK: Final = "disk"
TASK: Final = "task"
FORMS: Final = "memory, copies, memory:DURATION, copies:DURATION, disk:DURATION or task"
SAVE_PERIOD_S: Final = 60.0  # seconds between disk saves in elastic training: docs/explanation/semantics.md
COPY_PERIOD_S: Final = 2.0  # seconds between copies on another node; each is complete after half of this time


class ProgressKept(NamedTuple):
    """One way to keep progress: ``kept`` in memory, in copies on other nodes, on disk or by the task's own setting.

    ``disk_s`` are the seconds between saves on disk, ``copy_s`` the seconds between copies on another node.
    """

    kept: str
    disk_s: float | None = None
    copy_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> ProgressKept:
        """Read one of ``FORMS``, such as ``disk:5min``; raise ``ValueError`` otherwise."""
        kept, colon, period = text.partition(":")
        if kept == TASK and not colon:
            return cls(TASK)
        if kept == MEMORY and not colon:
            return cls(MEMORY, SAVE_PERIOD_S)
        if kept == COPIES and not colon:
            return cls(COPIES, SAVE_PERIOD_S, COPY_PERIOD_S)
        period_s = parse_duration(period)
        if kept not in {MEMORY, COPIES, DISK} or not 0.0 < period_s < math.inf:
            raise ValueError(text)
        return cls(COPIES, SAVE_PERIOD_S, period_s) if kept == COPIES else cls(kept, period_s)

    @property
    def text(self) -> str:
        """The shortest form of the setting."""
        seconds = self.disk_s if self.copy_s is None else self.copy_s
        if seconds is None or (self.kept, seconds) in {(MEMORY, SAVE_PERIOD_S), (COPIES, COPY_PERIOD_S)}:
            return self.kept
        return f"{self.kept}:{repr(seconds).removesuffix('.0')}"

    @property
    def short(self) -> str:
        """The assumption in few words."""
        option = f"(--progress {self.text})"
        if self.disk_s is None:
            return f"Assumed: a preemption costs shrink_cost_s of work {option}"
        if self.copy_s is not None:
            return f"Assumed: progress is copied to another node every {text_formats.duration(self.copy_s)} {option}"
        on_disk = f"on disk every {text_formats.duration(self.disk_s)}"
        return f"Assumed: progress is kept {on_disk if self.kept == DISK else f'in memory, and {on_disk}'} {option}"

    @property
    def sentence(self) -> str:
        """The assumption, and the option that changes it."""
        option = f"(--progress {self.text})."
        if self.disk_s is None:
            return f"Assumed: a preemption costs each task shrink_cost_s of work {option}"
        period = text_formats.duration(self.disk_s)
        if self.copy_s is not None:
            return (
                f"Assumed: elastic training that copies its state to a node outside the task every "
                f"{text_formats.duration(self.copy_s)}; a task that loses all its nodes at the same time "
                f"returns to the last complete copy, or to its last save on disk if that node also leaves {option}"
            )
        if self.kept == DISK:
            return (
                f"Assumed: training that writes a checkpoint every {period}; a task that loses a node returns "
                f"to its last checkpoint {option}"
            )
        return (
            "Assumed: elastic training that keeps its state in memory; a task that loses all its nodes at the same "
            f"time returns to its last save on disk, up to {period} old {option}"
        )


def in_short(progress: str | None) -> str:
    """Return the assumption in few words; ``progress`` is the setting, ``None`` by the published rules."""
    if progress is None:
        return "Assumed: a preemption costs shrink_cost_s of work (--semantics published)"
    return ProgressKept.parse(progress).short


def to_dict(progress: str | None, *, nodes_leave: bool = True) -> dict[str, Any]:
    """Return the entry of ``summary.json``; ``progress`` is the setting, ``None`` by the published rules."""
    if progress is None:
        sentence = (
            "Assumed: the published rules; whenever nodes leave a task, it loses shrink_cost_s (--semantics published)."
        )
        return {"kept": TASK, "disk_s": None, "sentence": sentence}
    kept = ProgressKept.parse(progress)
    sentence = kept.sentence if nodes_leave else "Nodes of a cluster never leave, so no progress is lost to preemption."
    copies = {} if kept.copy_s is None else {"copy_s": kept.copy_s}
    return {"kept": kept.kept, "disk_s": kept.disk_s, **copies, "sentence": sentence}
