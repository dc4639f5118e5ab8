"""Main schedulers in their plainest form, as a reference for the real ones.

Everything counts in minutes, and every minute everything is planned again from scratch: no sorted ends, no profile of
steps, no shortcuts. The virtual fair schedule is poured minute by minute, in fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

STEPS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000)  # minutes


class SlowJob(NamedTuple):
    """A job; times are whole minutes, a limit of 0 is none."""

    submit: int
    run: int
    size: int
    limit: int
    user: int


@dataclass(eq=False)
class SlowCampaign:
    """One campaign: its work, node-seconds, and the level at which it ended virtually, if it did."""

    user: int
    created: int
    load: Fraction = Fraction(0)
    ended: Fraction | None = None


@dataclass
class SlowUser:
    """One user's part of the virtual schedule: all service, poured into the user's campaigns, the oldest first."""

    share: Fraction
    received: Fraction = Fraction(0)
    campaigns: list[SlowCampaign] = field(default_factory=list)

    def left(self, campaign: SlowCampaign) -> Fraction:
        """Return what is left of a campaign and of all before it."""
        until = self.campaigns.index(campaign) + 1
        return sum((each.load for each in self.campaigns[:until]), Fraction(0)) - self.received

    @property
    def active(self) -> bool:
        return bool(self.campaigns) and self.left(self.campaigns[-1]) > 0


class SlowVirtual:
    """The virtual fair schedule of OStrich."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.users = [SlowUser(Fraction(share)) for share in shares]
        self.level = Fraction(0)

    def advance(self, seconds: int, busy: int) -> None:
        left_s = Fraction(seconds)
        while left_s > 0:
            active = [user for user in self.users if user.active]
            if not active:
                return
            per_share = Fraction(max(busy, 1)) / sum(user.share for user in active)
            ends_s = [
                user.left(each) / (per_share * user.share)
                for user in active
                for each in user.campaigns
                if user.left(each) > 0
            ]
            step_s = min([left_s, *ends_s])
            for user in active:
                user.received += per_share * user.share * step_s
            self.level += per_share * step_s
            left_s -= step_s
            self.settle()

    def settle(self) -> None:
        """Note which campaigns end; what a user was served too much is lost."""
        for user in self.users:
            for each in user.campaigns:
                if user.left(each) > 0:
                    each.ended = None
                elif each.ended is None:
                    each.ended = self.level
            user.received = min(user.received, sum((each.load for each in user.campaigns), Fraction(0)))

    def change(self, campaign: SlowCampaign, work: int) -> None:
        """Add node-seconds to a campaign, or take them away."""
        user = self.users[campaign.user]
        if campaign not in user.campaigns:
            user.campaigns.append(campaign)
        campaign.load += work
        self.settle()

    def end(self, campaign: SlowCampaign) -> Fraction:
        """Return the level at which a campaign ends virtually."""
        user = self.users[campaign.user]
        return campaign.ended if campaign.ended is not None else self.level + user.left(campaign) / user.share


class SlowMachine:
    """One simulation, minute by minute."""

    def __init__(
        self,
        jobs: Sequence[SlowJob],
        nodes: int,
        estimates: str,
        *,
        depth: int = 50,
        gap: int = 10,
        shares: Sequence[float] = (),
    ) -> None:
        self.jobs, self.nodes, self.estimates, self.depth, self.gap = jobs, nodes, estimates, depth, gap
        self.users = sorted({job.user for job in jobs})
        self.shares = dict(zip(self.users, shares or [1.0] * len(self.users), strict=True))
        self.now = 0
        self.start: list[int | None] = [None] * len(jobs)
        self.believed = [0] * len(jobs)
        self.steps = [0] * len(jobs)
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.usage = dict.fromkeys(self.users, 0)
        self.virtual = SlowVirtual([self.shares[user] for user in self.users])
        self.campaign_of: dict[int, SlowCampaign] = {}
        self.last_campaign: dict[int, SlowCampaign] = {}

    def run(self, policy: str) -> list[int]:
        """Return the minute at which each job starts."""
        arrivals = sorted(range(len(self.jobs)), key=lambda job: self.jobs[job].submit)
        while arrivals or self.waiting or self.running:
            ended = sorted(job for job in self.running if self.at(job) + self.jobs[job].run == self.now)
            for job in ended:
                self.running.remove(job)
                spare = (self.believed[job] - self.jobs[job].run) * 60 * self.jobs[job].size
                self.virtual.change(self.campaign_of[job], -spare)
            overran = [job for job in self.running if self.at(job) + self.believed[job] == self.now]
            for job in overran:
                self.raise_estimate(job)
            new = [job for job in arrivals if self.jobs[job].submit == self.now]
            for job in new:
                arrivals.remove(job)
                self.submit(job)
            if ended or overran or new or policy in {"fcfs", "easy"}:
                for job in getattr(self, policy.replace("-", "_"))():
                    self.waiting.remove(job)
                    self.running.append(job)
                    self.start[job] = self.now
            busy = sum(self.jobs[job].size for job in self.running)
            self.virtual.advance(60, busy)
            for job in self.running:
                self.usage[self.jobs[job].user] += self.jobs[job].size
            self.now += 1
        return [start for start in self.start if start is not None]

    def at(self, job: int) -> int:
        start = self.start[job]
        assert start is not None
        return start

    def submit(self, job: int) -> None:
        """Add a job to the queue, and to its campaign."""
        row = self.jobs[job]
        known = row.limit or row.run
        if self.estimates == "actual":
            known = row.run
        self.believed[job] = known
        self.waiting.append(job)
        last = self.last_campaign.get(row.user)
        if last is None or row.submit >= last.created + self.gap:
            last = self.last_campaign[row.user] = SlowCampaign(self.users.index(row.user), row.submit)
        self.campaign_of[job] = last
        self.virtual.change(last, known * 60 * row.size)

    def raise_estimate(self, job: int) -> None:
        row, ran = self.jobs[job], self.believed[job]
        self.steps[job] += 1
        raised = ran + STEPS[self.steps[job] - 1]
        self.virtual.change(self.campaign_of[job], (raised - ran) * 60 * row.size)
        self.believed[job] = raised

    def used(self, minute: int, promised: Iterable[int] = (), begins: dict[int, int] | None = None) -> int:
        """Count the nodes that are believed to be in use in a minute, by what runs and by what is planned."""
        begins = begins or {}
        running = sum(
            self.jobs[job].size for job in self.running if self.at(job) <= minute < self.at(job) + self.believed[job]
        )
        planned = sum(
            self.jobs[job].size for job in promised if begins[job] <= minute < begins[job] + self.believed[job]
        )
        return running + planned

    def earliest(self, job: int, begins: dict[int, int]) -> int:
        """Return the first minute from which a job fits, beside the others that begin as promised."""
        others = [each for each in begins if each != job]
        size, minute = self.jobs[job].size, self.now
        while any(
            self.used(later, others, begins) + size > self.nodes for later in range(minute, minute + self.believed[job])
        ):
            minute += 1
        return minute

    def free(self, started: Iterable[int] = ()) -> int:
        return self.nodes - sum(self.jobs[job].size for job in (*self.running, *started))

    def fcfs(self) -> list[int]:
        started: list[int] = []
        for job in self.waiting:
            if self.jobs[job].size > self.free(started):
                break
            started.append(job)
        return started

    def easy(self) -> list[int]:
        """Start in order, then try for each other job whether the head would start any later for it."""
        started = self.fcfs()
        rest = [job for job in self.waiting if job not in started]
        if not rest:
            return started
        head = rest[0]
        promised = self.head_starts(head, started)
        for job in rest[1:]:
            if self.jobs[job].size <= self.free(started) and self.head_starts(head, [*started, job]) <= promised:
                started.append(job)
        return started

    def head_starts(self, head: int, started: Sequence[int]) -> int:
        """Return the first minute in which there is room for the head, if nothing else starts."""
        begins = dict.fromkeys(started, self.now)
        minute = self.now
        while self.used(minute, started, begins) + self.jobs[head].size > self.nodes:
            minute += 1
        return minute

    def fairshare(self) -> list[int]:
        oldest = {user: next(job for job in self.waiting if self.jobs[job].user == user) for user in self.waiters()}
        ranked = sorted(oldest, key=lambda user: (self.usage[user] * 60 / self.shares[user], oldest[user]))
        return self.backfilled([job for user in ranked for job in self.waiting if self.jobs[job].user == user])

    def waiters(self) -> set[int]:
        return {self.jobs[job].user for job in self.waiting}

    def ostrich_fifo(self) -> list[int]:
        """Rank campaigns by their virtual end, and their jobs by submission."""
        return self.ostrich(by_estimate=False)

    def ostrich(self, *, by_estimate: bool = True) -> list[int]:
        """Rank campaigns by their virtual end, and their jobs by estimate."""

        def rank(job: int) -> tuple[int, ...]:
            campaign = self.campaign_of[job]
            first = min(each for each in self.campaign_of if self.campaign_of[each] is campaign)
            return (
                round(self.virtual.end(campaign) * 1_000_000),
                campaign.created,
                campaign.user,
                first,
                self.believed[job] if by_estimate else 0,
                job,
            )

        return self.backfilled(sorted(self.waiting, key=rank))

    def backfilled(self, ranked: Sequence[int]) -> list[int]:
        """Start in this order; from the first that has to wait on, plan each of some jobs beside those before it."""
        started: list[int] = []
        for place, job in enumerate(ranked):
            if self.jobs[job].size <= self.free(started):
                started.append(job)
                continue
            begins = dict.fromkeys(started, self.now)
            for each in ranked[place : place + self.depth]:
                begins[each] = self.earliest(each, begins)
                if begins[each] == self.now:
                    started.append(each)
            break
        return started
