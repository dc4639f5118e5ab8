"""Stretch of campaigns in a run under any admission, and a bound by the virtual schedule.

    bftrain replay log.npz --tasks tasks.toml -o out --metrics examples/metrics/campaigns.py:metric

A campaign is a set of tasks that a user submits together (docs/reference/objectives.md). Its stretch is its duration
over the duration with all idle nodes to itself, at least 1. In the virtual schedule, the node-time that tasks really
had is shared among all users with unserved campaigns. The bound is OStrich's (docs/how-to/schedule.md), applied to a
changing pool: a reference, not a guarantee. Runs with different admissions can be compared. :func:`campaigns_of`
returns a row for each campaign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.sharing import Entity
from bftrain_datasets.scheduling.virtual_schedule import UserVirtualSchedule
from bftrain_replay.run.result import ReplayResult
from bftrain_replay.run.tables import TaskRecord

Floats = NDArray[np.float64]

GAP_S: Final = 600.0  # tasks submitted within this time after a campaign's first task belong to it
LEAST_S: Final = 10.0  # minimum assumed duration of a campaign
ROUNDING: Final = 1e-9  # relative; the two sides of a comparison are sums of different numbers


class CampaignRow(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign; times are seconds since the log's start, ``None`` for events that did not happen."""

    number: int
    user: str
    campaign: str
    created_s: float
    tasks: int
    tasks_finished: int
    node_h: float
    end_s: float | None
    least_s: float | None = None
    stretch: float | None = None
    virtual_end_s: float | None
    rivals: float | None
    bound_s: float | None = None
    stretch_bound: float | None = None

    @property
    def within(self) -> bool | None:
        """Whether it met its bound; ``None`` if unfinished."""
        if self.end_s is None:
            return None
        return self.bound_s is None or self.end_s - self.created_s <= self.bound_s * (1 + ROUNDING)


def campaigns_of(result: ReplayResult) -> tuple[CampaignRow, ...]:
    """Compute the campaigns of the result of a replay or of rounds; empty if no task has a user or a campaign."""
    arrived = [task for task in result.tasks if task.submit_s <= result.simulated_s and task.state != "not_arrived"]
    if not any(task.user or task.campaign for task in arrived):
        return ()
    arrived.sort(key=lambda task: task.submit_s)
    members = _members(arrived)
    return tuple(_FairSchedule(arrived, members, result).rows())


def _members(tasks: Sequence[TaskRecord]) -> list[list[int]]:
    found: list[list[int]] = []
    last: dict[tuple[str, str], int] = {}
    for place, task in enumerate(tasks):
        key = (task.user, task.campaign)
        number = last.get(key, -1)
        if number < 0 or not _joins(task, [tasks[other] for other in found[number]]):
            number = last[key] = len(found)
            found.append([])
        found[number].append(place)
    return found


def _joins(task: TaskRecord, others: Sequence[TaskRecord]) -> bool:
    """Return whether a task belongs to its user's latest campaign of the same name (``others``: its tasks so far)."""
    if task.campaign:
        return any(other.finish_s is None or other.finish_s > task.submit_s for other in others)
    return task.submit_s < others[0].submit_s + GAP_S


class _FairSchedule:
    def __init__(self, tasks: Sequence[TaskRecord], members: list[list[int]], result: ReplayResult) -> None:
        self._tasks, self._members, self._result = tasks, members, result
        entities: Mapping[str, Entity] = result.settings.entities
        names = sorted({task.user for task in tasks})
        self._number = {name: number for number, name in enumerate(names)}
        self._shares = [entities[name].weight if name in entities else 1.0 for name in names]
        self._edges_s = np.append(result.times_s, result.simulated_s)
        durations = np.diff(self._edges_s)
        self._held = np.concatenate(([0.0], np.cumsum(result.used * durations)))  # node-seconds, up to each edge
        self._there = np.concatenate(([0.0], np.cumsum(result.pool * durations)))
        self._virtual = _ServedTime(self._shares, len(members))
        self._previous = [0.0] * len(members)

    def rows(self) -> Iterator[CampaignRow]:
        """Yield the rows."""
        self._run()
        level = self._virtual.level
        slack = ROUNDING * max(1.0, level)  # rounding: served and required work are sums of different numbers
        ends_s = self._virtual.times_of([tag - slack if tag > level else tag for tag in self._virtual.tag])
        created_s = np.array([self._tasks[places[0]].submit_s for places in self._members]).clip(min=0.0)
        known_ends = np.nan_to_num(ends_s, nan=self._result.simulated_s)
        most = self._virtual.most_shares(created_s, np.maximum(known_ends, created_s))
        for number, places in enumerate(self._members):
            tasks = [self._tasks[place] for place in places]
            yield self._row(number, tasks, float(ends_s[number]), float(most[number]))

    def _run(self) -> None:
        waiting = [(place, number) for number, places in enumerate(self._members) for place in places]
        waiting.sort(reverse=True)  # the first one last
        edges, counts, busy = self._edges_s.tolist(), [*self._result.used.tolist(), 0], 0
        for edge_s, count in zip(edges, counts, strict=True):
            while waiting and (came_s := max(self._tasks[waiting[-1][0]].submit_s, 0.0)) <= edge_s:
                self._virtual.advance(came_s, busy)
                self._submit(*waiting.pop())
            self._virtual.advance(edge_s, busy)
            busy = count

    def _submit(self, place: int, number: int) -> None:
        task = self._tasks[place]
        user = self._number[task.user]
        if self._members[number][0] == place:
            self._previous[number] = self._virtual.left(user)
        self._virtual.add(user, number, task.node_s)

    def _row(self, number: int, tasks: Sequence[TaskRecord], virtual_end_s: float, most_shares: float) -> CampaignRow:
        created_s = max(tasks[0].submit_s, 0.0)
        finished = [task.finish_s for task in tasks if task.finish_s is not None]
        node_s = math.fsum(task.node_s for task in tasks)
        end_s = max(finished) if len(finished) == len(tasks) else None
        row = CampaignRow(
            number=number,
            user=tasks[0].user,
            campaign=tasks[0].campaign,
            created_s=created_s,
            tasks=len(tasks),
            tasks_finished=len(finished),
            node_h=node_s / 3600.0,
            end_s=end_s,
            virtual_end_s=max(virtual_end_s, created_s) if math.isfinite(virtual_end_s) else None,
            rivals=most_shares / self._shares[self._number[tasks[0].user]],
        )
        return row if end_s is None else self._judged(row, tasks, end_s, node_s)

    def _judged(self, row: CampaignRow, tasks: Sequence[TaskRecord], end_s: float, node_s: float) -> CampaignRow:
        created_s, rivals = row.created_s, row.rivals or 0.0
        alone_s = (self._reached(self._there, created_s, node_s) or end_s) - created_s
        least_s = max(alone_s, LEAST_S, *(task.shortest_s or 0.0 for task in tasks))
        last_s = max(created_s, *(task.submit_s for task in tasks))
        waited_for = rivals * (self._previous[row.number] + node_s)
        poured_s = self._reached(self._held, last_s, waited_for)
        longest_s = max((task.finish_s or end_s) - max(task.submit_s, 0.0) - task.waited_s for task in tasks)
        bound_s = None if poured_s is None else poured_s - created_s + longest_s
        return msgspec.structs.replace(
            row,
            least_s=least_s,
            stretch=max(1.0, (end_s - created_s) / least_s),
            bound_s=bound_s,
            stretch_bound=None if bound_s is None else max(1.0, bound_s / least_s),
        )

    def _reached(self, counted: Floats, from_s: float, node_s: float) -> float | None:
        """Return when this many node-seconds more were served than up to a time; ``None`` for never."""
        wanted = float(np.interp(from_s, self._edges_s, counted)) + node_s
        slack = ROUNDING * max(1.0, float(counted[-1]))
        if wanted > counted[-1] + slack:
            return None
        place = int(np.searchsorted(counted, wanted - slack))
        if place == 0:
            return from_s
        before, after = counted[place - 1], counted[place]
        part = (wanted - before) / (after - before) if after > before else 1.0
        edge_s = self._edges_s[place - 1] + min(1.0, max(0.0, part)) * (self._edges_s[place] - self._edges_s[place - 1])
        return max(from_s, float(edge_s))


class _ServedTime(UserVirtualSchedule):
    def advance(self, to_s: float, busy: int) -> None:
        """Advance the time, with ``busy`` nodes allocated since the last call."""
        super(UserVirtualSchedule, self).advance(to_s, busy)


class StretchOfCampaigns(msgspec.Struct, frozen=True):
    """The metric ``campaigns``: stretch of campaigns, and the number that met their bound."""

    name: str = "campaigns"
    figures: tuple[str, ...] = (
        "campaigns",
        "campaigns_finished",
        "campaign_stretch_mean",
        "campaign_stretch_p95",
        "campaign_stretch_max",
        "campaigns_within_bound",
    )

    def measure(self, run: ReplayResult) -> Mapping[str, object]:
        """Compute the metric for a run."""
        found = campaigns_of(run)
        stretches = [row.stretch for row in found if row.stretch is not None]
        within = [row.within for row in found if row.within is not None]
        return {
            "campaigns": len(found),
            "campaigns_finished": len(stretches),
            "campaign_stretch_mean": math.fsum(stretches) / len(stretches) if stretches else None,
            "campaign_stretch_p95": float(np.percentile(stretches, 95)) if stretches else None,
            "campaign_stretch_max": max(stretches, default=None),
            "campaigns_within_bound": sum(within) / len(within) if within else None,
        }


metric: Final = StretchOfCampaigns()
