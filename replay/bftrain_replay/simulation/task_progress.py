"""Progress of a task between decisions, and the costs of rescaling and preemption.

docs/explanation/semantics.md has the rules with their formulas. A task is updated only when its size changes, when it
finishes and when the run stops, so its cost is independent of the number of other events.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import Fault
from bftrain.values.actions import Cause, Grow, Shrink, Start, Stop
from bftrain.values.curve import ANY_KIND
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec
from bftrain_replay.simulation.run_records import RowFile


class SampleLoss(StrEnum):
    """Causes of lost samples."""

    PREEMPTION = "preemption"
    RESCALING = "rescaling"
    START_UP = "start_up"
    UNNOTICED = "unnoticed"  # done beyond a task's work before its end was noticed: published rules only
    SPREAD = "spread"  # samples missed because the nodes were on more hosts or racks than necessary


class RescaleDebt(msgspec.Struct):
    """Samples that later progress pays before it counts.

    Time of a change that a stop interrupts is never spent, so such a debt ``lapses``; lost work stays lost.
    """

    loss: SampleLoss
    samples: float
    lapses: bool


class LossTimes:
    """When node-time was lost, by cause: seconds since the log's start, and node-seconds."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = {loss: RowFile({"time_s": "d", "node_s": "d"}) for loss in SampleLoss}

    def add(self, loss: SampleLoss, now_s: float, node_s: float) -> None:
        """Record that this many node-seconds were lost by ``now_s``."""
        self._rows[loss].add((now_s, node_s))

    def between(self, loss: SampleLoss, edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the node-seconds lost to a cause between consecutive edges."""
        # Few arrays in memory: a year of a large machine has millions of losses
        times = self._rows[loss].column("time_s")
        order = np.argsort(times, kind="stable")  # tasks are settled late and out of time order
        ended = np.searchsorted(times[order], edges_s, side="right")
        del times
        lost = self._rows[loss].column("node_s")[order]
        del order
        np.cumsum(lost, out=lost)
        return np.diff(np.where(ended > 0, lost[ended - 1], 0.0)) if lost.size else np.zeros(len(edges_s) - 1)


# Losses that every task reports; SPREAD is added only for spread tasks
USUAL_LOSSES: Final = tuple(loss for loss in SampleLoss if loss is not SampleLoss.SPREAD)
_PIECE_S: Final = 3600.0  # losses by spread nodes are recorded over time in pieces of at most so many seconds


def _no_loss() -> dict[SampleLoss, float]:
    return dict.fromkeys(USUAL_LOSSES, 0.0)


class SpreadNodes:
    """Host or rack of a task's nodes, and its speed there."""

    __slots__ = ("_place_of", "_places", "_speeds")

    def __init__(self, speeds: SpreadSpeeds, place_of: Callable[[str], str]) -> None:
        self._speeds, self._place_of = speeds, place_of
        self._places: Counter[str] = Counter()

    def add(self, nodes: Iterable[str]) -> None:
        """Add nodes."""
        self._places.update(map(self._place_of, nodes))

    def remove(self, nodes: Iterable[str]) -> None:
        """Remove nodes."""
        self._places.subtract(Counter(map(self._place_of, nodes)))
        self._places = +self._places

    def speed(self, size: int, together: float, kind: str) -> float:
        """Return the task's speed, which would be ``together`` on the fewest places."""
        return self._speeds.speed(size, len(self._places), together, kind)


@dataclass(slots=True, eq=False, repr=False)
class TaskProgress:
    """One task from its submission on. Times are seconds since the log's start.

    A preemption undoes up to ``shrink_cost_s`` of work; subclasses keep progress in other ways.
    """

    spec: TaskSpec
    _speeds: Sequence[float]
    now_s: InitVar[float]
    number: int = field(init=False, default=0)  # place by arrival, from 0
    work_samples: float = field(init=False)
    size: int = field(init=False, default=0)
    speed: float = field(init=False, default=0.0)
    spread: SpreadNodes | None = field(init=False, default=None)  # the places of its nodes, if they affect its speed
    done_samples: float = field(init=False, default=0.0)
    node_s: float = field(init=False, default=0.0)
    lost_samples: dict[SampleLoss, float] = field(init=False, default_factory=_no_loss)
    lost_node_s: dict[SampleLoss, float] = field(init=False, default_factory=_no_loss)
    first_start_s: float | None = field(init=False, default=None)
    finish_s: float | None = field(init=False, default=None)
    losses: LossTimes | None = field(init=False, default=None)  # the optional record of its losses over time
    dropped: bool = field(init=False, default=False)  # cancelled or failed before its end; only in replays of journals
    starts: int = field(init=False, default=0)
    wasted_starts: int = field(init=False, default=0)  # starts whose start-up a stop interrupted
    rescales: int = field(init=False, default=0)
    preemptions: int = field(init=False, default=0)
    waits: int = field(init=False, default=0)  # intervals without nodes
    waited_s: float = field(init=False, default=0.0)
    batch: int | None = field(init=False, default=None)  # samples per step now; ``None`` if the task sets no batches
    version: int = field(init=False, default=0)  # increases with every change of the finish time
    _batch_s: float = field(init=False, default=0.0)  # integral of the batch size over the time with a batch
    _trained_s: float = field(init=False, default=0.0)  # the time with a batch
    _settled_s: float = field(init=False)
    _changed_s: float = field(init=False)
    _waiting: bool = field(init=False, default=False)  # whether the current wait is already counted
    _size_before: int = field(init=False, default=0)  # size before the last change
    _speed_before: float = field(init=False, default=0.0)
    _together: float = field(init=False, default=0.0)  # speed on the minimum number of hosts or racks
    _committed: float = field(init=False, default=0.0)  # samples done, and so committed, when the size last changed
    _debts: list[RescaleDebt] = field(init=False, default_factory=list)
    _kind: str = field(init=False, default=ANY_KIND)  # kind of the current or latest nodes
    # Node-seconds by kind up to the last change of kind, and in total
    _held_before: dict[str, float] = field(init=False, default_factory=dict)
    _node_s_before: float = field(init=False, default=0.0)

    # Whether a preemption that leaves some nodes costs work, which is owed even after a stop, or only time
    _redoes_when_some_remain: ClassVar = True

    def __post_init__(self, now_s: float) -> None:
        """Start at ``now_s``."""
        self.work_samples = math.inf if self.spec.work_samples is None else self.spec.work_samples
        self._settled_s = self._changed_s = now_s

    @property
    def owed_samples(self) -> float:
        """Unpaid debts in samples."""
        return math.fsum([debt.samples for debt in self._debts]) if self._debts else 0.0

    @property
    def work_left_samples(self) -> float:
        """Samples left, including lost work; infinite for an endless task."""
        return max(self.work_samples - self.done_samples, 0.0) + self._lost_work

    @property
    def _lost_work(self) -> float:
        """Samples to be done again."""
        return math.fsum([debt.samples for debt in self._debts if not debt.lapses]) if self._debts else 0.0

    @property
    def expected_finish_s(self) -> float:
        """Finish time of the work if no change happens."""
        if self.speed <= 0.0:
            return math.inf
        return self._settled_s + (self.owed_samples + self.work_samples - self.done_samples) / self.speed

    @property
    def mean_batch(self) -> float | None:
        """The mean samples per step over the time with nodes; ``None`` if the task sets no batches."""
        return self._batch_s / self._trained_s if self._trained_s > 0.0 else None

    @property
    def mean_goodput(self) -> float | None:
        """Progress per second over the time with nodes; ``None`` if the task sets no batches."""
        return self.done_samples / self._trained_s if self._trained_s > 0.0 else None

    def done_by(self, now_s: float) -> float:
        """Return the samples done at ``now_s`` if no change happens before; unnoticed work does not count."""
        seconds = max(now_s - self._settled_s, 0.0)
        return min(self.done_samples + max(self.speed * seconds - self.owed_samples, 0.0), self.work_samples)

    def advance_to(self, now_s: float) -> None:
        """Add the time since the last call: debts are paid first, the rest is progress."""
        if now_s == self._settled_s:
            return
        seconds = self._pass(now_s)
        if seconds > 0.0:
            left = self.speed * seconds
            if self._debts:
                left = self._pay(left, now_s - seconds)
            if self.spread is not None:
                self._slowed(left, seconds, now_s)
            self.done_samples = min(self.done_samples + left, self.work_samples)

    def set_speeds(self, speeds: Sequence[float], kind: str) -> None:
        """Use ``speeds`` (by size, for nodes of ``kind``) from the next start."""
        if self.size:
            raise Fault(f"task '{self.spec.name}' has {self.size} nodes, and cannot change to another kind")
        self._speeds = speeds
        self._held_before = self.node_s_by_kind
        self._node_s_before, self._kind = self.node_s, kind

    @property
    def node_s_by_kind(self) -> dict[str, float]:
        """Allocated node-seconds by kind; a cluster without kinds uses the empty name."""
        held = dict(self._held_before)
        now = self.node_s - self._node_s_before
        if now > 0.0:
            held[self._kind] = held.get(self._kind, 0.0) + now
        return held

    def start(self, now_s: float, nodes: int) -> None:
        """Start on ``nodes`` nodes."""
        self.advance_to(now_s)
        self._change(now_s, nodes)
        self.starts += 1
        if self.first_start_s is None:
            self.first_start_s = now_s
        # Other debts can be paid only after the processes have started
        self._owe(SampleLoss.START_UP, self.spec.start_cost_s * self.speed, lapses=True, first=True)

    def grow(self, now_s: float, nodes: int) -> None:
        """Grow by ``nodes``."""
        self.advance_to(now_s)
        before = self._change(now_s, self.size + nodes)
        self.rescales += 1
        self._owe(SampleLoss.RESCALING, self.spec.grow_cost_s * before, lapses=True)

    def shrink(self, now_s: float, nodes: int, *, preempted: bool) -> None:
        """Shrink by ``nodes``."""
        self.advance_to(now_s)
        undone = self._undone(some_remain=True) if preempted else None
        before = self._change(now_s, self.size - nodes)
        loss = self._count(preempted=preempted)
        lapses = not (preempted and self._redoes_when_some_remain)
        self._owe(loss, self.spec.shrink_cost_s * before if undone is None else undone, lapses=lapses)

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:
        """Release all nodes and wait; set ``some_remain`` if too few nodes are left rather than zero.

        Work since the last commit must be repeated, up to ``shrink_cost_s`` seconds. A rescale or start-up in progress
        lapses, because the next start pays its full cost.
        """
        self.advance_to(now_s)
        undone = self._undone(some_remain=some_remain) if preempted else None
        uncommitted = self.done_samples - self._committed
        before = self._change(now_s, 0)
        if self._debts:
            self.wasted_starts += any(debt.loss is SampleLoss.START_UP for debt in self._debts)
            self._debts = [debt for debt in self._debts if not debt.lapses]
        loss = self._count(preempted=preempted)
        cost = min(self.spec.shrink_cost_s * before, uncommitted) if undone is None else undone
        self._owe(loss, cost, lapses=False)

    def finish(self, now_s: float) -> None:
        """Finish: rounding errors are neither owed nor repeated."""
        self.advance_to(now_s)
        self._pay(math.inf, now_s)
        self._change(now_s, 0)
        self.done_samples = self.work_samples
        self.finish_s = now_s

    def drop(self, now_s: float) -> None:
        """Drop the task for good, though its work is not done."""
        self.advance_to(now_s)
        self._change(now_s, 0)
        self._debts = [debt for debt in self._debts if not debt.lapses]
        self.dropped = True

    def _pass(self, now_s: float) -> float:
        """Advance to ``now_s``; return the seconds with nodes."""
        seconds = now_s - self._settled_s
        self._settled_s = now_s
        if seconds <= 0.0 or self.dropped:
            return 0.0
        if self.size == 0:
            self.waits += not self._waiting
            self._waiting = True
            self.waited_s += seconds
            return 0.0
        self.node_s += self.size * seconds
        if self.batch is not None:
            self._batch_s += self.batch * seconds
            self._trained_s += seconds
        return seconds

    def _undone(self, *, some_remain: bool) -> float | None:  # noqa: ARG002 - for subclasses
        """Return the samples that a preemption undoes now; ``None`` selects the loss from ``shrink_cost_s``."""
        return None

    def _change(self, now_s: float, size: int) -> float:
        """Commit and change the size of a task that was advanced to ``now_s``; return the speed before."""
        self._waiting = False
        self._size_before, self._speed_before = self.size, self.speed
        self.size = size
        self.speed = self._together = self._speeds[size]
        if self.spread is not None:
            self.speed = self.spread.speed(size, self._together, self._kind)
        self._changed_s = now_s
        self._committed = self.done_samples
        self.version += 1
        return self._speed_before

    def _count(self, *, preempted: bool) -> SampleLoss:
        """Count a loss of nodes; return the cause of the samples that it costs."""
        if preempted:
            self.preemptions += 1
            return SampleLoss.PREEMPTION
        self.rescales += 1
        return SampleLoss.RESCALING

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:
        if samples > 0.0:
            self._debts.insert(0 if first else len(self._debts), RescaleDebt(loss, samples, lapses))

    def _slowed(self, samples: float, seconds: float, now_s: float) -> None:
        """Count the samples missed while doing ``samples``, because the nodes were spread."""
        if self.spread is None or self.speed >= self._together:
            return
        took_s = samples / self.speed if self.speed > 0.0 else seconds
        share = 1.0 - self.speed / self._together
        loss = SampleLoss.SPREAD
        self.lost_samples[loss] = self.lost_samples.get(loss, 0.0) + took_s * (self._together - self.speed)
        self.lost_node_s[loss] = self.lost_node_s.get(loss, 0.0) + self.size * took_s * share
        if self.losses is not None:
            pieces = math.ceil(took_s / _PIECE_S)
            for piece in range(pieces):
                self.losses.add(loss, now_s - took_s * piece / pieces, self.size * took_s * share / pieces)

    def _lose(self, loss: SampleLoss, samples: float, size: int, speed: float, now_s: float) -> None:
        """Count wasted samples that ``size`` nodes did at this speed up to ``now_s``."""
        self.lost_samples[loss] += samples
        if speed > 0.0:
            node_s = size * samples / speed
            self.lost_node_s[loss] += node_s
            if self.losses is not None:
                self.losses.add(loss, now_s, node_s)

    def _pay(self, samples: float, since_s: float) -> float:
        """Pay debts with the ``samples`` produced since a time; return the remaining samples."""
        while self._debts and samples > 0.0:
            debt = self._debts[0]
            paid = min(debt.samples, samples)
            since_s += paid / self.speed if self.speed > 0.0 else 0.0
            self._lose(debt.loss, paid, self.size, self.speed, since_s)
            samples -= paid
            debt.samples -= paid
            if debt.samples > 0.0:
                break
            del self._debts[0]
        return samples


def carry_out(task: TaskProgress, action: Start | Grow | Shrink | Stop, now_s: float) -> None:
    """Apply an action to a task."""
    count = len(action.nodes)
    if task.spread is not None:
        (task.spread.add if isinstance(action, Start | Grow) else task.spread.remove)(action.nodes)
    if type(action) is Start:
        task.start(now_s, count)
    elif type(action) is Grow:
        task.grow(now_s, count)
    elif type(action) is Shrink:
        task.shrink(now_s, count, preempted=action.cause is Cause.PREEMPTED)
    else:
        if count != task.size:
            raise Fault(f"task '{task.spec.name}' has {task.size} nodes, but a stop names {count}")
        below_minimum = action.cause is Cause.BELOW_MINIMUM
        preempted = below_minimum or action.cause is Cause.PREEMPTED
        task.stop(now_s, preempted=preempted, some_remain=below_minimum)


class DiskProgress(TaskProgress):
    """A task that commits at each size change and every ``interval_s`` after it.

    A preemption undoes the work since then, whether some of its nodes remain or none.
    """

    __slots__ = ("_interval_s", "_waits_at_change")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, interval_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._interval_s = interval_s
        self._waits_at_change = 0.0  # samples that rescaling and start-up will take

    def _undone(self, *, some_remain: bool) -> float | None:  # noqa: ARG002 - no difference
        """Return the samples done since the last commit."""
        seconds = self._settled_s - self._changed_s
        commits_s = seconds // self._interval_s * self._interval_s
        return self._advance(seconds) - self._advance(commits_s)

    def _advance(self, seconds: float) -> float:
        """Return the progress in samples some seconds after the last change; waits count first."""
        return max(self.speed * seconds - self._waits_at_change, 0.0)

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:
        super()._owe(loss, samples, lapses=lapses, first=first)
        self._waits_at_change = math.fsum(debt.samples for debt in self._debts if debt.lapses)


class MemoryProgress(TaskProgress):
    """A task with in-memory copies on all nodes, saved to disk every ``period_s`` after its start.

    While one node remains, no work is repeated. Losing all nodes at the same time returns the task to its last save.
    The task also saves at any other stop, and when it shrinks to one node: a single node has no second in-memory copy.
    """

    __slots__ = ("_period_s", "_saved", "_saved_s")

    _redoes_when_some_remain = False

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, period_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._period_s = period_s
        self._saved = 0.0  # position of the last save on disk, samples
        self._saved_s = now_s  # the periods between saves count from here

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
        """Run on ``nodes`` fewer; save immediately when one node remains."""
        super().shrink(now_s, nodes, preempted=preempted)
        if self.size == 1:
            self._save(now_s)

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:
        """Release all nodes and wait; if nodes remain they save first."""
        super().stop(now_s, preempted=preempted, some_remain=some_remain)
        self._save(now_s)

    def _undone(self, *, some_remain: bool) -> float | None:
        """Return the samples since the last save, unless a node keeps them in memory."""
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
        """Return the progress made by this many produced samples; waits consume some."""
        left, waits = samples, 0.0
        for debt in self._debts:
            paid = min(debt.samples, left)
            waits += paid if debt.lapses else 0.0
            left -= paid
        return samples - waits


COPY_COST_S: Final = 0.0043  # training time that each copy costs: docs/explanation/semantics.md
COPY_LOST_SHARE: Final = 0.12  # share of the losses of all nodes in which the node with the copy leaves, too


class CopiesProgress(MemoryProgress):
    """A task that also copies its state to a node outside the task every ``copy_s``.

    Each copy takes ``COPY_COST_S`` of the training, and half of ``copy_s`` to arrive. After the loss of all nodes the
    expected repeated work is charged, as the node with the copy may leave at the same time.
    """

    __slots__ = ("_copied", "_copy_s", "_net")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float, period_s: float, copy_s: float) -> None:
        super().__init__(spec, speeds, now_s, period_s)
        self._copy_s = copy_s
        self._net = max(1.0 - COPY_COST_S / copy_s, 0.0)  # share of the time left for training
        self._copied = 0.0  # position of the last complete copy, samples

    def advance_to(self, now_s: float) -> None:
        """Add the time since the last call, record the last complete copy, and charge the copies."""
        before = self.done_samples
        if self.size and now_s > self._settled_s:
            copies = (now_s - self._changed_s - self._copy_s / 2.0) // self._copy_s
            taken_s = self._changed_s + copies * self._copy_s
            if copies >= 0.0 and taken_s >= self._settled_s:
                self._copied = self._position + self._advance(self.speed * (taken_s - self._settled_s))
        super().advance_to(now_s)
        if self.size and self.done_samples > before:
            cost = (self.done_samples - before) * (1.0 / self._net - 1.0)
            self._lose(SampleLoss.PREEMPTION, cost, self.size, self.speed / self._net, now_s)

    def _change(self, now_s: float, size: int) -> float:
        before = super()._change(now_s, size)
        self.speed *= self._net
        self._together *= self._net
        return before

    def _undone(self, *, some_remain: bool) -> float | None:
        """Return the samples since the last copy, or with its node lost, since the last save."""
        since_save = super()._undone(some_remain=some_remain)
        if since_save is None:
            return None
        since_copy = min(max(self._position - self._copied, 0.0), since_save)
        return since_copy + COPY_LOST_SHARE * (since_save - since_copy)

    def _save(self, now_s: float) -> None:
        super()._save(now_s)
        self._copied = self._position
