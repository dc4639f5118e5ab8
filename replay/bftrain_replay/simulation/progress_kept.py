"""How a task's progress is kept where it is not as the task says: in memory, or in checkpoints on disk.

The rules stand with their formulas in docs/semantics.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bftrain_replay.simulation.progress_assumptions import DISK, MEMORY
from bftrain_replay.simulation.task_progress import SampleLoss, TaskProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain.values.task import TaskSpec
    from bftrain_replay.simulation.progress_assumptions import ProgressKept


def progress_kept(kept: ProgressKept, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
    """Return a task that keeps its progress in this way."""
    if kept.kept == MEMORY and kept.disk_s is not None:
        return MemoryProgress(spec, speeds, now_s, kept.disk_s)
    if kept.kept == DISK and kept.disk_s is not None:
        return DiskProgress(spec, speeds, now_s, kept.disk_s)
    return TaskProgress(spec, speeds, now_s)


class DiskProgress(TaskProgress):
    """A task that commits whenever its size changes, and every ``interval_s`` from then on.

    A preemption takes back what was done since, whether some of its nodes remain or none.
    """

    __slots__ = ("_interval_s", "_waits_at_change")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, interval_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._interval_s = interval_s
        self._waits_at_change = 0.0  # samples that rescaling and start-up will take

    def _undone(self, now_s: float, *, some_remain: bool) -> float | None:  # noqa: ARG002 - all the same
        """Return the samples done since the last commit."""
        seconds = now_s - self._changed_s
        commits_s = seconds // self._interval_s * self._interval_s
        return self._advance(seconds) - self._advance(commits_s)

    def _advance(self, seconds: float) -> float:
        """Return the samples by which it advanced so long after its last change: waiting comes first."""
        return max(self.speed * seconds - self._waits_at_change, 0.0)

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:
        super()._owe(loss, samples, lapses=lapses, first=first)
        self._waits_at_change = math.fsum(debt.samples for debt in self._debts if debt.lapses)


class MemoryProgress(TaskProgress):
    """A task whose nodes all hold its state in memory, and that saves it on disk every ``period_s`` since its start.

    While a node remains nothing is done again. When all are taken at once it goes back to its last save. It also saves
    when it stops in any other way, and when one node remains: from then on there is no second copy in memory.
    """

    __slots__ = ("_period_s", "_saved", "_saved_s")

    _redoes_when_some_remain = False

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, period_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._period_s = period_s
        self._saved = 0.0  # how far its last save on disk is, samples
        self._saved_s = now_s  # since when the periods between saves count

    def settle(self, now_s: float) -> None:
        """Count the time since it was last settled, and remember how far it was at its last save."""
        if self.size:
            since_s = self._saved_s
            last_s = since_s + (now_s - since_s) // self._period_s * self._period_s
            if last_s > self._settled_s:
                self._saved = self._position + self._advance(self.speed * (last_s - self._settled_s))
        super().settle(now_s)

    def start(self, now_s: float, nodes: int) -> None:
        """Run on ``nodes`` nodes; its state is on disk."""
        super().start(now_s, nodes)
        self._save(now_s)

    def shrink(self, now_s: float, nodes: int, *, preempted: bool) -> None:
        """Go on with ``nodes`` fewer; alone, it saves at once."""
        super().shrink(now_s, nodes, preempted=preempted)
        if self.size == 1:
            self._save(now_s)

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:
        """Give up all nodes and wait; the nodes that remain save first."""
        super().stop(now_s, preempted=preempted, some_remain=some_remain)
        self._save(now_s)

    def _undone(self, now_s: float, *, some_remain: bool) -> float | None:
        """Return the samples done since the last save, if no node holds them in memory."""
        if some_remain:
            return None
        self.settle(now_s)
        return max(self._position - self._saved, 0.0)

    @property
    def _position(self) -> float:
        """How far the training itself is: what was done, without what is to be done again."""
        return self.done_samples - math.fsum(debt.samples for debt in self._debts if not debt.lapses)

    def _save(self, now_s: float) -> None:
        self._saved, self._saved_s = self._position, now_s

    def _advance(self, samples: float) -> float:
        """Return by how much its position rises while it produces so many samples; waits take some of them."""
        left, waits = samples, 0.0
        for debt in self._debts:
            paid = min(debt.samples, left)
            waits += paid if debt.lapses else 0.0
            left -= paid
        return samples - waits
