"""The workers of a task under the native launcher: their phases, their orders, and the members of the next group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bftrain_elastic.manager.agent_hub import TaskContext
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.supervision import AssignedNodes, TaskSupervision
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.worker_messages import NO_STEP, AbortGroup, FormGroup, GatherMembers, LeaveTask, SendCopies

HANG_STEPS: Final = 5.0  # time limit for leaving a broken group as a multiple of the step time
UNHEEDED: Final = 20  # number of steps without a commit before a note explains why no change happens
SURVIVED: Final = 3  # steps after which a new worker's death no longer counts as a failure to join
_REMARKED: Final = 2  # consecutive failures before they are reported


class GrowthRetry:
    """Tracks workers and slots that failed to join a group, and the time until the group retries them."""

    def __init__(self) -> None:
        self._delay = RetryDelay(TIMEOUTS.growth_retry_s, TIMEOUTS.growth_longest_retry_s)
        self._aside: set[str] = set()
        self._failed = 0  # consecutive failures

    @property
    def failing(self) -> bool:
        """Whether the last growth failed."""
        return self._failed > 0

    def failed(self, workers: Iterable[str], nodes: Iterable[str], now: float, why: str) -> str:
        """Exclude new workers for a while. Simultaneous failures count once; return a note from the second one."""
        self._aside.update(workers)
        if self._delay.waits(now):
            return ""
        self._delay.failed(now)
        self._failed += 1
        if self._failed < _REMARKED:
            return ""
        which = f"the group did not grow onto {', '.join(sorted(nodes))}, {self._failed} times in a row"
        again_s = self._delay.left_s(now)
        return f"{which}: {why}; training continues without it; the next attempt is in {again_s:.0f} s"

    def confirmed(self, workers: Iterable[str]) -> None:
        """Record that these workers train. If one of them was excluded, growth works again."""
        if not self._aside.isdisjoint(workers):
            self._delay.succeeded()
            self._aside, self._failed = set(), 0

    def node_left(self, node: str) -> None:
        """Record that a node leaves: its workers did not fail, they were preempted."""
        self.confirmed({one for one in self._aside if one.rpartition(":")[0] == node})

    def waits(self, worker: str, now: float) -> bool:
        """Return whether a worker is excluded now."""
        return worker in self._aside and self._delay.waits(now)


class MemberPhase(StrEnum):
    """The phase of a worker."""

    COMING = "coming"
    READY = "ready"
    IN = "in"
    GOING = "going"


@dataclass(eq=False)
class GroupMember:
    """One worker."""

    name: str
    node: str
    slot: int
    since: float
    phase: MemberPhase = MemberPhase.COMING
    step: int = NO_STEP
    # The task's furthest step when the worker joined a running group; 0 for a first member, None before it joins.
    joined: int | None = None
    store: tuple[str, int] = ("", 0)
    astray: int = 0  # steps reported while in no group
    rank: int = 0  # rank in its group
    ended: bool = False  # killed on our order
    coming_since: float | None = None  # start time; None once the worker is ready
    leaves_by: float | None = None  # deadline after which the worker is killed
    done: bool = False  # training has finished; the rest of the script may take its time
    finished: bool = False  # the program reported that its work is done
    saves: bool = False  # the worker saves the state before it leaves

    @property
    def place(self) -> str:
        """Node and slot; a replacement worker inherits them."""
        return f"{self.node}:{self.slot}"

    def has_joined(self, step: int) -> bool:
        """Return whether the worker has trained for some steps, now that the task is at ``step``."""
        return self.joined is not None and (not self.joined or step - self.joined >= SURVIVED)

    @property
    def stays(self) -> bool:
        """Whether it has not been ordered to end."""
        return self.phase is not MemberPhase.GOING


@dataclass(eq=False)
class PresentGroup:
    """The group in which the workers of a task train, or the previous one while no group exists."""

    generation: int = 0
    leader: str = ""  # worker with rank 0
    nodes: frozenset[str] = frozenset()
    confirmed: bool = True  # the group trains
    formed_at: float = 0.0
    gather_at: float = 0.0  # time of the latest gather order; 0 without one
    broken_at: float = 0.0  # time of the first lost member; 0 without one
    stalled: bool = False  # broken up because it made no steps
    batch: int | None = 0  # samples per step of these members; 0: the script decides, None: unknown
    _lost: str = ""  # reason why a member lost the connection
    explained: bool = False  # a death or an order to leave explains the lost connections
    _unheeded: int = 0  # steps reported since the gather order

    def form(self, leader: str, nodes: Iterable[str], now: float, batch: int) -> None:
        """Start the next group."""
        self.find(self.generation + 1, now)
        self.leader, self.nodes, self.batch = leader, frozenset(nodes), batch
        self.gather_at = self.broken_at = 0.0
        self.stalled = False

    def find(self, generation: int, now: float) -> None:
        """Record a group that starts to form, or that an earlier manager has formed."""
        self.generation = max(self.generation, generation)
        self.confirmed, self.formed_at, self.batch = False, now, None

    def lost_member(self, now: float, reason: str = "") -> None:
        """Record a dead or leaving member, or the ``reason`` of a lost connection; the first one counts."""
        self.broken_at = self.broken_at or now
        self._lost, self.explained = self._lost or reason, self.explained or not reason

    def break_up(self, now: float) -> None:
        """Make all members leave immediately, without the delay that follows a death."""
        self.broken_at = now - TIMEOUTS.abort_s

    def end(self) -> None:
        """Record that all members have left."""
        self.gather_at = self.broken_at = 0.0

    def reported(self) -> str:
        """Record a step; return a note if members ignore a gather order."""
        self._unheeded += self.gather_at > 0
        if self._unheeded != UNHEEDED:
            return ""
        return f"{UNHEEDED} steps were done since a change was asked for, and no state.commit() where it could happen"

    def left(self) -> str:
        """Reset the break-up after all have left; return the reason for a lost connection if no death explains it."""
        unexplained = "" if self.explained else self._lost
        self._lost, self.explained, self._unheeded = "", False, 0
        return unexplained


class GroupMembers:
    """The workers of a task: sends their orders, and selects the group members."""

    def __init__(
        self, job: LauncherJob, context: TaskContext, nodes: AssignedNodes, supervision: TaskSupervision, launcher: str
    ) -> None:
        self._job = job
        self._context = context
        self._nodes = nodes
        self._supervision = supervision
        self._env = {"BFTRAIN_LAUNCHER": launcher}
        self.by_name: dict[str, GroupMember] = {}  # the oldest first
        self.present = PresentGroup()
        self.growth = GrowthRetry()
        self._copies = ("", SendCopies())  # latest order to the first worker
        self.adopted_at = 0.0  # time when the takeover of a previous manager's workers started; 0 outside a takeover

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(list(self.by_name.values()))

    def __len__(self) -> int:
        return len(self.by_name)

    def of(self, phase: MemberPhase) -> list[GroupMember]:
        """Return the workers in one phase."""
        return [member for member in self if member.phase is phase]

    @property
    def group(self) -> list[GroupMember]:
        """The workers in the current group."""
        return self.of(MemberPhase.IN)

    def spawn_missing(self) -> None:
        """Start a worker on each free slot of a wanted node; skip slots excluded from growth while the rest trains."""
        others = self._hold_state()
        for node in self._nodes.here:
            residents = [member for member in self if member.node == node]
            slots = range(self._job.workers_per_node or self._context.slots(node))
            if all(member.stays for member in residents):
                for slot in sorted(set(slots).difference(member.slot for member in residents)):
                    aside = self.growth.waits(f"{node}:{slot}", self._context.now())
                    if not (others and aside):
                        self._spawn(node, slot)

    def _hold_state(self) -> bool:
        """Return whether a staying worker on a wanted node has the state."""
        return any(one.step != NO_STEP and one.stays for one in self.on_wanted(self))

    def confirm(self, step: int, furthest: int) -> None:
        """Record that the group's members have the state of ``step``; the task has reached ``furthest``."""
        members = self.group
        joined = furthest if any(one.step != NO_STEP for one in members) else 0
        for one in members:
            one.step = step
            one.joined = joined if one.joined is None else one.joined
        self.growth.confirmed(one.name for one in members)

    def reported(self, step: int) -> None:
        """Record a step. Growth works again if a worker on a previously excluded slot has joined for good."""
        if self.growth.failing:
            self.growth.confirmed(one.place for one in self.group if one.has_joined(step))

    def joins(self, member: GroupMember) -> bool:
        """Return whether a worker is about to join a running group."""
        return not member.has_joined(self._supervision.step) and self._hold_state()

    def join_failed(self, member: GroupMember, why: str) -> str:
        """Exclude the slot of a worker that died while joining; return a note if this repeats."""
        return self.growth.failed({member.place}, {member.node}, self._context.now(), why)

    def _spawn(self, node: str, slot: int) -> None:
        name, now = self._context.name(node, slot), self._context.now()
        self.by_name[name] = GroupMember(name, node, slot, now, coming_since=now)
        self._context.spawn(node, name, env=self._env | self._peer(), slot=slot)

    def _peer(self) -> dict[str, str]:
        """Return the address where a new worker reads the state's shape; empty if no worker has the state."""
        stores = [one.store for one in self.group if one.name == self.present.leader and one.store[1]]
        return {"BFTRAIN_PEER": "{}:{}".format(*stores[0])} if stores else {}

    def gather(self) -> None:
        """Ask the members of the group to leave it at their next commit."""
        self.present.gather_at = self._context.now()
        for member in self.group:
            self._context.send(member.name, GatherMembers(self.present.generation + 1))

    def dismiss(self, member: GroupMember, *, grace_s: float, save: bool = False) -> None:
        """Stop a worker: gracefully if it is ready and there is time, otherwise immediately."""
        if member.phase is MemberPhase.READY and grace_s > 0:
            self._context.send(member.name, LeaveTask(save, grace_s if save else 0.0))
            member.saves = save
            member.leaves_by = self._context.now() + grace_s + (self._supervision.write_limit_s if save else 0.0)
        else:
            self._context.stop(member.name, grace_s=grace_s)
            if member.phase is MemberPhase.IN and grace_s == 0:
                self.present.lost_member(self._context.now())
        member.phase = MemberPhase.GOING

    def dismiss_newcomers(self) -> None:
        """Stop workers that have not joined yet on unwanted nodes; the group has all of their state."""
        present = self.present
        trains = bool(self.group) and present.confirmed and not (present.gather_at or present.broken_at)
        for member in self:
            outside = member.phase is MemberPhase.COMING or (trains and member.phase is MemberPhase.READY)
            if outside and member.node not in self._nodes.wanted:
                self.dismiss(member, grace_s=self._job.stop_grace_s)

    def disband(self, ready: list[GroupMember]) -> None:
        """Stop these workers; the most advanced one saves the state first."""
        for index, member in enumerate(sorted(ready, key=lambda member: -member.step)):
            self.dismiss(member, grace_s=self._job.stop_grace_s, save=index == 0 and member.step > 0)

    def kill(self, member: GroupMember) -> None:
        """Kill a worker; its end is expected."""
        member.ended = True
        self._context.stop(member.name, grace_s=0.0)

    def leave_broken_group(self, now: float) -> None:
        """Cut the connections of members that wait for a dead one; kill members that never return."""
        group = self.present
        steps_s = max(TIMEOUTS.hang_s, HANG_STEPS * self._supervision.stalls.pace_s)
        hangs = now - group.broken_at > (TIMEOUTS.stalled_s if group.stalled else steps_s) and (
            self.of(MemberPhase.READY) or not group.confirmed or group.stalled
        )
        for member in self.group:
            if member.done:
                continue
            if hangs:
                self.kill(member)
            else:
                self._context.send(member.name, AbortGroup())

    def form(self, members: list[GroupMember]) -> None:
        """Form a group of ready workers, the most advanced first: rank 0 has the state and hosts the store."""
        nodes = self.nodes_of(members)
        self.present.form(members[0].name, nodes, self._context.now(), self._nodes.batch)
        self.adopted_at = 0.0
        copy = self._context.newest_copy() if members[0].step == NO_STEP else None
        generation, store, batch = self.present.generation, members[0].store, self._nodes.batch
        sync = len({member.step for member in members}) > 1 or members[0].step == NO_STEP
        for rank, member in enumerate(members):
            member.phase, member.rank = MemberPhase.IN, rank
            order = FormGroup(generation, rank, len(members), len(nodes), store, sync, batch, None if rank else copy)
            self._context.send(member.name, order)

    def send_copies(self) -> None:
        """Send the first worker of a training group the place for its copies of the state, if that has changed."""
        leader = self.present.leader
        if self.present.confirmed and self.group and leader in self.by_name:
            order = (leader, SendCopies(self._context.copy_place(self._nodes.all)))
            if order != self._copies and (order[1].copy or self._copies[1].copy):
                self._context.send(*order)
            self._copies = order

    def nodes_of(self, members: Iterable[GroupMember]) -> list[str]:
        """Return the nodes of these workers, in the sequence in which the task received them."""
        used = {member.node for member in members}
        first = [node for node in self._nodes.wanted if node in used]
        return [*first, *sorted(used.difference(first))]

    def gathering_is_due(self) -> bool:
        """Return whether the current group should change, and can."""
        group, wanted = self.group, self._nodes.wanted
        if not self.present.confirmed:
            # After a takeover: the rest of the group has dissolved, or did not appear in time
            dissolved = any(member.step != NO_STEP for member in self.of(MemberPhase.READY))
            return self.adopted_at > 0 and (dissolved or self._context.now() - self.adopted_at > TIMEOUTS.company_s)
        unwanted = [member for member in group if member.node not in wanted]
        ready = self._usable(self.on_wanted(self.of(MemberPhase.READY)), group)
        if unwanted and (ready or len(unwanted) < len(group)):
            return True
        if not wanted or self.are_noticed(group) or self.present.batch not in {None, self._nodes.batch}:
            return True
        return bool(ready) and self._is_complete(ready)

    def next_members(self) -> list[GroupMember]:
        """Return the ready workers for the next group. If any worker has the state, a member has it."""
        ready = self.of(MemberPhase.READY)
        furthest = max((member.step for member in ready), default=NO_STEP)
        stay = self._usable(self.on_wanted(ready))
        if stay and furthest > max(member.step for member in stay):
            # A worker with the state joins once more, and leaves in the next change
            stay.append(next(one for one in ready if one.step == furthest))
        return sorted(stay, key=lambda member: -member.step)

    def _usable(self, ready: list[GroupMember], group: Iterable[GroupMember] = ()) -> list[GroupMember]:
        """Return the ready workers that are not excluded from growth; all of them if no others can train."""
        now = self._context.now()
        usable = [one for one in ready if not self.growth.waits(one.name, now)]
        return usable if usable or self.on_wanted(group) else ready

    def on_wanted(self, members: Iterable[GroupMember]) -> list[GroupMember]:
        """Return the workers on wanted nodes."""
        return [one for one in members if one.node in self._nodes.wanted]

    def wait_for_others(self, stay: list[GroupMember]) -> bool:
        """Return whether forming a group waits for starting workers, or for agents that may bring some."""
        if stay[0].step == NO_STEP:  # workers on nodes with unconnected agents may have the state
            return not self._is_complete(stay) or self._nodes.waiting
        taking_over = self.adopted_at > 0 and self._context.now() - self.adopted_at < TIMEOUTS.company_s
        return taking_over and not all(map(self._context.slots, self._nodes.wanted))

    def are_noticed(self, members: list[GroupMember]) -> bool:
        """Return whether all of these workers are on nodes with a preemption notice."""
        return all(member.node in self._nodes.noticed for member in members)

    def _is_complete(self, ready: list[GroupMember]) -> bool:
        """Return whether ready workers need not wait: no worker is starting, or the starts take too long."""
        coming = self.on_wanted(self.of(MemberPhase.COMING))
        return not coming or self._context.now() - max(one.since for one in ready) > TIMEOUTS.company_s
