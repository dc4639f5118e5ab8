"""Campaigns: a custom, stateful admission that follows OStrich's virtual fair schedule on a changing pool.

Use it by its path: ``--admission examples/admissions/campaigns.py:CampaignAdmission,load=2``.

A campaign is a set of tasks that one user submits together: a study, or the tasks of a few minutes. In a virtual
schedule, all users with unfinished work share by weight the node-time that tasks really use. A user's share serves
their campaigns, the oldest first. Campaigns compete by virtual finish time. So no user waits long for another user's
thousand tasks, and the first of two studies finishes before the second.

The virtual schedule needs work in node-seconds: for each task, the node-seconds that it would take on ``min_nodes``.
This is its smallest size and, because speed rises less than proportionally, about its lowest node-time. The number does
not depend on later allocations, so users cannot gain or lose a rank through nodes that other users leave.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify
from typing import Any, ClassVar, Final

import msgspec

from bftrain.deciding.admission import MAX, KindCapacity, check_demand, check_number
from bftrain.ports import Queue
from bftrain.values.events import AdmissionUpdate, TaskInfo
from bftrain.values.sharing import Entity
from bftrain.values.task import TaskSpec
from bftrain_datasets.scheduling.virtual_schedule import PRECISION, UserAccount, VirtualSchedule

GAP_S: Final = 600.0  # tasks submitted within this time after a campaign's first task belong to it
LOAD: Final = 1.0
ENDLESS_S: Final = 3600.0  # the work of an endless task, on its minimum; renewed each time it is served


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The saved state of a virtual schedule."""

    now_s: float
    level: float
    active_shares: float
    tag: dict[int, float]
    up_to: dict[int, float]
    users: dict[str, UserAccount]


class StoredSchedule(VirtualSchedule[str]):
    """A virtual schedule that outlives a restart, with shares that may change."""

    def share(self, user: str, share: float) -> None:
        """Change the share of a user from now on; the remaining work stays the same."""
        known = self._users.get(user)
        if known is None or known.share == share:
            return
        if known.active:
            known.zero += (self.level - known.base) * known.share
            known.base = self.level
            self.active_shares += share - known.share
        known.share = share
        if known.active:
            self._change(user, known.campaigns[0], 0.0)

    def kept(self) -> ScheduleSnapshot:
        """Return the complete state, with exact numbers."""
        return ScheduleSnapshot(
            now_s=self.now_s,
            level=self.level,
            active_shares=self.active_shares,
            tag=dict(self._tags),
            up_to=dict(self._up_to),
            users=dict(self._users),
        )

    def restore(self, kept: ScheduleSnapshot) -> None:
        """Restore a saved state."""
        self.now_s, self.level, self.active_shares = kept.now_s, kept.level, kept.active_shares
        self.tag = self._tags = dict(kept.tag)
        self._up_to = dict(kept.up_to)
        self._users = dict(kept.users)
        active = [(user, known) for user, known in self._users.items() if known.active]
        self._active = len(active)
        self._orders = max((known.order for known in self._users.values()), default=0)
        self._ends = [(self.tag[known.campaigns[-1]], user, known.order) for user, known in active]
        heapify(self._ends)


class _Task(msgspec.Struct, kw_only=True):
    """An unfinished task: its campaign, its work in node-seconds, and the fraction of the work that is left.

    ``added`` is its part of the campaign's virtual work in node-seconds: 0 for a served task in a campaign
    that restarted for its endless tasks. Missing in snapshots of earlier versions.
    """

    campaign: int
    number: int  # index by arrival
    work: float
    left: float = 1.0
    endless: bool = False
    added: float | None = None


class _Campaign(msgspec.Struct, kw_only=True):
    """A campaign with unfinished tasks; ``tasks`` are sorted by work, then number."""

    user: str
    label: str
    created_s: float
    tasks: list[tuple[float, int, str]] = msgspec.field(default_factory=list)


class CampaignSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state that a restart must preserve."""

    numbers: int
    campaigns: dict[int, _Campaign]
    tasks: dict[str, _Task]
    virtual: ScheduleSnapshot
    last: list[int] | None = None  # campaigns open to new tasks; old snapshots: None, the latest by user and label


@dataclass(slots=True)
class CampaignAdmission:
    """Tasks compete by their campaigns' virtual finish times, until they could fill ``load`` times the pool.

    Inside a campaign, the tasks with the least work are first. The limit matters: if all tasks competed, this ranking
    would have no effect.
    """

    max_tasks: int = 35
    gap_s: float = GAP_S
    load: float = LOAD
    demand: str = MAX
    entities: Mapping[str, Entity] = field(default_factory=dict)
    name: ClassVar[str] = "campaigns"
    virtual: StoredSchedule = field(default_factory=StoredSchedule, init=False, compare=False)
    _campaigns: dict[int, _Campaign] = field(default_factory=dict, init=False, compare=False)
    _tasks: dict[str, _Task] = field(default_factory=dict, init=False, compare=False)
    # The last campaign by user and label
    _last: dict[tuple[str, str], int] = field(default_factory=dict, init=False, compare=False)
    _numbers: int = field(default=0, init=False, compare=False)
    _endless: dict[int, int] = field(default_factory=dict, init=False, compare=False)  # endless tasks by campaign
    _order: list[int] | None = field(default=None, init=False, compare=False)  # cached ranking of campaigns

    def __post_init__(self) -> None:
        check_number(self.gap_s, "gap_s", above=0.0)
        check_demand(self.load, self.demand, "load")

    def choose(self, queue: Queue) -> Sequence[str]:
        """Return names in order until they could fill ``load`` times the pool, kind by kind."""
        rooms, chosen = KindCapacity(queue.pools, self.load, self.demand, over=True), list[str]()
        for name in self.ranked():
            if len(chosen) == self.max_tasks or rooms.full:
                break
            if name in queue and rooms.take(name, queue.spec(name)):
                chosen.append(name)
        return chosen

    def ranked(self) -> Iterator[str]:
        """Yield all tasks in order: by virtual end, then creation, user and number of the campaign."""
        if self._order is None:
            ends, known = self.virtual.tag, self._campaigns
            rank = {
                number: (round(ends[number] * PRECISION), each.created_s, each.user) for number, each in known.items()
            }
            self._order = sorted(known, key=lambda number: (rank[number], number))
        return (name for number in self._order for _, _, name in self._campaigns[number].tasks)

    def note(self, news: AdmissionUpdate) -> None:
        """Process an update."""
        self.virtual.advance(news.time_s, news.used)
        for name in news.finished:
            self._remove_task(name)
        for name in news.dropped:
            task = self._tasks[name]
            if not task.endless:
                self._remove_work(task, task.work * task.left)
            self._remove_task(name)
        for update in news.entered:
            self._add_task(update, news.time_s)
        for update in news.changed:
            self._update_task(update)
        for number in [number for number in self._endless if self.virtual.tag[number] <= self.virtual.level]:
            self._restart_endless(number)

    def _add_task(self, update: TaskInfo, now_s: float) -> None:
        spec = update.spec
        key = (spec.user, spec.campaign)
        number = self._last.get(key, -1)
        campaign = self._campaigns.get(number)
        if campaign is None or not (spec.campaign or now_s < campaign.created_s + self.gap_s):
            number, self._numbers = self._numbers, self._numbers + 1
            campaign = _Campaign(user=spec.user, label=spec.campaign, created_s=now_s)
            self._campaigns[number], self._last[key] = campaign, number
        task = _Task(campaign=number, number=self._numbers, work=_node_seconds(spec), endless=spec.work_samples is None)
        self._numbers += 1
        self._tasks[spec.name] = task
        insort(campaign.tasks, (task.work, task.number, spec.name))
        task.left = _fraction_left(update)
        task.added = task.work * task.left
        self.virtual.add(spec.user, number, task.added, self._share(spec.user))
        if task.endless:
            self._endless[number] = self._endless.get(number, 0) + 1
        self._order = None

    def _update_task(self, update: TaskInfo) -> None:
        """Update the fraction of a task that is left, and its work after new measurements."""
        task = self._tasks[update.spec.name]
        campaign = self._campaigns[task.campaign]
        work, task.left = _node_seconds(update.spec), _fraction_left(update)
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
            self._remove_work(task, -more)
        self._order = None

    def _remove_work(self, task: _Task, work: float) -> None:
        """Remove work of a task from the virtual schedule, limited to the work that it added."""
        added = task.added or 0.0
        work = min(work, added)
        task.added = added - work
        self.virtual.remove(self._campaigns[task.campaign].user, task.campaign, work)

    def _remove_task(self, name: str) -> None:
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

    def _restart_endless(self, number: int) -> None:
        """Restart a campaign of endless tasks, behind its user's other campaigns."""
        campaign = self._campaigns.pop(number)
        work = sum(work for work, _, name in campaign.tasks if self._tasks[name].endless)
        again, self._numbers = self._numbers, self._numbers + 1
        self._campaigns[again] = campaign
        self._endless[again] = self._endless.pop(number)
        for _, _, name in campaign.tasks:
            task = self._tasks[name]
            task.campaign, task.added = again, task.work if task.endless else 0.0  # tasks with an end were served
        key = (campaign.user, campaign.label)
        if self._last.get(key) == number:
            self._last[key] = again
        self.virtual.add(campaign.user, again, work)
        self.virtual.close(campaign.user, number)
        self._order = None

    def kept(self) -> Mapping[str, Any]:
        """Return the state as plain data."""
        state = CampaignSnapshot(
            numbers=self._numbers,
            campaigns=self._campaigns,
            tasks=self._tasks,
            virtual=self.virtual.kept(),
            last=sorted(self._last.values()),
        )
        plain: dict[str, Any] = msgspec.to_builtins(state, str_keys=True)
        return plain

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Restore the state; the users' weights may have changed since."""
        state = msgspec.convert(kept, CampaignSnapshot, str_keys=True)
        self._numbers, self._campaigns, self._tasks = state.numbers, state.campaigns, state.tasks
        self._last, self._endless, self._order = {}, {}, None
        for number in sorted(self._campaigns) if state.last is None else state.last:
            campaign = self._campaigns[number]
            self._last[campaign.user, campaign.label] = number
        for task in self._tasks.values():
            if task.added is None:
                task.added = task.work * task.left
        for number, campaign in sorted(self._campaigns.items()):
            endless = sum(self._tasks[name].endless for _, _, name in campaign.tasks)
            if endless:
                self._endless[number] = endless
        self.virtual.restore(state.virtual)
        for user in state.virtual.users:
            self.virtual.share(user, self._share(user))

    def _share(self, user: str) -> float:
        return self.entities[user].weight if user in self.entities else 1.0


def _node_seconds(spec: TaskSpec) -> float:
    """Return the node-seconds of a whole task at its smallest size, on its fastest kind."""
    if spec.work_samples is None:
        return ENDLESS_S * spec.min_nodes
    curves = spec.curves.values() or (spec.curve,)
    fastest = max(curve.speed(spec.min_nodes) for curve in curves)
    return spec.work_samples / fastest * spec.min_nodes if fastest > 0 else ENDLESS_S * spec.min_nodes


def _fraction_left(update: TaskInfo) -> float:
    whole, left = update.spec.work_samples, update.work_left_samples
    return 1.0 if whole is None or left is None else min(1.0, max(0.0, left / whole))
