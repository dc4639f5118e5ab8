"""The end of a training: whether it is done or has failed, and how long its workers may go on then."""

from __future__ import annotations

from typing import Final

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskContext, WorkerExit
from bftrain_elastic.manager.task_lifecycles.members import GroupMember, GroupMembers, MemberPhase
from bftrain_elastic.manager.task_lifecycles.supervision import TaskSupervision
from bftrain_elastic.manager.task_lifecycles.worker_orders import WorkerOrders

FAREWELL_S: Final = 5.0  # how long others may take to end their training after the first worker has ended


class TrainingEnd:
    """Knows whether the training of one task is over, lets its workers go, and tells the manager when all have left."""

    def __init__(
        self,
        job: LauncherJob,
        floor: TaskContext,
        members: GroupMembers,
        orders: WorkerOrders,
        supervision: TaskSupervision,
    ) -> None:
        self._job = job
        self._floor = floor
        self._members = members
        self._orders = orders
        self._supervision = supervision
        self.done = False
        self.failure = ""  # why it failed
        self.finished = False  # the program said itself that its work is done
        self._left_at = 0.0  # since when workers are to follow the first one that has ended; 0: none has
        self._reported = True  # the manager knows how it ended, or that it is paused

    @property
    def over(self) -> bool:
        """Whether no worker is started any more."""
        return self.done or bool(self.failure)

    def begin_again(self) -> None:
        """Go on: the task has nodes again, or its first worker did not get through the end."""
        self.done, self.failure, self._reported = False, "", False

    def finish(self, step: int) -> None:
        """Know that the training is done; the script may go on for as long as it likes, to evaluate what it has."""
        if not self.done:
            self.done, self.failure, self._left_at = True, "", 0.0
            self._supervision.further(step)
            for member in self._members:
                if member.phase in {MemberPhase.COMING, MemberPhase.READY}:
                    self._orders.dismiss(member, grace_s=0.0)

    def take_finished(self) -> None:
        """Know that the program said that its work is done: so it is, even if its processes fail after that."""
        if not self.over:
            self.finished = True
            self.finish(self._supervision.step)

    def fail(self, reason: str) -> None:
        """Give the task up, and end its workers."""
        self.failure, self._left_at = reason.strip(), self._floor.now()
        for member in self._members:
            self._orders.dismiss(member, grace_s=0.0)

    def first_left(self, *, again: bool = False) -> None:
        """Know that the first worker has ended, and that the others are to follow; ``again`` counts from now."""
        if again or not self._left_at:
            self._left_at = self._floor.now()

    def exited(self, member: GroupMember, end: WorkerExit, *, leads: bool) -> None:
        """Know how a worker ended: after the first one the others follow, or the end is tried again."""
        if self.done and (leads or member.finished):
            if end.code == 0 or self.finished:
                self.first_left()
            else:
                self.begin_again()

    def tick(self, now: float) -> None:
        """End workers that do not follow the first one. Those whose training is over may take their time."""
        if not (self.over and self._left_at and self._members) or now - self._left_at <= FAREWELL_S:
            return
        if self.failure:
            self._left_at = now
            for member in self._members:
                self._floor.stop(member.name, grace_s=0.0)
            return
        limit_s, waited_s = self._job.stall_limit_s, now - self._left_at
        for member in self._members:
            too_late = bool(limit_s) and waited_s > limit_s
            if member.stays and (too_late or not (member.done or member.finished)):
                text = f"{member.name} did not end within {waited_s:.0f} s after the first worker had"
                self._supervision.note(f"{text}; it is stopped")
                self._orders.dismiss(member, grace_s=self._job.stop_grace_s)

    def leave_unwanted(self, wanted: tuple[str, ...]) -> None:
        """Stop workers that evaluate on nodes which the task is to leave."""
        for member in self._members:
            if member.node not in wanted and member.stays:
                self._floor.stop(member.name, grace_s=self._job.stop_grace_s)
                member.phase = MemberPhase.GOING

    def tell(self) -> bool:
        """Tell how it ended once no worker is left; return whether that was just now."""
        if not self.over:
            for member in self._members.of(MemberPhase.COMING):
                self._orders.dismiss(member, grace_s=0.0)
        if self._members or self._reported:
            return False
        self._reported = True
        if self.done:
            self._floor.tell({"type": "done", "step": self._supervision.step, "finished": True})
        elif self.failure:
            self._floor.tell({"type": "failed", "reason": self.failure})
        else:
            self._floor.tell({"type": "paused", "step": self._supervision.step})
        return True
