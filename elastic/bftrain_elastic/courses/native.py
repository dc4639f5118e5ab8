"""The native course: workers stay, and form a new torch.distributed group for each generation.

A worker is *coming* until it says ready, *ready* while it is in no group, *in* a group, or *going*. A group is formed
when nobody is in one any more: of those who are ready and wanted, the ones that are furthest first. It is dissolved by
asking its members to gather at their next commit, or by the death of one of them.
"""

from __future__ import annotations

from typing import ClassVar, Final

from bftrain_elastic.courses import Floor, Left
from bftrain_elastic.courses.health import Health
from bftrain_elastic.courses.members import NOTHING, Member, Phase
from bftrain_elastic.courses.strikes import Strikes, last_word, told_how
from bftrain_elastic.jobs import Job
from bftrain_elastic.messages import Message

REPEAT_S: Final = 2.0  # how soon a notice that was not followed is repeated
COMPANY_S: Final = 5.0  # how long those who are ready wait for others that are still coming
ABORT_S: Final = 0.5  # how long members may go on after another's death before their connections are cut
FORMING_S: Final = 20.0  # how long a group may take to form
FAREWELL_S: Final = 5.0  # how long the others may take to end after the first worker has
ASTRAY: Final = 3  # steps in no group that show that a script does not know of groups


class NativeCourse:
    """One task under the native launcher."""

    launcher: ClassVar = "native"  # as workers are told
    entrance: ClassVar = "bftrain_elastic.run"  # what their script calls

    def __init__(self, task: str, job: Job, floor: Floor) -> None:
        self._task = task
        self._job = job
        self._floor = floor
        self._wanted: tuple[str, ...] = ()
        self._members: dict[str, Member] = {}
        self._number = 0
        self._adopted_at = 0.0  # since when workers of a former manager are being taken over; 0: none are
        self._generation = 0
        self._leader = ""  # rank 0 of the present generation
        self._confirmed = True
        self._go_at = 0.0
        self._gather_at = 0.0  # when the notice was sent last; 0: nobody was asked to gather
        self._broken_at = 0.0  # when the group lost a member; 0: it has not
        self._step = 0  # the furthest step heard of
        self._strikes = Strikes()
        self._health = Health()
        self._over = ""  # "done", or why it failed: no worker is started any more
        self._over_at = 0.0
        self._paused = True

    # -- what happened

    def want(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Hold these nodes; clear those ``at_once``."""
        self._wanted = nodes
        for member in list(self._members.values()):
            if member.node in at_once:
                self._dismiss(member, grace_s=0.0)
        if nodes and self._over != "done":
            if self._over:  # it failed, and gets another try
                self._strikes = Strikes()
            self._over, self._paused = "", False
        self._settle()

    def node_up(self, node: str) -> None:  # noqa: ARG002 - every wanted node without a worker is looked at
        """Start what is wanted there."""
        self._settle()

    def node_gone(self, node: str) -> None:  # noqa: ARG002 - its workers' ends were told
        """Go on with the rest."""
        self._settle()

    def spawned(self, worker: str, port: int) -> None:
        """Nothing to do: a worker says itself when it is ready."""

    def exited(self, worker: str, code: int, tail: str) -> None:
        """Bury a worker; unless it was told to go, others have lost it and another takes its place."""
        member = self._members.pop(worker, None)
        if member is None:
            return
        self._last_words(member, code)
        follows = member.phase is Phase.IN and self._broken_at > 0  # others died before, or it was cut off
        if member.phase is Phase.IN and self._over != "done":
            self._broken_at = self._broken_at or self._floor.now()
            self._health.died()
        expected = follows or member.phase is Phase.GOING or self._over or member.node not in self._wanted
        if not expected and self._floor.slots(member.node):
            self._strike(member, code, tail)
        if not any(one.node == member.node for one in self._members.values()):
            self._floor.tell({"told": "vacated", "nodes": [member.node]})
        self._settle()

    def adopt(self, node: str, left: Left) -> bool:
        """Take over a worker that went on without a manager, unless there are others that have the state.

        A group that is found whole goes on as it is. If some of its members do not turn up, or have left it, the
        others are asked to gather; so nothing that was done is done again.
        """
        others = any(member.step != NOTHING for member in self._members.values())
        if node not in self._wanted or self._over or (others and not self._adopted_at):
            return False
        member = Member(left.worker, node, left.slot, 0, self._floor.now())
        self._adopted_at = self._adopted_at or member.since
        self._enrol(member)
        self._step = max(self._step, left.step)
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
            case "confirmed" if message["generation"] == self._generation and worker == self._leader:
                self._confirm(int(message["step"]))
            case "report" if member.phase is Phase.COMING:
                self._count_astray(member)
            case "report":
                if note := self._health.reported(float(message["t"]), asked=self._gather_at > 0):
                    self._floor.tell({"told": "note", "text": note})
                self._step = max(self._step, int(message["step"]))
                fields = ("t", "step", "size", "samples", "loss")
                self._floor.tell({"told": "report", **{name: message.get(name) for name in fields}})
            case "committed" | "saved" as what:
                self._step = max(self._step, int(message["step"]))
                self._floor.tell({"told": what, "step": int(message["step"])})
            case "done":
                self._finish(int(message["step"]))
        self._settle()

    def tick(self, now: float) -> None:
        """Repeat what was not followed, and end what takes too long."""
        members = self._in_group()
        if members and self._gather_at and now - self._gather_at > REPEAT_S:
            self._gather()
        if members and not self._confirmed and now - self._go_at > FORMING_S and not self._broken_at:
            self._broken_at = now - ABORT_S
        if members and self._broken_at and now - self._broken_at > ABORT_S:
            self._hurry(members, now)
        if self._over and self._over_at and self._members and now - self._over_at > FAREWELL_S:
            self._over_at = now
            for member in self._members.values():
                self._floor.stop(member.name, grace_s=0.0)
        self._settle()

    # -- what follows

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
            member.since = self._floor.now()
        if message.get("reason") and message.get("generation") == self._generation:
            self._broken_at = self._broken_at or self._floor.now()
            self._health.lost(str(message["reason"]))
            self._floor.tell({"told": "note", "text": f"{member.name} lost the group: {message['reason']}"})

    def _confirm(self, step: int) -> None:
        self._confirmed, self._adopted_at = True, 0.0
        self._step = max(self._step, step)
        for member in self._in_group():
            member.step = step
        nodes = self._nodes_of(self._in_group())
        told = {"told": "confirmed", "generation": self._generation, "size": len(nodes), "nodes": nodes, "step": step}
        self._floor.tell(told)

    def _finish(self, step: int) -> None:
        """Know that the training is done; the script may go on for as long as it likes, to evaluate what it has."""
        if self._over != "done":
            self._over, self._over_at = "done", 0.0
            self._step = max(self._step, step)
            for member in self._members.values():
                if member.phase in {Phase.COMING, Phase.READY}:
                    self._dismiss(member, grace_s=0.0)

    def _last_words(self, member: Member, code: int) -> None:
        """Know how the first worker ended after the training: the others follow it, or the end is tried again."""
        if self._over == "done" and member.name == self._leader:
            if code == 0:
                self._over_at = self._floor.now()
            else:
                self._over, self._paused = "", False

    def _enrol(self, member: Member) -> None:
        self._number += 1
        member.number = self._number
        self._members[member.name] = member

    def _find_in_group(self, member: Member, left: Left) -> None:
        """Know that a worker is in a group; once all are there it is as good as confirmed."""
        member.phase, member.step = Phase.IN, left.step
        self._generation = max(self._generation, left.generation)
        self._confirmed, self._go_at = False, self._floor.now()
        if left.rank == 0:
            self._leader = member.name
        if left.done:
            self._finish(left.step)
        if len(self._in_group()) == left.workers:
            self._confirm(max(one.step for one in self._in_group()))

    def _strike(self, member: Member, code: int, tail: str) -> None:
        """Count a death that nobody ordered."""
        how = told_how(member.name, code)
        if code == 0 and member.phase is Phase.COMING:  # it will do no better the next time
            self._fail(f"{member.name} ended, and its script never called {self.entrance}\n{tail}")
        elif self._strikes.another(self._step):
            self._fail(f"{how}\n{tail}")
        else:
            self._floor.tell({"told": "note", "text": f"{how}{last_word(tail)}; it is started again"})

    def _fail(self, reason: str) -> None:
        self._over, self._over_at = reason.strip(), self._floor.now()
        for one in self._members.values():
            self._dismiss(one, grace_s=0.0)

    def _settle(self) -> None:
        """Do whatever is due."""
        if self._over == "done":
            for member in self._members.values():
                if member.node not in self._wanted and member.stays:
                    self._floor.stop(member.name, grace_s=self._job.stop_grace_s)
                    member.phase = Phase.GOING
        if self._over or not self._wanted:
            self._end()
            if self._over:
                return
        self._spawn_missing()
        members = self._in_group()
        if members:
            due = self._change_due(members) if self._confirmed else self._all_waited_for()
            if due and not self._broken_at and not self._gather_at:
                self._gather()
            return
        self._form()

    def _spawn_missing(self) -> None:
        for node in self._wanted:
            slots = self._job.workers_per_node or self._floor.slots(node)
            if not self._floor.slots(node):
                continue
            there = {member.slot for member in self._members.values() if member.node == node and member.stays}
            leaving = any(member.node == node and not member.stays for member in self._members.values())
            for slot in range(slots):
                if slot not in there and not leaving:
                    self._spawn(node, slot)

    def _spawn(self, node: str, slot: int) -> None:
        name = self._floor.name(node, slot)
        self._enrol(Member(name, node, slot, 0, self._floor.now()))
        env = {**self._job.env, "BFTRAIN_LAUNCHER": self.launcher, "BFTRAIN_FOLDER": self._job.folder}
        self._floor.spawn(node, name, argv=self._job.argv, env=env, slot=slot)

    def _change_due(self, members: list[Member]) -> bool:
        """Tell whether the group is not what it should be, and can become so."""
        unwanted = [member for member in members if member.node not in self._wanted]
        ready = [one for one in self._all(Phase.READY) if one.node in self._wanted]
        if unwanted and (ready or len(unwanted) < len(members)):
            return True
        if not self._wanted:
            return True
        return bool(ready) and self._complete(ready)

    def _all_waited_for(self) -> bool:
        """Tell whether to wait no more for others that a former manager left: their group dissolved, or it is time."""
        dissolved = any(member.step != NOTHING for member in self._all(Phase.READY))
        return self._adopted_at > 0 and (dissolved or self._floor.now() - self._adopted_at > COMPANY_S)

    def _complete(self, ready: list[Member]) -> bool:
        """Tell whether those who are ready need not wait for others: nobody is coming, or it takes too long."""
        coming = [one for one in self._all(Phase.COMING) if one.node in self._wanted]
        return not coming or self._floor.now() - max(one.since for one in ready) > COMPANY_S

    def _gather(self) -> None:
        self._gather_at = self._floor.now()
        for member in self._in_group():
            self._floor.say(member.name, {"do": "gather", "generation": self._generation + 1})

    def _form(self) -> None:
        """Form a group of those who are ready: nobody is in one."""
        ready = self._all(Phase.READY)
        stay = [member for member in ready if member.node in self._wanted]
        if not self._wanted:
            self._disband(ready)
            return
        furthest = max((member.step for member in ready), default=NOTHING)
        if stay and furthest > max(member.step for member in stay):
            # Nobody who stays has the state: who has it comes along once more, and leaves in the next change
            stay.append(min((one for one in ready if one.step == furthest), key=lambda one: one.number))
        if not stay or (furthest == NOTHING and not self._complete(stay)):
            return
        taking_over = self._adopted_at > 0 and self._floor.now() - self._adopted_at < COMPANY_S
        if taking_over and not all(map(self._floor.slots, self._wanted)):
            return  # other agents are still on their way to this manager
        lost = self._health.left()
        if lost and self._strikes.another(self._step):  # a mistake that will come again
            self._fail(f"its workers lost each other again and again: {lost}")
            return
        stay.sort(key=lambda member: (-member.step, member.number))
        for member in ready:
            if member not in stay:
                self._dismiss(member, grace_s=self._job.stop_grace_s)
        self._generation += 1
        self._confirmed, self._go_at = False, self._floor.now()
        self._gather_at = self._broken_at = self._adopted_at = 0.0
        self._leader = stay[0].name
        size = len(self._nodes_of(stay))
        for rank, member in enumerate(stay):
            member.phase = Phase.IN
            go = {
                "do": "go",
                "generation": self._generation,
                "rank": rank,
                "workers": len(stay),
                "size": size,
                "store": list(stay[0].store),
                "sync": len({one.step for one in stay}) > 1 or furthest == NOTHING,
            }
            self._floor.say(member.name, go)

    def _disband(self, ready: list[Member]) -> None:
        """Let all go; the one that is furthest writes the state down first."""
        ready.sort(key=lambda member: (-member.step, member.number))
        for place, member in enumerate(ready):
            self._dismiss(member, grace_s=self._job.stop_grace_s, save=place == 0 and member.step > 0)

    def _dismiss(self, member: Member, *, grace_s: float, save: bool = False) -> None:
        """Let a worker go: at its own pace if it is ready and there is time, or at once."""
        if member.phase is Phase.READY and grace_s > 0:
            self._floor.say(member.name, {"do": "leave", "save": save})
            member.since = self._floor.now()
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
        ready = self._all(Phase.READY)
        for member in members:
            if now - self._broken_at > self._health.hang_s and (ready or not self._confirmed):
                self._floor.stop(member.name, grace_s=0.0)
            else:
                self._floor.say(member.name, {"do": "abort"})

    def _end(self) -> None:
        """Say how it ended once nobody is left."""
        if not self._over:
            for member in self._all(Phase.COMING):
                self._dismiss(member, grace_s=0.0)
        if self._members or self._paused:
            return
        self._paused = True
        self._gather_at = self._broken_at = 0.0
        if self._over == "done":
            self._floor.tell({"told": "done", "step": self._step})
        elif self._over:
            self._floor.tell({"told": "failed", "reason": self._over})
        else:
            self._floor.tell({"told": "paused", "step": self._step})

    def _in_group(self) -> list[Member]:
        return self._all(Phase.IN)

    def _all(self, phase: Phase) -> list[Member]:
        return [member for member in self._members.values() if member.phase is phase]

    def _nodes_of(self, members: list[Member]) -> list[str]:
        """Give the nodes of these members, in the order in which the task was given them."""
        there = {member.node for member in members}
        return [*(node for node in self._wanted if node in there), *sorted(there - set(self._wanted))]
