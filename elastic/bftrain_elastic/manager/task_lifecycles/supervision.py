"""TaskSupervision: what both kinds of lifecycle watch of a task. Its steps, losses, deaths and stalls become notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskContext
from bftrain_elastic.manager.task_lifecycles.failures import FailurePolicy, WorkerDeath
from bftrain_elastic.manager.task_lifecycles.saving import SavingWatch
from bftrain_elastic.manager.task_lifecycles.stalls import StallAction, StallInspection, StallWatch
from bftrain_elastic.wire.messages import Message

_REPORT: Final = ("t", "step", "size", "samples", "loss", "total", "since", "nan", "restarted")
_BAD_LOSSES: Final = 3  # in a row before that is reported
_STARTS: Final = 10.0  # times its usual start-up that a program may take to start,
_LEAST_START_S: Final = 120.0  # and at least so long, even if the limit is smaller
_DONE_SHARE: Final = 0.9  # of its work that a task must have done to be believed that it is done


@dataclass(frozen=True, slots=True)
class StallVerdict:
    """What a lifecycle has to do: end its workers and start them again, or fail with a reason."""

    restart: bool = False
    failure: str = ""


class TaskSupervision:
    """Watches one task, and tells what people should know of it."""

    def __init__(self, job: LauncherJob, floor: TaskContext) -> None:
        self._job = job
        self._floor = floor
        self.failures = FailurePolicy(floor.settle_s)
        self.saving = SavingWatch()
        self.stalls = StallWatch(job.stall_limit_s)
        self.step = 0  # the furthest heard of
        self._samples: float | None = None  # done so far, if it reports
        self._counts_from_zero = False  # its steps and samples begin at 0 whenever it is started
        self._inspection: StallInspection | None = None
        self._where = ""  # where the ranks were when the task stalled
        self._lost: list[tuple[float, str]] = []  # members that lost the others: when, and what they said
        self._good_loss = False  # it had a loss that is a number
        self._bad_losses = 0
        self._bad_since: tuple[float, int] = (0.0, 0)

    # -- what happened

    def reported(self, message: Message) -> None:
        """Take in a step, and tell it."""
        now = self._floor.now()
        self.stalls.step(now, int(message["step"]))
        self._inspection, self._where = None, ""
        total, since = message.get("total"), int(message.get("since") or 0)
        # A program that counts its steps from 0 again may have gone on from a checkpoint, or not: that is unknown
        self._counts_from_zero |= since <= 0 and int(message["step"]) < self.step
        self.further(int(message["step"]))
        if total is not None:
            done = float(total) if since <= 0 else total * self.step / max(1, self.step - since)
            self._samples = max(done, self._samples or 0.0)
        self._judge_loss(message, now)
        self._floor.tell({"type": "report", **{name: message[name] for name in _REPORT if name in message}})

    def further(self, step: int) -> None:
        """Know that the task is at least so far."""
        self.step = max(self.step, step)

    def died(self, death: WorkerDeath) -> None:
        """Take in the end of a worker that was not ordered."""
        self.failures.died(death, self._floor.now(), self.step)

    def node_leaves(self, node: str) -> None:
        """Know that a node leaves, or will leave in a moment."""
        self.failures.node_leaves(node, self._floor.now())

    def lost(self, text: str) -> None:
        """Take in that a member lost the others; it is reported if no death explains it."""
        self._lost.append((self._floor.now(), text))

    def heard(self, worker: str, message: Message) -> bool:
        """Take in what any worker may say; return whether that was all there is to it."""
        if note := self.saving.said(message):
            self.note(note)
        match message.get("type"):
            case "in_memory" | "on_disk" as where:
                self.further(int(message["step"]))
                self._floor.tell({"type": where, "step": int(message["step"])})
            case "position":
                if self._inspection is not None:
                    self._inspection.position(worker, message)
            case "drift":
                share = f"{float(message['relative']):.1g}"
                self.note(f"the models of its workers differ at step {message['step']} by {share} of their size")
            case _:
                return False
        return True

    def inspected(self, worker: str, process_state: str) -> None:
        """Take in the state of a worker's process."""
        if self._inspection is not None:
            self._inspection.process_state(worker, process_state)

    def reset(self) -> None:
        """Give the task another try."""
        self.failures.reset()
        self.stalls = StallWatch(self._job.stall_limit_s)
        self._inspection, self._where, self._bad_losses = None, "", 0

    @property
    def far_from_done(self) -> bool:
        """Whether the task is known to have work left."""
        work = None if self._counts_from_zero else self._job.work_samples
        return work is not None and self._samples is not None and self._samples < _DONE_SHARE * work

    @property
    def progress(self) -> str:
        """Say how much of its work is done, if that is known."""
        if self._job.work_samples is None or self._samples is None or self._counts_from_zero:
            return f"after step {self.step}"
        return f"after {self._samples:,.0f} of {self._job.work_samples:,.0f} samples"

    # -- what follows

    def tick(self, ranks: Mapping[str, tuple[int, str]], starting_since: float | None = None) -> StallVerdict:
        """Look at the clock. ``ranks`` are the workers that train, ``starting_since`` when others were started."""
        now = self._floor.now()
        judgement = self.failures.judge(now)
        for text in judgement.notes:
            self.note(text)
        self._tell_lost(now)
        self._tell_where(now)
        failure = judgement.failure or self._never_started(now, starting_since) or self._diverged(now)
        if failure:
            return StallVerdict(failure=failure)
        match self.stalls.check(now):
            case StallAction.LOOK:
                self._inspect(ranks, now)
            case StallAction.RESTART:
                self.note(f"{self._stall(now)}; its workers are ended and started again")
                return StallVerdict(restart=True)
            case StallAction.GIVE_UP:
                return StallVerdict(failure=self._stall(now))
        return StallVerdict()

    def note(self, text: str) -> None:
        """Tell something odd."""
        self._floor.tell({"type": "note", "text": text})

    def _tell_lost(self, now: float) -> None:
        wait_s = max(self._floor.settle_s, 1.0)
        due = [(at_s, text) for at_s, text in self._lost if now - at_s > wait_s]
        self._lost = [one for one in self._lost if one not in due]
        for at_s, text in due:
            if not self.failures.lost_lately(at_s):
                self.note(text)

    def _inspect(self, ranks: Mapping[str, tuple[int, str]], now: float) -> None:
        """Ask all ranks where they are, and have their stacks written into their logs."""
        self._inspection = StallInspection(ranks, now)
        for worker in self._inspection.workers:
            self._floor.say(worker, {"type": "position"})
            self._floor.inspect(worker)

    def _tell_where(self, now: float) -> None:
        if self._inspection is None or not self._inspection.complete(now):
            return
        self._where, self._inspection = self._inspection.words(), None
        self.note(f"{self._stall(now)}; the stacks of all ranks are in its logs")

    def _stall(self, now: float) -> str:
        pace = f", and a step took {self.stalls.pace_s:.2g} s at most" if self.stalls.pace_s else ""
        where = f": {self._where}" if self._where else ""
        return f"no step for {self.stalls.without_s(now):.0f} s{pace}{where}"

    def _never_started(self, now: float, starting_since: float | None) -> str:
        limit_s = self._job.stall_limit_s
        if starting_since is None or not limit_s:
            return ""
        took_s = now - starting_since
        if took_s <= max(limit_s, _LEAST_START_S, _STARTS * self.failures.start_up_s):
            return ""
        return f"its workers were started {took_s:.0f} s ago, and none is ready"

    def _judge_loss(self, message: Message, now: float) -> None:
        if not message.get("nan"):
            self._good_loss |= message.get("loss") is not None
            self._bad_losses = 0
            return
        self._bad_losses += 1
        if self._bad_losses == 1:
            self._bad_since = (now, int(message["step"]))
        if self._bad_losses == _BAD_LOSSES:
            self.note(f"its loss is not a number (NaN or infinite) since step {self._bad_since[1]}")

    def _diverged(self, now: float) -> str:
        at_s, step = self._bad_since
        limit_s = self._job.stall_limit_s
        if self._bad_losses < _BAD_LOSSES or not self._good_loss or not limit_s or now - at_s <= limit_s:
            return ""
        return f"its loss is not a number (NaN or infinite) since step {step}, for {now - at_s:.0f} s"
