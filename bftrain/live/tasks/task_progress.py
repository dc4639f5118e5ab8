"""Tracking: how far tasks come and how fast, by what launchers tell; and what the decisions should learn of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.live.model.task_record import LiveTaskRecord, Progress
from bftrain.live.tasks.sample_count import counted
from bftrain.values.curve import SpeedCurve
from bftrain.values.events import TaskMeasured
from bftrain.values.task import TaskSpec
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement

_LEARN_EVERY_S: Final = 5.0  # between two measurements of one task that the decisions hear of
_FRESH_S: Final = 60.0  # for which the last measured speed is shown
_COST_NEWS: Final = 0.2  # relative: a smaller change of a cost is not worth a decision
_COST_NEWS_S: Final = 0.1


@dataclass(eq=False)
class TaskProgressTrack:
    """One unfinished task. ``progress`` is brought up to date by ``settle``."""

    kept: LiveTaskRecord
    progress: Progress
    measuring: SpeedMeasurement = field(default_factory=SpeedMeasurement)
    held: tuple[str, ...] = ()
    held_since_s: float = 0.0
    running: int = 0  # on how many nodes it is confirmed to run
    narrowed: int | None = None
    reported_s: float = 0.0  # when it last did
    rate: float = 0.0  # samples/s over the last reports
    learned_s: float = 0.0
    news: bool = False  # a speed or a cost is known better than the decisions know
    skip_start: bool = False  # the next "starting" is none: it runs since before us
    _line: tuple[float, int] | None = None
    _began_at_step: int | None = None  # where it went on when it ran for the first time

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in a message of the task."""
        match message["type"]:
            case "starting" if self.skip_start:
                self.skip_start = False
                return
            case "confirmed":
                self._confirmed(int(message["size"]), int(message.get("step", 0)))
            case "paused":
                self.running, self.rate = 0, 0.0
                self._in_memory(0)  # no process of it is left
            case "in_memory":
                self._in_memory(int(message["step"]))
            case "on_disk":
                committed = max(self.progress.committed_step, int(message["step"]))
                self.progress = replace(self.progress, committed_step=committed)
            case "report":
                self._report(message)
            case "done" if message.get("total") is not None:
                self._done(int(message["step"]), float(message["total"]))
        self.news |= self.measuring.hear(dict(message))

    def _report(self, message: Mapping[str, Any]) -> None:
        step, samples, t = int(message["step"]), int(message["samples"]), float(message["t"])
        if self._line is not None and step == self._line[1] + 1 and t > self._line[0]:
            rate = samples / (t - self._line[0])
            rate = rate if isfinite(rate) else self.rate
            self.rate = rate if not self.rate else 0.8 * self.rate + 0.2 * rate
        self._line, self.reported_s = (t, step), float(message.get("heard", t))
        self.progress = counted(self.progress, message, began_at_step=self._began_at_step)

    def _confirmed(self, size: int, step: int) -> None:
        """Know on how many nodes it runs, and what is left in the memory of several of them."""
        self.running, self._line = size, None
        if self._began_at_step is None and not self.progress.step:
            self._began_at_step = step
        self._in_memory(min(self.progress.in_memory_step, step) if size > 1 else 0)

    def _done(self, step: int, total: float) -> None:
        """Count what was done since the last report that arrived."""
        samples = max(self.progress.samples, total)
        self.progress = replace(self.progress, samples=samples, step=max(self.progress.step, step))

    def _in_memory(self, step: int) -> None:
        if step != self.progress.in_memory_step:
            self.progress = replace(self.progress, in_memory_step=step)

    def hold(self, nodes: tuple[str, ...], time_s: float, *, decided: bool = False, gone: Collection[str] = ()) -> None:
        """Know which nodes it holds now: by a decision, because nodes are ``gone``, or because it is over or waits."""
        if nodes == self.held:
            return
        self.settle(time_s)
        changes: dict[str, Any] = {}
        if self.progress.started_s is None:
            changes["started_s"] = time_s
        if self.held and decided:
            changes["rescales"] = self.progress.rescales + 1
        elif any(node in gone for node in self.held):
            changes["preemptions"] = self.progress.preemptions + 1
        self.progress = replace(self.progress, **changes)
        self.held = nodes

    def settle(self, time_s: float) -> Progress:
        """Bring the progress up to date."""
        if self.held and time_s > self.held_since_s:
            used = self.progress.node_s + len(self.held) * (time_s - self.held_since_s)
            self.progress = replace(self.progress, node_s=used)
        self.held_since_s = time_s
        return self.progress

    def speed(self, time_s: float) -> float:
        """Samples/s now, as far as it is known."""
        return self.rate if self.held and time_s - self.reported_s < _FRESH_S else 0.0

    # -- learning

    @property
    def speeds(self) -> dict[int, float]:
        """All that was measured: before a restart and since."""
        return {**self.progress.speeds, **self.measuring.speeds()}

    @property
    def settled(self) -> frozenset[int]:
        """The sizes whose speed needs no more looking at."""
        return self.measuring.settled().union(self.progress.settled)

    def learn(self, spec: TaskSpec, time_s: float) -> TaskMeasured | None:
        """Give what the decisions should know; nothing if it would change none of them."""
        if not self.news or time_s - self.learned_s < _LEARN_EVERY_S:
            return None
        self.news, self.learned_s = False, time_s
        costs: dict[str, float] = dict(self.progress.costs)
        costs.update({str(change): cost for change, cost in self.measuring.costs().items()})
        self.progress = replace(self.progress, speeds=self.speeds, settled=tuple(sorted(self.settled)), costs=costs)
        stated = None if self.kept.guessed else self.kept.spec.curve
        curve = speed_estimates.curve(self.speeds, stated, spec.max_nodes)
        if curve is not None and not speed_estimates.is_news(spec.curve, curve, spec.max_nodes):
            curve = None
        changed = {
            name: cost
            for name in ("grow", "shrink", "start")
            if (cost := costs.get(name)) is not None and _is_news(getattr(spec, f"{name}_cost_s"), cost)
        }
        if curve is None and not changed:
            return None
        return TaskMeasured(
            time_s=time_s,
            task=self.kept.name,
            curve=curve,
            grow_cost_s=changed.get("grow"),
            shrink_cost_s=changed.get("shrink"),
            start_cost_s=changed.get("start"),
        )

    def size_to_run(self) -> int | None:
        """Give on how many of its nodes it should run so that all speeds become known; nothing: on all."""
        if not self.kept.guessed or not self.held:
            return None
        size = speed_estimates.size_to_measure(len(self.held), self.kept.spec.min_nodes, self.settled)
        return None if size == len(self.held) else size


def _is_news(before: float, after: float) -> bool:
    return abs(after - before) > max(_COST_NEWS_S, _COST_NEWS * max(before, after))


class TaskProgressTracks:
    """The tracks of all unfinished tasks."""

    def __init__(self) -> None:
        self._tracks: dict[str, TaskProgressTrack] = {}

    def __iter__(self) -> Iterator[TaskProgressTrack]:
        return iter(self._tracks.values())

    def get(self, task: str) -> TaskProgressTrack | None:
        """Give the track of a task."""
        return self._tracks.get(task)

    def begin(self, kept: LiveTaskRecord) -> TaskProgressTrack:
        """Follow a task from now on."""
        track = self._tracks[kept.name] = TaskProgressTrack(kept, kept.progress)
        return track

    def end(self, task: str) -> TaskProgressTrack | None:
        """Follow a task no longer."""
        return self._tracks.pop(task, None)

    def hold(
        self, holdings: Mapping[str, tuple[str, ...]], time_s: float, *, decided: bool, gone: Collection[str]
    ) -> None:
        """Know who holds what now."""
        for name, track in self._tracks.items():
            track.hold(holdings.get(name, ()), time_s, decided=decided, gone=gone)


def guess(spec_of_others: Collection[SpeedCurve], largest: int) -> SpeedCurve:
    """Give the curve of a task of which nothing is said."""
    return speed_estimates.first_curve(largest, spec_of_others)
