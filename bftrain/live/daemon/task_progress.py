"""Progress of tasks: samples and speed by launchers' reports, and new measurements for the decision core.

Sample counts are exact to the step, even if report lines are lost. With each step, a worker reports the running sum
``total`` of its samples since step ``since``. Lines are lost when a socket is full, the daemon is down, or a node
fails. For two lines with equal ``since``, the difference of their sums is the work between them, whether or not the
lines between arrived. A script with a State keeps the sum in the state: its ``since`` is 0, and the sum counts from
the start of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.live.model.task_record import LiveTaskRecord, Progress
from bftrain.values.events import TaskMeasured
from bftrain.values.task import TaskSpec
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement

_LEARN_EVERY_S: Final = 5.0  # time between measurements of a task that reach the decisions
_LONGEST_START_S: Final = 300.0  # limit of a start's protection: some programs never report a step
_FRESH_S: Final = 5.0  # seconds that the last measured speed is shown; at least ``_FRESH_STEPS`` steps
_FRESH_STEPS: Final = 3.0
_COST_NEWS: Final = 0.2  # relative: a smaller change of a cost is not worth a decision
_COST_NEWS_S: Final = 0.1
_NOISE_NEWS: Final = 0.1  # relative: a smaller change of the noise scale is not worth a decision
_NOISE_WEIGHT: Final = 0.1  # weight of the last report


@dataclass(eq=False)
class TaskProgressTrack:
    """The progress of one unfinished task. ``advance_to`` updates ``progress``."""

    record: LiveTaskRecord
    progress: Progress
    measuring: SpeedMeasurement = field(default_factory=SpeedMeasurement)
    held: tuple[str, ...] = ()
    held_since_s: float = 0.0
    running: int = 0  # number of nodes with confirmed workers
    narrowed: int | None = None
    reported_s: float = 0.0  # time of the last report
    rate: float = 0.0  # samples/s over the last reports
    learned_s: float = 0.0
    news: bool = False  # newer speeds or costs than those known to the decisions
    batch_decided: bool = False  # the curve, made for another batch size, does not apply
    starts: int = 0  # starts since its last step
    starting_since: float | None = None  # time of an allocation that has not produced a step yet
    copied_step: int = 0  # step of the in-memory copy on a node outside the task; 0: none
    skip_start: bool = False  # ignore the next "starting": the task has been running since before this daemon
    _line: tuple[float, int] | None = None
    _step_s: float = 0.0  # duration of the last step
    _began_at_step: int | None = None  # step at which its first start continued

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Apply a message of the task."""
        match message["type"]:
            case "starting" if self.skip_start:
                self.skip_start = False
                return
            case "starting":
                self.starts, self.starting_since = self.starts + 1, float(message["t"])
            case "confirmed":
                step = int(message.get("step", 0))
                self.running, self._line = int(message["size"]), None
                if self._began_at_step is None and not self.progress.step:
                    self._began_at_step = step
                left = min(self.progress.in_memory_step, step) if self.running > 1 else 0  # copies on other nodes
                self.progress = replace(self.progress, in_memory_step=left)
            case "paused":
                self.running, self.rate = 0, 0.0
                self.progress = replace(self.progress, in_memory_step=0)  # no process of the task is left
            case "in_memory" | "on_disk" | "copied" as where:
                self._keep(where, int(message["step"]))
            case "report":
                self._report(message)
            case "done" if message.get("total") is not None:  # work since the last report that arrived
                samples = max(self.progress.samples, float(message["total"]))
                step = max(self.progress.step, int(message["step"]))
                self._go_on(replace(self.progress, samples=samples, step=step))
        self.news |= self.measuring.on_message(dict(message))

    def _keep(self, where: str, step: int) -> None:
        if where == "copied":
            self.copied_step = step
        elif where == "in_memory":
            self.progress = replace(self.progress, in_memory_step=step)
        else:
            self.progress = replace(self.progress, committed_step=max(self.progress.committed_step, step))

    def _report(self, message: Mapping[str, Any]) -> None:
        step, samples, t = int(message["step"]), int(message["samples"]), float(message["t"])
        if self._line is not None and step == self._line[1] + 1 and t > self._line[0]:
            self._step_s = t - self._line[0]
            rate = samples / self._step_s
            rate = rate if isfinite(rate) else self.rate
            self.rate = rate if not self.rate else 0.8 * self.rate + 0.2 * rate
        self.starts, self.starting_since = 0, None
        self._line, self.reported_s = (t, step), float(message.get("received_at", t))
        self._go_on(counted(self.progress, message, began_at_step=self._began_at_step))
        self.news |= message.get("noise") is not None

    def _go_on(self, after: Progress) -> None:
        """Count new samples; for the work each is weighted by the statistical efficiency of its batch."""
        before, batch = self.progress, self.record.spec.batch
        if batch is not None and after.samples > before.samples:
            done = after.samples - before.samples
            counts = batch.efficiency(done / max(1, after.step - before.step), after.noise_scale)
            after = replace(after, equivalent_samples=before.done_samples + done * counts)
        self.progress = after

    def hold(
        self, nodes: tuple[str, ...], time_s: float, *, decided: bool = False, gone: AbstractSet[str] = frozenset()
    ) -> None:
        """Record the task's nodes after a decision, after ``gone`` nodes have left, or when it stops or waits."""
        if nodes == self.held:
            return
        changes: dict[str, Any] = {"node_s": self._node_s(time_s)}
        if self.progress.started_s is None:
            changes["started_s"] = time_s
        if self.held and decided:
            changes["rescales"] = self.progress.rescales + 1
        elif gone and not gone.isdisjoint(self.held):
            changes["preemptions"] = self.progress.preemptions + 1
        self.progress = replace(self.progress, **changes)
        self.held, self.held_since_s = nodes, time_s
        if not nodes:
            self.starting_since = None

    def _node_s(self, time_s: float) -> float:
        return self.progress.node_s + len(self.held) * (time_s - self.held_since_s)

    def advance_to(self, time_s: float) -> Progress:
        """Update the progress to this time, which may be earlier, as decisions hold from their request on."""
        if self.held:
            self.progress = replace(self.progress, node_s=self._node_s(time_s))
        self.held_since_s = time_s
        return self.progress

    def speed(self, time_s: float) -> float:
        """Return the present samples/s, as far as they are known."""
        if not self.rate or not self.held:
            return 0.0
        fresh_s = max(_FRESH_S, _FRESH_STEPS * self._step_s)
        return self.rate if time_s - self.reported_s < fresh_s else 0.0

    @property
    def speeds(self) -> dict[int, float]:
        """All measured speeds, from before a restart and since."""
        return {**self.progress.speeds, **self.measuring.speeds()}

    @property
    def settled(self) -> frozenset[int]:
        """The sizes with a reliable measured speed."""
        return self.measuring.settled().union(self.progress.settled)

    def learn(self, spec: TaskSpec, time_s: float, longest_start_s: float = inf) -> TaskMeasured | None:
        """Return measurements for the decision core; ``None`` if they would change no decision.

        An unfinished start costs at least its current duration, up to ``longest_start_s``.
        """
        if not (self.news or self.starting_since) or time_s - self.learned_s < _LEARN_EVERY_S:
            return None
        self.news, self.learned_s = False, time_s
        costs = {**self.progress.costs, **{str(change): cost for change, cost in self.measuring.costs().items()}}
        self.progress = replace(self.progress, speeds=self.speeds, settled=tuple(sorted(self.settled)), costs=costs)
        stated = None if self.record.guessed else self.record.spec.curve
        curve = speed_estimates.curve(self.speeds, stated, spec.max_nodes)
        if curve is not None and (
            self.batch_decided or not speed_estimates.is_significant_change(spec.curve, curve, spec.max_nodes)
        ):
            curve = None
        changed: dict[str, Any] = {}
        if self.starting_since is not None:
            so_far_s = min(time_s - self.starting_since, longest_start_s, _LONGEST_START_S)
            costs["start"] = max(spec.start_cost_s, so_far_s)
        for name in ("grow_cost_s", "shrink_cost_s", "start_cost_s"):
            before, after = getattr(spec, name), costs.get(name.removesuffix("_cost_s"))
            if after is not None and abs(after - before) > max(_COST_NEWS_S, _COST_NEWS * max(before, after)):
                changed[name] = after
        if (noise := self._changed_noise(spec)) is not None:
            changed["noise_scale"] = noise
        if curve is None and not changed:
            return None
        if curve is not None and self.record.guessed and spec.curves:  # equal speed is assumed on these kinds
            changed["curves"] = dict.fromkeys(spec.curves, curve)
        return TaskMeasured(time_s=time_s, task=self.record.name, curve=curve, **changed)

    def _changed_noise(self, spec: TaskSpec) -> float | None:
        """Return the noise scale if decisions use it, and it differs from the value they used last."""
        noise = self.progress.noise_scale
        if noise is None or spec.batch is None:
            return None
        before = spec.batch.noise_scale
        return noise if abs(noise - before) > _NOISE_NEWS * max(noise, before) else None

    def size_to_run(self) -> int | None:
        """Return the size to run at to measure all speeds; ``None``: all its nodes."""
        if not self.record.guessed or not self.held:
            return None
        size = speed_estimates.size_to_measure(len(self.held), self.record.spec.min_nodes, self.settled)
        return None if size == len(self.held) else size


def counted(progress: Progress, message: Mapping[str, Any], *, began_at_step: int | None = None) -> Progress:
    """Return the progress of a task after a report; the sum of samples never decreases.

    ``began_at_step`` is the step at which the first processes of the task started, if known.
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
    after = replace(after, noise_scale=_smoothed(progress.noise_scale, message.get("noise")))
    return replace(after, step=step, loss=progress.loss if loss is None else float(loss))


def _smoothed(before: float | None, reported: float | None) -> float | None:
    """Return the noise scale after a report: single estimates scatter widely."""
    if reported is None:
        return before
    return float(reported) if before is None else (1.0 - _NOISE_WEIGHT) * before + _NOISE_WEIGHT * float(reported)


def _with_difference(progress: Progress, step: int, since: int, total: float) -> Progress:
    """Add the work since the last line with equal ``since``, or since step ``since``.

    Steps that were already counted, for example when repeated after a restart, are not added again. Steps between the
    last known step and ``since`` belong to a process whose last lines were lost; they are assumed to have average size.
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
    """Return the samples that were done in the task's folder before this task."""
    if before.samples or before.step or step <= 1:
        return 0.0
    others = max(0.0, after.samples - samples)  # all samples except this step's
    return others if began_at_step is None else others * min(1.0, max(0, began_at_step) / (step - 1))
