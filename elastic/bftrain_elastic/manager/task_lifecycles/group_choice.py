"""Which workers are to train together next, and whether it is time for that."""

from __future__ import annotations

from typing import Final

from bftrain_elastic.manager.task_lifecycles import TaskContext
from bftrain_elastic.manager.task_lifecycles.given_nodes import GivenNodes
from bftrain_elastic.manager.task_lifecycles.members import NOTHING, GroupMember, GroupMembers, MemberPhase

COMPANY_S: Final = 5.0  # how long those who are ready wait for others that are still coming


class GroupChoice:
    """Looks at the workers of one task and at the nodes that it was given."""

    def __init__(self, floor: TaskContext, nodes: GivenNodes, members: GroupMembers) -> None:
        self._floor = floor
        self._nodes = nodes
        self._members = members

    def change_is_due(self) -> bool:
        """Return whether the present group is not what it should be, and can become so."""
        group, wanted = self._members.group, self._nodes.wanted
        unwanted = [member for member in group if member.node not in wanted]
        ready = [one for one in self._members.of(MemberPhase.READY) if one.node in wanted]
        if unwanted and (ready or len(unwanted) < len(group)):
            return True
        if not wanted or self.are_noticed(group):
            return True
        return bool(ready) and self._is_complete(ready)

    def next_members(self) -> list[GroupMember]:
        """Return the ready workers that are to form the next group: one of them has the state, if any worker has."""
        ready = self._members.of(MemberPhase.READY)
        furthest = max((member.step for member in ready), default=NOTHING)
        stay = [member for member in ready if member.node in self._nodes.wanted]
        if stay and furthest > max(member.step for member in stay):
            # One that has the state comes along once more, and leaves in the next change
            stay.append(min((one for one in ready if one.step == furthest), key=lambda one: one.number))
        return sorted(stay, key=lambda member: (-member.step, member.number))

    def wait_for_others(self, stay: list[GroupMember], adopted_at: float) -> bool:
        """Return whether workers that are to form a group wait: others are coming, or agents that may have some."""
        if stay[0].step == NOTHING:  # workers on nodes whose agents have not come yet may have the state
            return not self._is_complete(stay) or self._nodes.waiting
        taking_over = adopted_at > 0 and self._floor.now() - adopted_at < COMPANY_S
        return taking_over and not all(map(self._floor.slots, self._nodes.wanted))

    def takeover_is_over(self, adopted_at: float) -> bool:
        """Return whether to stop waiting for the rest of a former manager's group: it dissolved, or it is time."""
        dissolved = any(member.step != NOTHING for member in self._members.of(MemberPhase.READY))
        return adopted_at > 0 and (dissolved or self._floor.now() - adopted_at > COMPANY_S)

    def are_noticed(self, members: list[GroupMember]) -> bool:
        """Return whether all of these workers are on nodes that will be taken in a moment."""
        return all(self._nodes.is_noticed(member.node) for member in members)

    def _is_complete(self, ready: list[GroupMember]) -> bool:
        """Return whether ready workers need not wait for others: none is coming, or it takes too long."""
        coming = [one for one in self._members.of(MemberPhase.COMING) if one.node in self._nodes.wanted]
        return not coming or self._floor.now() - max(one.since for one in ready) > COMPANY_S
