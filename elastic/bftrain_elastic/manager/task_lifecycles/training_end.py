"""The end of a task under the native launcher: its workers follow the first one, and it is reported when all left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskContext
from bftrain_elastic.manager.task_lifecycles.native_group import GroupMember, GroupMembers, MemberPhase
from bftrain_elastic.manager.task_lifecycles.supervision import TaskSupervision
from bftrain_elastic.wire.agent_messages import WorkerExit

FAREWELL_S: Final = 5.0  # how long others may take to end their training after the first worker has ended


@dataclass(eq=False)
class TrainingEnd:
    """Tracks the end of a task's training, stops its workers, and reports when all have left."""

    _job: LauncherJob
    _context: TaskContext
    _members: GroupMembers
    _supervision: TaskSupervision
    done: bool = False
    failure: str = ""  # why it failed
    finished: bool = False  # the program reported that its work is done
    _left_at: float = 0.0  # since when workers are to follow the first one that has ended; 0: none has
    _reported: bool = True  # the end, or the pause, was reported to the manager

    @property
    def over(self) -> bool:
        """Whether no worker is started any more."""
        return self.done or bool(self.failure)

    def begin_again(self) -> None:
        """Continue: the task has nodes again, or its first worker did not get through the end."""
        self.done, self.failure, self._reported = False, "", False

    def finish(self, step: int) -> None:
        """Record that the training is done; the script may run on, such as to evaluate the result."""
        if not self.done:
            self.done, self.failure, self._left_at = True, "", 0.0
            self._supervision.further(step)
            for member in self._members:
                if member.phase in {MemberPhase.COMING, MemberPhase.READY}:
                    self._members.dismiss(member, grace_s=0.0)

    def record_finished(self) -> None:
        """Record that the program reported its work as done, which holds even if its processes fail later."""
        if not self.over:
            self.finished = True
            self.finish(self._supervision.step)

    def fail(self, reason: str) -> None:
        """Fail the task, and end its workers."""
        self.failure, self._left_at = reason.strip(), self._context.now()
        for member in self._members:
            self._members.dismiss(member, grace_s=0.0)

    def first_worker_left(self, *, again: bool = False) -> None:
        """Record that the first worker has ended, and that the others must follow; ``again`` restarts the time."""
        if again or not self._left_at:
            self._left_at = self._context.now()

    def exited(self, member: GroupMember, end: WorkerExit, *, leads: bool) -> None:
        """Handle the end of a worker: after the first one the others follow, or the end is tried again."""
        if self.done and (leads or member.finished):
            if end.code == 0 or self.finished:
                self.first_worker_left()
            else:
                self.begin_again()

    def tick(self, now: float) -> None:
        """End workers that do not follow the first one. Those whose training is over may take their time."""
        if not (self.over and self._left_at and self._members) or now - self._left_at <= FAREWELL_S:
            return
        if self.failure:
            self._left_at = now
            for member in self._members:
                self._context.stop(member.name, grace_s=0.0)
            return
        limit_s, waited_s = self._job.stall_limit_s, now - self._left_at
        for member in self._members:
            too_late = bool(limit_s) and waited_s > limit_s
            if member.stays and (too_late or not (member.done or member.finished)):
                text = f"{member.name} did not end within {waited_s:.0f} s after the first worker had"
                self._supervision.note(f"{text}; it is stopped")
                self._members.dismiss(member, grace_s=self._job.stop_grace_s)

    def stop_unwanted(self, wanted: tuple[str, ...]) -> None:
        """Stop workers that evaluate on nodes which the task has to leave."""
        for member in self._members:
            if member.node not in wanted and member.stays:
                self._context.stop(member.name, grace_s=self._job.stop_grace_s)
                member.phase = MemberPhase.GOING

    def report_end(self) -> bool:
        """Report the end once no worker is left; return whether that was just now."""
        if not self.over:
            for member in self._members.of(MemberPhase.COMING):
                self._members.dismiss(member, grace_s=0.0)
        if self._members or self._reported:
            return False
        self._reported = True
        self._supervision.report_end(done=self.done, failure=self.failure)
        return True
