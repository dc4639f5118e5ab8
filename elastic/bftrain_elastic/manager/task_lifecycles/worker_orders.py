"""What a course orders of its workers: to start, to gather at their next commit, to leave, to cut their connections."""

from __future__ import annotations

from typing import Final

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskContext
from bftrain_elastic.manager.task_lifecycles.health import GroupHealth
from bftrain_elastic.manager.task_lifecycles.members import GroupMember, GroupMembers, MemberPhase
from bftrain_elastic.manager.task_lifecycles.present_group import PresentGroup
from bftrain_elastic.manager.task_lifecycles.saving import SavingWatch

STALLED_S: Final = 5.0  # how long members of a group without a step may take to leave it


class WorkerOrders:
    """Gives orders to the workers of one task, and notes what each was ordered."""

    def __init__(
        self,
        job: LauncherJob,
        floor: TaskContext,
        members: GroupMembers,
        group: PresentGroup,
        health: GroupHealth,
        saving: SavingWatch,
        *,
        launcher: str,
    ) -> None:
        self._job = job
        self._floor = floor
        self._members = members
        self._group = group
        self._health = health
        self._saving = saving
        self._env = {**job.env, "BFTRAIN_LAUNCHER": launcher, "BFTRAIN_FOLDER": job.folder}

    def spawn(self, node: str, slot: int) -> None:
        """Start a worker."""
        name, now = self._floor.name(node, slot), self._floor.now()
        self._members.add(GroupMember(name, node, slot, 0, now, coming_since=now))
        self._floor.spawn(
            node,
            name,
            argv=self._job.argv,
            env=self._env,
            slot=slot,
            finish_code=self._job.finish_code,
            finish_file=self._job.finish_path,
        )

    def gather(self) -> None:
        """Ask the members of the group to leave it at their next commit."""
        self._group.gather_at = self._floor.now()
        for member in self._members.group:
            self._floor.say(member.name, {"type": "gather", "generation": self._group.generation + 1})

    def dismiss(self, member: GroupMember, *, grace_s: float, save: bool = False) -> None:
        """Let a worker go: at its own pace if it is ready and there is time, or at once."""
        if member.phase is MemberPhase.READY and grace_s > 0:
            self._floor.say(member.name, {"type": "leave", "save": save, **({"grace_s": grace_s} if save else {})})
            member.saves = save
            member.leaves_by = self._floor.now() + grace_s + (self._saving.limit_s if save else 0.0)
        else:
            self._floor.stop(member.name, grace_s=grace_s)
            if member.phase is MemberPhase.IN and grace_s == 0:
                self._group.lost_member(self._floor.now())
                self._health.died()
        member.phase = MemberPhase.GOING

    def disband(self, ready: list[GroupMember]) -> None:
        """Let all these go; the one that is furthest writes the state down first."""
        for place, member in enumerate(sorted(ready, key=lambda member: (-member.step, member.number))):
            self.dismiss(member, grace_s=self._job.stop_grace_s, save=place == 0 and member.step > 0)

    def kill(self, member: GroupMember) -> None:
        """End a worker at once; its end is not one that has to be explained."""
        member.ended = True
        self._floor.stop(member.name, grace_s=0.0)

    def leave_broken_group(self, now: float) -> None:
        """Cut the connections of members that wait for a dead one; kill those that never come back."""
        ready = self._members.of(MemberPhase.READY)
        limit_s = STALLED_S if self._group.stalled else self._health.hang_s
        hangs = now - self._group.broken_at > limit_s and (ready or not self._group.confirmed or self._group.stalled)
        for member in self._members.group:
            if member.done:
                continue
            if hangs:
                self.kill(member)
            else:
                self._floor.say(member.name, {"type": "abort"})
