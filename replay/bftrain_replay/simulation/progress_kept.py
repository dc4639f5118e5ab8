"""The ways to keep a task's progress: by the task's own settings, in memory, or in checkpoints on disk.

docs/explanation/semantics.md has the rules with their formulas ("How progress is kept").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bftrain import text_formats
from bftrain.durations import parse_duration
from bftrain.errors import BadValue
from bftrain.values.task import TaskSpec
from bftrain_replay.simulation.task_progress import SampleLoss, TaskProgress

MEMORY: Final = "memory"
DISK: Final = "disk"
TASK: Final = "task"
FORMS: Final = "memory, memory:SECONDS, disk:SECONDS or task"
SAVE_PERIOD_S: Final = 60.0  # between saves on disk in elastic training: docs/explanation/semantics.md


@dataclass(frozen=True, slots=True)
class ProgressKept:
    """The way to keep progress: ``kept`` in memory, on disk or by the task's own setting; ``disk_s`` between saves."""

    kept: str
    disk_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> ProgressKept:
        """Read ``memory``, ``memory:60``, ``disk:5min`` or ``task``; raise ``ValueError`` for anything else."""
        kept, colon, seconds = text.partition(":")
        if kept == TASK and not colon:
            return cls(TASK)
        if kept == MEMORY and not colon:
            return cls(MEMORY, SAVE_PERIOD_S)
        disk_s = parse_duration(seconds)
        if kept not in {MEMORY, DISK} or not 0.0 < disk_s < math.inf:
            raise ValueError(text)
        return cls(kept, disk_s)

    @property
    def text(self) -> str:
        """The shortest form of the setting."""
        if self.disk_s is None or self == ProgressKept(MEMORY, SAVE_PERIOD_S):
            return self.kept
        return f"{self.kept}:{repr(self.disk_s).removesuffix('.0')}"

    @property
    def short(self) -> str:
        """The assumption in few words."""
        option = f"(--progress {self.text})"
        if self.disk_s is None:
            return f"Assumed: a preemption takes what the task says {option}"
        on_disk = f"on disk every {text_formats.duration(self.disk_s)}"
        return f"Assumed: progress is kept {on_disk if self.kept == DISK else f'in memory, and {on_disk}'} {option}"

    @property
    def sentence(self) -> str:
        """The assumption, and the option that changes it."""
        option = f"(--progress {self.text})."
        if self.disk_s is None:
            return f"Assumed: a preemption takes from each task what the task says (shrink_cost_s) {option}"
        period = text_formats.duration(self.disk_s)
        if self.kept == DISK:
            return (
                f"Assumed: training that writes a checkpoint every {period}; a task that loses a node goes back to its "
                f"last checkpoint {option}"
            )
        return (
            "Assumed: elastic training that keeps its state in memory; a task that loses all its nodes at once goes "
            f"back to its last save on disk, at most {period} old {option}"
        )


def in_short(progress: str | None) -> str:
    """Return the assumption in few words; ``progress`` is the setting, ``None`` by the published rules."""
    if progress is None:
        return "Assumed: a preemption takes what the task says (--semantics published)"
    return ProgressKept.parse(progress).short


def to_dict(progress: str | None, *, nodes_leave: bool = True) -> dict[str, Any]:
    """Return the entry of ``summary.json``; ``progress`` is the setting, ``None`` by the published rules."""
    if progress is None:
        sentence = (
            "Assumed: the published rules; whenever nodes leave a task, it loses what it says (shrink_cost_s) "
            "(--semantics published)."
        )
        return {"kept": TASK, "disk_s": None, "sentence": sentence}
    kept = ProgressKept.parse(progress)
    sentence = kept.sentence if nodes_leave else "Nodes of a cluster never leave, so no progress is lost to preemption."
    return {"kept": kept.kept, "disk_s": kept.disk_s, "sentence": sentence}


def agreed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with ``checkpoint_interval_s`` converted to ``progress``; raise for two that contradict."""
    found = dict(given)
    interval_s = found.get("checkpoint_interval_s")
    if not isinstance(interval_s, int | float) or not 0.0 < interval_s < math.inf:
        return found  # nothing to translate, or for the settings to refuse
    same = ProgressKept(DISK, float(interval_s)).text
    said = found.get("progress")
    if said is not None and _canonical(said) != same:
        raise BadValue(
            f"contradicts progress {said}",
            where="ReplaySettings.checkpoint_interval_s",
            fix=f"leave one of them out; progress {same} says the same as this interval",
        )
    del found["checkpoint_interval_s"]
    return {**found, "progress": same}


def _canonical(text: object) -> str:
    try:
        return ProgressKept.parse(str(text)).text
    except ValueError:
        return ""


def progress_kept(kept: ProgressKept, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
    """Return a task that keeps its progress in this way."""
    if kept.kept == MEMORY and kept.disk_s is not None:
        return MemoryProgress(spec, speeds, now_s, kept.disk_s)
    if kept.kept == DISK and kept.disk_s is not None:
        return DiskProgress(spec, speeds, now_s, kept.disk_s)
    return TaskProgress(spec, speeds, now_s)


class DiskProgress(TaskProgress):
    """A task that commits whenever its size changes, and every ``interval_s`` from then on.

    A preemption undoes the work since then, whether some of its nodes remain or none.
    """

    __slots__ = ("_interval_s", "_waits_at_change")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, interval_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._interval_s = interval_s
        self._waits_at_change = 0.0  # samples that rescaling and start-up will take

    def _undone(self, *, some_remain: bool) -> float | None:  # noqa: ARG002 - all the same
        """Return the samples done since the last commit."""
        seconds = self._settled_s - self._changed_s
        commits_s = seconds // self._interval_s * self._interval_s
        return self._advance(seconds) - self._advance(commits_s)

    def _advance(self, seconds: float) -> float:
        """Return the progress in samples at a time after its last change: waiting comes first."""
        return max(self.speed * seconds - self._waits_at_change, 0.0)

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:
        super()._owe(loss, samples, lapses=lapses, first=first)
        self._waits_at_change = math.fsum(debt.samples for debt in self._debts if debt.lapses)


class MemoryProgress(TaskProgress):
    """A task whose nodes all hold its state in memory, and that saves it to disk every ``period_s`` since its start.

    While a node remains no work is repeated. When all are taken at once it returns to its last save. It also saves when
    it stops in any other way, and when one node remains: from then on there is no second copy in memory.
    """

    __slots__ = ("_period_s", "_saved", "_saved_s")

    _redoes_when_some_remain = False

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, period_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._period_s = period_s
        self._saved = 0.0  # how far its last save on disk is, samples
        self._saved_s = now_s  # since when the periods between saves count

    def advance_to(self, now_s: float) -> None:
        """Add the time since the last call, and record the progress at the last save."""
        if now_s == self._settled_s:
            return
        if self.size:
            since_s = self._saved_s
            last_s = since_s + (now_s - since_s) // self._period_s * self._period_s
            if last_s > self._settled_s:
                self._saved = self._position + self._advance(self.speed * (last_s - self._settled_s))
        else:  # its state is on disk
            self._saved_s = now_s
        super().advance_to(now_s)

    def shrink(self, now_s: float, nodes: int, *, preempted: bool) -> None:
        """Run on ``nodes`` fewer; on one node it saves at once."""
        super().shrink(now_s, nodes, preempted=preempted)
        if self.size == 1:
            self._save(now_s)

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:
        """Release all nodes and wait; if nodes remain they save first."""
        super().stop(now_s, preempted=preempted, some_remain=some_remain)
        self._save(now_s)

    def _undone(self, *, some_remain: bool) -> float | None:
        """Return the samples done since the last save, if no node holds them in memory."""
        if some_remain:
            return None
        return max(self._position - self._saved, 0.0)

    @property
    def _position(self) -> float:
        """The position of the training itself: work done, without work to be repeated."""
        return self.done_samples - self._lost_work

    def _save(self, now_s: float) -> None:
        self._saved, self._saved_s = self._position, now_s

    def _advance(self, samples: float) -> float:
        """Return by how much its position rises while it produces this many samples; waits take some of them."""
        left, waits = samples, 0.0
        for debt in self._debts:
            paid = min(debt.samples, left)
            waits += paid if debt.lapses else 0.0
            left -= paid
        return samples - waits
