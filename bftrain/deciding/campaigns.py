"""Campaigns: who competes by OStrich's virtual fair schedule, on nodes that come and go.

A campaign is a set of tasks that one user submits together: those of a study, or of some minutes. In a
virtual schedule all users with unfinished work share, by weight, the node-time that tasks really hold; a user's part
is poured into their campaigns, the oldest first. Campaigns compete in the order in which they end there. So no user is
kept waiting for long by a user who hands in a thousand tasks, and the first of two studies ends before the second.

The virtual schedule needs work in node-seconds. A task's is what it would take on ``min_nodes``: the least that it can
run on, and, as curves bend down, about the least node-time that it can be done in. It does not depend on what a task
gets later, so no user can gain or lose a rank by what others leave.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from bftrain.deciding.admission import MAX, KindCapacity, check_demand, check_number
from bftrain.deciding.ostrich_schedule import PRECISION, ScheduleSnapshot, VirtualSchedule
from bftrain.ports import Queue
from bftrain.values.events import AdmissionUpdate, TaskInfo
from bftrain.values.sharing import Entity
from bftrain.values.task import TaskSpec

GAP_S: Final = 600.0  # what is submitted within so many seconds of a campaign's first task belongs to it
LOAD: Final = 1.0
ENDLESS_S: Final = 3600.0  # tasks without an end are taken to need so much more of their minimum, again and again


class _Task(msgspec.Struct, kw_only=True):
    """A task that is not over: its campaign, its work in node-seconds, and the part of it that is left.

    ``added`` is its part of the virtual work of the campaign, node-seconds: none once it was served and the campaign
    began again for its endless tasks. Books from before this was kept do not say it.
    """

    campaign: int
    number: int  # in the order of entering
    work: float
    left: float = 1.0
    endless: bool = False
    added: float | None = None


class _Campaign(msgspec.Struct, kw_only=True):
    """A campaign with tasks that are not over; ``tasks`` stand in their order: work, number, name."""

    user: str
    label: str
    created_s: float
    tasks: list[tuple[float, int, str]] = msgspec.field(default_factory=list)


class CampaignSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must survive a restart."""

    numbers: int
    campaigns: dict[int, _Campaign]
    tasks: dict[str, _Task]
    virtual: ScheduleSnapshot
    last: list[int] | None = None  # those that may be joined; in books from before, the latest of each user and label


@dataclass(slots=True)
class CampaignAdmission:
    """Tasks compete in the order of their campaigns' virtual ends, as many as can fill ``load`` times the pool.

    Inside a campaign the tasks with the least work go first. If all tasks competed, their order would mean nothing: so
    only as many do as could use the nodes there are.
    """

    max_tasks: int = 35
    gap_s: float = GAP_S
    load: float = LOAD
    demand: str = MAX
    entities: Mapping[str, Entity] = field(default_factory=dict)
    name: ClassVar[str] = "campaigns"
    virtual: VirtualSchedule[str] = field(default_factory=VirtualSchedule, init=False, compare=False)
    _campaigns: dict[int, _Campaign] = field(default_factory=dict, init=False, compare=False)
    _tasks: dict[str, _Task] = field(default_factory=dict, init=False, compare=False)
    # By user and label, the last campaign of that label
    _last: dict[tuple[str, str], int] = field(default_factory=dict, init=False, compare=False)
    _numbers: int = field(default=0, init=False, compare=False)
    _endless: dict[int, int] = field(default_factory=dict, init=False, compare=False)  # campaign: such tasks in it
    _order: list[int] | None = field(default=None, init=False, compare=False)  # campaigns, until something changes

    def __post_init__(self) -> None:
        check_number(self.gap_s, "gap_s", above=0.0)
        check_demand(self.load, self.demand, "load")

    # -- who competes

    def choose(self, queue: Queue) -> Sequence[str]:
        """Take names in their order until they could fill the pool, kind by kind, as often as is wanted."""
        rooms, chosen = KindCapacity(queue.pools, self.load, self.demand, over=True), list[str]()
        for name in self.ranked():
            if len(chosen) == self.max_tasks or rooms.full:
                break
            if name in queue and rooms.take(name, queue.spec(name)):
                chosen.append(name)
        return chosen

    def ranked(self) -> Iterator[str]:
        """Give all tasks, the first in rank first: by virtual end, then creation, user and number of the campaign."""
        if self._order is None:
            ends, known = self.virtual.tag, self._campaigns
            rank = {
                number: (round(ends[number] * PRECISION), each.created_s, each.user) for number, each in known.items()
            }
            self._order = sorted(known, key=lambda number: (rank[number], number))
        return (name for number in self._order for _, _, name in self._campaigns[number].tasks)

    # -- updates

    def note(self, news: AdmissionUpdate) -> None:
        """Take in what happened."""
        self.virtual.advance(news.time_s, news.used)
        for name in news.finished:
            self._leave(name)
        for name in news.dropped:
            task = self._tasks[name]
            if not task.endless:
                self._remove(task, task.work * task.left)
            self._leave(name)
        for update in news.entered:
            self._enter(update, news.time_s)
        for update in news.changed:
            self._change(update)
        for number in [number for number in self._endless if self.virtual.tag[number] <= self.virtual.level]:
            self._prolong(number)

    def _enter(self, update: TaskInfo, now_s: float) -> None:
        spec = update.spec
        key = (spec.user, spec.campaign)
        number = self._last.get(key, -1)
        campaign = self._campaigns.get(number)
        if campaign is None or not (spec.campaign or now_s < campaign.created_s + self.gap_s):
            number, self._numbers = self._numbers, self._numbers + 1
            campaign = _Campaign(user=spec.user, label=spec.campaign, created_s=now_s)
            self._campaigns[number], self._last[key] = campaign, number
        task = _Task(campaign=number, number=self._numbers, work=_work(spec), endless=spec.work_samples is None)
        self._numbers += 1
        self._tasks[spec.name] = task
        insort(campaign.tasks, (task.work, task.number, spec.name))
        task.left = _left(update)
        task.added = task.work * task.left
        self.virtual.add(spec.user, number, task.added, self._share(spec.user))
        if task.endless:
            self._endless[number] = self._endless.get(number, 0) + 1
        self._order = None

    def _change(self, update: TaskInfo) -> None:
        """Learn how much of a task is left, and that it takes more work or less than was believed."""
        task = self._tasks[update.spec.name]
        campaign = self._campaigns[task.campaign]
        work, task.left = _work(update.spec), _left(update)
        if work == task.work:
            return
        entry = (task.work, task.number, update.spec.name)
        del campaign.tasks[bisect_left(campaign.tasks, entry)]
        insort(campaign.tasks, (work, task.number, update.spec.name))
        more, task.work = (work - task.work) * task.left, work
        if more > 0:
            self.virtual.add(campaign.user, task.campaign, more)
            task.added = (task.added or 0.0) + more
        else:
            self._remove(task, -more)
        self._order = None

    def _remove(self, task: _Task, work: float) -> None:
        """Take work of a task out of the virtual schedule, as far as it is in there."""
        added = task.added or 0.0
        work = min(work, added)
        task.added = added - work
        self.virtual.remove(self._campaigns[task.campaign].user, task.campaign, work)

    def _leave(self, name: str) -> None:
        task = self._tasks.pop(name)
        number = task.campaign
        campaign = self._campaigns[number]
        del campaign.tasks[bisect_left(campaign.tasks, (task.work, task.number, name))]
        if task.endless:
            self._endless[number] -= 1
            if not self._endless[number]:
                del self._endless[number]
        if not campaign.tasks:
            del self._campaigns[number]
            key = (campaign.user, campaign.label)
            if self._last.get(key) == number:
                del self._last[key]
            self.virtual.close(campaign.user, number)
        self._order = None

    def _prolong(self, number: int) -> None:
        """Let a campaign whose tasks have no end begin again, behind the others of its user."""
        campaign = self._campaigns.pop(number)
        work = sum(work for work, _, name in campaign.tasks if self._tasks[name].endless)
        again, self._numbers = self._numbers, self._numbers + 1
        self._campaigns[again] = campaign
        self._endless[again] = self._endless.pop(number)
        for _, _, name in campaign.tasks:
            task = self._tasks[name]
            task.campaign, task.added = again, task.work if task.endless else 0.0  # the others were served
        key = (campaign.user, campaign.label)
        if self._last.get(key) == number:
            self._last[key] = again
        self.virtual.add(campaign.user, again, work)
        self.virtual.close(campaign.user, number)
        self._order = None

    # -- what survives

    def kept(self) -> Mapping[str, Any]:
        """Give the books as plain data."""
        books = CampaignSnapshot(
            numbers=self._numbers,
            campaigns=self._campaigns,
            tasks=self._tasks,
            virtual=self.virtual.kept(),
            last=sorted(self._last.values()),
        )
        plain: dict[str, Any] = msgspec.to_builtins(books, str_keys=True)
        return plain

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Go on from books; users may have other shares from now on."""
        books = msgspec.convert(kept, CampaignSnapshot, str_keys=True)
        self._numbers, self._campaigns, self._tasks = books.numbers, books.campaigns, books.tasks
        self._last, self._endless, self._order = {}, {}, None
        for number in sorted(self._campaigns) if books.last is None else books.last:
            campaign = self._campaigns[number]
            self._last[campaign.user, campaign.label] = number
        for task in self._tasks.values():
            if task.added is None:
                task.added = task.work * task.left
        for number, campaign in sorted(self._campaigns.items()):
            endless = sum(self._tasks[name].endless for _, _, name in campaign.tasks)
            if endless:
                self._endless[number] = endless
        self.virtual.restore(books.virtual, books.virtual.users)
        for user in books.virtual.users:
            self.virtual.share(user, self._share(user))

    def _share(self, user: str) -> float:
        return self.entities[user].weight if user in self.entities else 1.0


def _work(spec: TaskSpec) -> float:
    """Give the node-seconds that a task would take from its begin on its smallest size, on the kind fastest for it."""
    if spec.work_samples is None:
        return ENDLESS_S * spec.min_nodes
    curves = spec.curves.values() or (spec.curve,)
    fastest = max(curve.speed(spec.min_nodes) for curve in curves)
    return spec.work_samples / fastest * spec.min_nodes if fastest > 0 else ENDLESS_S * spec.min_nodes


def _left(update: TaskInfo) -> float:
    whole, left = update.spec.work_samples, update.work_left_samples
    return 1.0 if whole is None or left is None else min(1.0, max(0.0, left / whole))
