"""The native course: workers stay, and form a new torch.distributed group for each generation.

A worker is *coming* until it says ready, *ready* while it is in no group, *in* a group, or *going*. A group is formed
when nobody is in one any more: of those who are ready and wanted, the ones that are furthest first. It is dissolved by
asking its members to gather at their next commit, or by the death of one of them.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final

from bftrain_elastic.courses import Exit, Floor, Left
from bftrain_elastic.courses.failures import Death, is_connection_trouble, last_word, told_how
from bftrain_elastic.courses.forming import FormationWatch
from bftrain_elastic.courses.given_nodes import GivenNodes
from bftrain_elastic.courses.health import Health
from bftrain_elastic.courses.members import NOTHING, Member, Members, Phase, death_of, go_orders, nodes_of
from bftrain_elastic.courses.retry import RetryDelay
from bftrain_elastic.courses.supervision import Supervision
from bftrain_elastic.jobs import Job
from bftrain_elastic.messages import Message

REPEAT_S: Final = 2.0  # how soon a notice that was not followed is repeated
COMPANY_S: Final = 5.0  # how long those who are ready wait for others that are still coming
ABORT_S: Final = 0.5  # how long members may go on after another's death before their connections are cut
FAREWELL_S: Final = 5.0  # how long others may take to end their training after the first worker has ended
ASTRAY: Final = 3  # steps in no group that show that a script does not know of groups
STALLED_S: Final = 5.0  # how long members of a group without a step may take to leave it
RETRY_S: Final = 0.25  # before the second try to form a group that did not form; twice as long each time
LONGEST_RETRY_S: Final = 8.0
# What Gloo says in its own words when ranks call different operations
_MISMATCH: Final = " (its ranks called different operations: does each of them call state.commit() and reduce alike?)"


class NativeCourse:
    """One task under the native launcher."""

    launcher: ClassVar = "native"  # as workers are told
    entrance: ClassVar = "bftrain_elastic.run"  # what their script calls

    def __init__(self, task: str, job: Job, floor: Floor) -> None:
        self._task = task
        self._job = job
        self._floor = floor
        self._nodes = GivenNodes(floor)
        self._members = Members()
        self._adopted_at = 0.0  # since when workers of a former manager are being taken over; 0: none are
        self._generation = 0
        self._leader = ""  # rank 0 of the present generation
        self._confirmed = True
        self._go_at = 0.0
        self._gather_at = 0.0  # when the notice was sent last; 0: nobody was asked to gather
        self._broken_at = 0.0  # when the group lost a member; 0: it has not
        self._group_nodes: frozenset[str] = frozenset()  # of the present group
        self._stalled = False  # the present group was broken because it made no step
        self._retry = RetryDelay(RETRY_S, LONGEST_RETRY_S)  # of groups that were lost
        self._supervision = Supervision(job, floor)
        self._forming = FormationWatch(job.stall_limit_s)
        self._health = Health()
        self._over = ""  # "done", or why it failed: no worker is started any more
        self._over_at = 0.0
        self._finished = False  # the program said itself that its work is done
        self._paused = True

    # -- what happened

    def want(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Hold these nodes; clear those ``at_once``."""
        self._nodes.give(nodes)
        for node in sorted(at_once):
            self._supervision.node_leaves(node)
        for member in self._members:
            if member.node in at_once:
                self._dismiss(member, grace_s=0.0)
        if nodes and self._over != "done":
            if self._over:  # it failed, and gets another try
                self._supervision.anew()
                self._forming.anew()
            self._over, self._paused = "", False
        self._settle()

    def node_up(self, node: str) -> None:
        """Start what is wanted there."""
        self._nodes.came(node)
        self._settle()

    def node_gone(self, node: str) -> None:
        """Go on with the rest; the ends of the workers there were told before."""
        self._nodes.went(node)
        self._supervision.node_leaves(node)
        self._settle()

    def notice(self, node: str, grace_s: float) -> None:  # noqa: ARG002 - the agent sees to it that nobody stays longer
        """Leave a node at the next commit: the state goes to other nodes, or to the folder if there are none."""
        self._nodes.notice(node)
        self._supervision.node_leaves(node)
        for member in self._members.on(node):
            if member.phase is Phase.COMING:
                self._dismiss(member, grace_s=0.0)
        self._settle()

    def inspected(self, worker: str, process_state: str) -> None:
        """Know the state of a worker's process."""
        self._supervision.inspected(worker, process_state)

    def spawned(self, worker: str, port: int) -> None:
        """Nothing to do: a worker says itself when it is ready."""

    def exited(self, worker: str, exit: Exit) -> None:  # noqa: A002 - as in Course
        """Forget a worker; unless it was told to go, others have lost it and another takes its place."""
        member = self._members.pop(worker)
        if member is None:
            return
        if exit.finished and member.stays and not member.ended and not self._over:
            member.finished = True
            self._take_finished()
        self._last_words(member, exit)
        if member.saves and exit.code and self._supervision.saving.lacks(member.step):
            how = f"{told_how(member.name, exit.code)} before the state of step {member.step} was on disk"
            self._supervision.note(f"{how}{last_word(exit.tail)}; the task goes on {self._supervision.saving.words}")
        if member.phase is Phase.IN and (self._over != "done" or self._finished):
            self._broken_at = self._broken_at or self._floor.now()
            self._health.died()
        stuck = member.phase is Phase.IN and exit.code == os.EX_TEMPFAIL  # it lost the others, and ended itself
        ordered = member.ended or member.phase is Phase.GOING or bool(self._over)
        if not (ordered or stuck) and member.node in self._nodes.all and self._floor.slots(member.node):
            self._supervision.died(death_of(member, exit, self._group_nodes, self._go_at, self.entrance))
        if not self._members.on(member.node):
            self._floor.tell({"told": "vacated", "nodes": [member.node]})
        self._settle()

    def adopt(self, node: str, left: Left) -> bool:
        """Take over a worker that went on without a manager, unless there are others that have the state.

        A group that is found whole goes on as it is. If some of its members do not turn up, or have left it, the
        others are asked to gather; so nothing that was done is done again.
        """
        if left.exit is not None:
            return self._take_over_ended(node, left, left.exit)
        others = any(member.step != NOTHING for member in self._members)
        if node not in self._nodes.wanted or self._over or (others and not self._adopted_at):
            return False
        member = Member(left.worker, node, left.slot, 0, self._floor.now())
        self._adopted_at = self._adopted_at or member.since
        self._members.add(member)
        self._supervision.further(left.step)
        if left.report is not None:  # it did that while nobody listened
            self._supervision.reported(left.report)
        if left.ready is not None:
            self._generation = max(self._generation, left.generation)
            self._ready(member, left.ready)
        elif left.generation:
            self._find_in_group(member, left)
        return True

    def said(self, worker: str, message: Message) -> None:
        """Hear what a worker says."""
        member = self._members.get(worker)
        if member is None:
            return
        match message.get("say"):
            case "ready":
                self._ready(member, message)
            case "joined" if message["generation"] == self._generation and worker == self._leader:
                self._forming.met(self._floor.now())
            case "confirmed" if message["generation"] == self._generation and worker == self._leader:
                self._confirm(int(message["step"]))
            case "report" if member.phase is Phase.COMING:
                self._count_astray(member)
            case "report":
                if note := self._health.reported(float(message["t"]), asked=self._gather_at > 0):
                    self._supervision.note(note)
                self._retry.succeeded()
                self._supervision.reported(message)
            case "done" | "finished":
                self._take_end(member, message)
            case _:
                self._supervision.heard(worker, message)
        self._settle()

    def tick(self, now: float) -> None:
        """Repeat what was not followed, and end what takes too long."""
        self._supervise(now)
        members = self._members.group
        for member in self._members.of(Phase.GOING):
            if member.leaves_by is not None and now > member.leaves_by:
                member.leaves_by = None
                self._floor.stop(member.name, grace_s=0.0)
        if members and self._gather_at and now - self._gather_at > REPEAT_S:
            self._gather()
        if members and not self._confirmed and not self._broken_at and self._forming.overdue(now):
            self._cut_short(members, now)
        if members and self._broken_at and now - self._broken_at > ABORT_S:
            self._hurry(members, now)
        if self._over and self._over_at and self._members and now - self._over_at > FAREWELL_S:
            self._end_the_late(now)
        self._settle()

    # -- what follows

    def _supervise(self, now: float) -> None:
        """Judge deaths, and notice that nothing gets any further."""
        members = self._members.group
        trains = bool(members) and self._confirmed and not self._broken_at and not self._over
        (self._supervision.stalls.trains if trains else self._supervision.stalls.rests)(now)
        coming = [] if members or self._members.of(Phase.READY) or self._over else self._members.of(Phase.COMING)
        verdict = self._supervision.tick(
            {member.name: (member.rank, member.node) for member in members},
            min((member.since for member in coming), default=None),
        )
        failure = verdict.failure or self._forming.given_up(now)
        if failure and not self._over:
            self._fail(failure)
        elif verdict.restart and members:
            self._stalled = True
            self._break(now)

    def _break(self, now: float) -> None:
        """Have all members leave their group at once, as when one of them has died."""
        self._broken_at = now - ABORT_S

    def _cut_short(self, members: list[Member], now: float) -> None:
        """End a group that takes too long to form: whoever waits for others is cut off, one that is alone is ended."""
        self._break(now)
        if len(members) == 1:
            members[0].ended = True
            self._floor.stop(members[0].name, grace_s=0.0)

    def _count_astray(self, member: Member) -> None:
        """Know of a worker that trains by itself, as others do on the other nodes."""
        member.astray += 1
        if member.astray == ASTRAY and not self._over:
            self._fail(f"{member.name} trains by itself: its script never called {self.entrance}")

    def _ready(self, member: Member, message: Message) -> None:
        member.step = int(message["step"])
        host, port = message["store"]
        member.store = (str(host), int(port))
        if member.phase is not Phase.GOING:
            member.phase = Phase.READY
            if member.coming_since is not None:
                self._supervision.failures.started(self._floor.now() - member.coming_since)
                member.coming_since = None
            member.since = self._floor.now()
        if message.get("reason") and message.get("generation") == self._generation:
            self._broken_at = self._broken_at or self._floor.now()
            self._health.lost(str(message["reason"]))
            if not self._over:
                self._supervision.lost(f"{member.name} lost the group: {message['reason']}")
        if self._finished and member.phase is Phase.READY:
            self._dismiss(member, grace_s=self._job.stop_grace_s)

    def _confirm(self, step: int) -> None:
        self._confirmed, self._adopted_at = True, 0.0
        self._forming.confirmed(self._floor.now(), learn=step > 0)
        self._supervision.further(step)
        for member in self._members.group:
            member.step = step
        nodes = nodes_of(self._members.group, self._nodes.wanted)
        told = {"told": "confirmed", "generation": self._generation, "size": len(nodes), "nodes": nodes, "step": step}
        self._floor.tell(told)

    def _finish(self, step: int) -> None:
        """Know that the training is done; the script may go on for as long as it likes, to evaluate what it has."""
        if self._over != "done":
            self._over, self._over_at = "done", 0.0
            self._supervision.further(step)
            for member in self._members:
                if member.phase in {Phase.COMING, Phase.READY}:
                    self._dismiss(member, grace_s=0.0)

    def _take_end(self, member: Member, message: Message) -> None:
        """Know that a worker's training is over, or that the program says that its work is done."""
        if message["say"] == "done":
            member.done = True
            self._finish(int(message["step"]))
        else:
            member.finished = True
            self._take_finished()

    def _take_finished(self) -> None:
        """Know that the program said that its work is done: so it is, whatever becomes of its processes."""
        if not self._over:
            self._finished = True
            self._finish(self._supervision.step)

    def _end_the_late(self, now: float) -> None:
        """End workers that do not follow the first one. Those whose training is over may take their time."""
        if self._over != "done":
            self._over_at = now
            for member in self._members:
                self._floor.stop(member.name, grace_s=0.0)
            return
        limit_s = self._job.stall_limit_s
        for member in self._members:
            too_late = bool(limit_s) and now - self._over_at > limit_s
            if member.stays and (too_late or not (member.done or member.finished)):
                text = f"{member.name} did not end within {now - self._over_at:.0f} s after the first worker had"
                self._supervision.note(f"{text}; it is stopped")
                self._dismiss(member, grace_s=self._job.stop_grace_s)

    def _take_over_ended(self, node: str, left: Left, exit: Exit) -> bool:  # noqa: A002 - as in Course
        """Take in a worker that ended while no manager listened; return whether the task ended with it."""
        if left.report is not None:
            self._supervision.reported(left.report)
        if exit.code > 0:
            text = f"{told_how(left.worker, exit.code)} while no manager listened"
            self._supervision.died(Death(text, node, frozenset({node}), exit, self._floor.now() - exit.ago_s))
        if left.done and left.rank == 0 and exit.code == 0 and self._over != "done":
            self._finish(left.step)
            self._over_at = self._floor.now()
            self._settle()
        if exit.finished and not left.done:
            self._take_finished()
            self._over_at = self._floor.now()
            self._settle()
        return (left.done or self._finished) and self._over == "done"

    def _last_words(self, member: Member, exit: Exit) -> None:  # noqa: A002 - as in Course
        """Know how the first worker ended after the training: the others follow it, or the end is tried again."""
        if self._over == "done" and (member.name == self._leader or member.finished):
            if exit.code == 0 or self._finished:
                self._over_at = self._over_at or self._floor.now()
            else:
                self._over, self._paused = "", False

    def _find_in_group(self, member: Member, left: Left) -> None:
        """Know that a worker is in a group; once all are there it is as good as confirmed."""
        member.phase, member.step, member.rank = Phase.IN, left.step, left.rank
        self._generation = max(self._generation, left.generation)
        self._confirmed, self._go_at = False, self._floor.now()
        self._forming.began(self._go_at)
        member.coming_since = None
        if left.rank == 0:
            self._leader = member.name
        if left.done:
            member.done = True
            self._finish(left.step)
        if len(self._members.group) == left.workers:
            self._confirm(max(one.step for one in self._members.group))

    def _fail(self, reason: str) -> None:
        self._over, self._over_at = reason.strip(), self._floor.now()
        for one in self._members:
            self._dismiss(one, grace_s=0.0)

    def _settle(self) -> None:
        """Do whatever is due."""
        wanted = self._nodes.wanted
        if self._over == "done":
            for member in self._members:
                if member.node not in wanted and member.stays:
                    self._floor.stop(member.name, grace_s=self._job.stop_grace_s)
                    member.phase = Phase.GOING
        if self._over or not wanted:
            self._end()
            if self._over:
                return
        self._spawn_missing()
        members = self._members.group
        if members:
            due = self._change_due(members) if self._confirmed else self._all_waited_for()
            if due and not self._broken_at and not self._gather_at:
                self._gather()
            return
        self._form()

    def _spawn_missing(self) -> None:
        if self._supervision.failures.undecided or self._nodes.waiting:
            return
        for node in self._nodes.wanted:
            slots = self._job.workers_per_node or self._floor.slots(node)
            if not self._floor.slots(node):
                continue
            there = {member.slot for member in self._members if member.node == node and member.stays}
            leaving = any(member.node == node and not member.stays for member in self._members)
            for slot in range(slots):
                if slot not in there and not leaving:
                    self._spawn(node, slot)

    def _spawn(self, node: str, slot: int) -> None:
        name = self._floor.name(node, slot)
        now = self._floor.now()
        self._members.add(Member(name, node, slot, 0, now, coming_since=now))
        env = {**self._job.env, "BFTRAIN_LAUNCHER": self.launcher, "BFTRAIN_FOLDER": self._job.folder}
        self._floor.spawn(
            node,
            name,
            argv=self._job.argv,
            env=env,
            slot=slot,
            finish_code=self._job.finish_code,
            finish_file=self._job.finish_path,
        )

    def _change_due(self, members: list[Member]) -> bool:
        """Tell whether the group is not what it should be, and can become so."""
        unwanted = [member for member in members if member.node not in self._nodes.wanted]
        ready = [one for one in self._members.of(Phase.READY) if one.node in self._nodes.wanted]
        if unwanted and (ready or len(unwanted) < len(members)):
            return True
        if not self._nodes.wanted or all(self._nodes.is_noticed(member.node) for member in members):
            return True
        return bool(ready) and self._complete(ready)

    def _all_waited_for(self) -> bool:
        """Tell whether to wait no more for others that a former manager left: their group dissolved, or it is time."""
        dissolved = any(member.step != NOTHING for member in self._members.of(Phase.READY))
        return self._adopted_at > 0 and (dissolved or self._floor.now() - self._adopted_at > COMPANY_S)

    def _complete(self, ready: list[Member]) -> bool:
        """Tell whether those who are ready need not wait for others: nobody is coming, or it takes too long."""
        coming = [one for one in self._members.of(Phase.COMING) if one.node in self._nodes.wanted]
        return not coming or self._floor.now() - max(one.since for one in ready) > COMPANY_S

    def _gather(self) -> None:
        self._gather_at = self._floor.now()
        for member in self._members.group:
            self._floor.say(member.name, {"do": "gather", "generation": self._generation + 1})

    def _form(self) -> None:
        """Form a group of those who are ready: nobody is in one."""
        ready = self._members.of(Phase.READY)
        if not self._nodes.wanted:
            self._disband(ready)
            return
        furthest = max((member.step for member in ready), default=NOTHING)
        if furthest > 0 and self._save_what_is_taken([member for member in ready if member.step == furthest]):
            return
        stay = self._stay(ready, furthest)
        if not stay or self._may_come(stay, furthest):
            return
        if self._try_later(self._health.left(), stay):
            return
        stay.sort(key=lambda member: (-member.step, member.number))
        for member in ready:
            if member not in stay:
                self._dismiss(member, grace_s=self._job.stop_grace_s)
        self._generation += 1
        self._confirmed, self._go_at = False, self._floor.now()
        if note := self._forming.began(self._go_at):
            self._supervision.note(note)
        self._gather_at = self._broken_at = self._adopted_at = 0.0
        self._stalled = False
        self._leader = stay[0].name
        nodes = nodes_of(stay, self._nodes.wanted)
        self._group_nodes = frozenset(nodes)
        for member, order in go_orders(stay, self._generation, len(nodes)):
            member.phase, member.rank = Phase.IN, int(order["rank"])
            self._floor.say(member.name, order)

    def _save_what_is_taken(self, holders: list[Member]) -> bool:
        """Have the state written down if all who hold it are on nodes that will be taken; return whether that is so."""
        taken = all(self._nodes.is_noticed(member.node) for member in holders)
        if taken:
            self._disband(holders)
        return taken

    def _stay(self, ready: list[Member], furthest: int) -> list[Member]:
        """Return who is to form the next group; somebody has the state, if anybody has."""
        stay = [member for member in ready if member.node in self._nodes.wanted]
        if stay and furthest > max(member.step for member in stay):
            # Nobody who stays has the state: who has it comes along once more, and leaves in the next change
            stay.append(min((one for one in ready if one.step == furthest), key=lambda one: one.number))
        return stay

    def _may_come(self, stay: list[Member], furthest: int) -> bool:
        """Return whether to wait: for others that are coming, for agents, or before trying once more."""
        now = self._floor.now()
        if self._retry.waits(now) or any(member.saves for member in self._members):
            return True
        if furthest == NOTHING:  # workers on nodes whose agents have not come yet may have the state
            return not self._complete(stay) or self._nodes.waiting
        taking_over = self._adopted_at > 0 and now - self._adopted_at < COMPANY_S
        return taking_over and not all(map(self._floor.slots, self._nodes.wanted))

    def _try_later(self, lost: str, stay: list[Member]) -> bool:
        """Know why members lost each other, if no death explains it; return whether to wait before the next group.

        Lost connections and time-outs are never the program's fault. Anything else is a mistake that will come again.
        """
        if not lost:
            return False
        if not self._confirmed:
            self._forming.lost(lost)
        self._retry.failed(self._floor.now())
        if not is_connection_trouble(lost):
            self._supervision.died(
                Death(
                    text=f"its workers lost each other: {lost}{_MISMATCH if 'preamble' in lost else ''}",
                    node=stay[0].node,
                    nodes=self._group_nodes,
                    exit=Exit(1),
                    began_s=self._go_at,
                )
            )
        return True

    def _disband(self, ready: list[Member]) -> None:
        """Let all go; the one that is furthest writes the state down first."""
        ready.sort(key=lambda member: (-member.step, member.number))
        for place, member in enumerate(ready):
            self._dismiss(member, grace_s=self._job.stop_grace_s, save=place == 0 and member.step > 0)

    def _dismiss(self, member: Member, *, grace_s: float, save: bool = False) -> None:
        """Let a worker go: at its own pace if it is ready and there is time, or at once."""
        if member.phase is Phase.READY and grace_s > 0:
            self._floor.say(member.name, {"do": "leave", "save": save, **({"grace_s": grace_s} if save else {})})
            member.saves = save
            member.leaves_by = self._floor.now() + grace_s + (self._supervision.saving.limit_s if save else 0.0)
        elif grace_s == 0:
            self._floor.stop(member.name, grace_s=0.0)
            if member.phase is Phase.IN:
                self._broken_at = self._broken_at or self._floor.now()
                self._health.died()
        else:
            self._floor.stop(member.name, grace_s=grace_s)
        member.phase = Phase.GOING

    def _hurry(self, members: list[Member], now: float) -> None:
        """Cut the connections of members that wait for a dead one; kill those that never come back."""
        ready = self._members.of(Phase.READY)
        for member in members:
            if member.done:
                continue
            hangs = now - self._broken_at > (STALLED_S if self._stalled else self._health.hang_s)
            if hangs and (ready or not self._confirmed or self._stalled):
                member.ended = True
                self._floor.stop(member.name, grace_s=0.0)
            else:
                self._floor.say(member.name, {"do": "abort"})

    def _end(self) -> None:
        """Say how it ended once nobody is left."""
        if not self._over:
            for member in self._members.of(Phase.COMING):
                self._dismiss(member, grace_s=0.0)
        if self._members or self._paused:
            return
        self._paused = True
        self._gather_at = self._broken_at = 0.0
        if self._over == "done":
            self._floor.tell({"told": "done", "step": self._supervision.step, "finished": True})
        elif self._over:
            self._floor.tell({"told": "failed", "reason": self._over})
        else:
            self._floor.tell({"told": "paused", "step": self._supervision.step})
