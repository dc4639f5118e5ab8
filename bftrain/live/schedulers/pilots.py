"""Schedulers that are polled: pilot jobs under any batch scheduler, and schedulers whose nodes are only watched.

Polls run at regular intervals, after hints, and immediately after a hook report. Pilots are kept in stock, found again
after a restart, and given back. Each round starts from the scheduler's list of our jobs alone: a restart of the daemon
or controller needs no saved state.

A watched scheduler needs read access alone: agents wait on every node, and its state of nodes decides. A starting job
takes its nodes before the next poll.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bftrain.errors import BadValue, NotAvailable
from bftrain.live import timeouts
from bftrain.live.schedulers.backend import (
    ALIVE,
    LATER,
    Command,
    CommandFailed,
    CommandRunner,
    Pilot,
    PilotBackend,
    PilotOrder,
    PilotState,
    Trouble,
    found_all,
    log_folder,
)
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
    FindingState,
    HooksView,
    NotNegative,
    PollSettings,
    Positive,
    Post,
    Remark,
    Scheduler,
    SchedulerFacts,
    Site,
    SiteFinding,
    Taken,
    fine,
    problem,
)
from bftrain.live.schedulers.hooks import HookNews, examine_spool, listening
from bftrain.live.schedulers.policy import TURNS, PilotPolicy, PilotPolicySettings
from bftrain.node_units import node_of
from bftrain.nodesets import fold
from bftrain.ports import Availability
from bftrain.text_formats import counted

_MINUTE_S: Final = 60.0


class PolledScheduler(Scheduler):
    """Polls in rounds, and posts each remark once while its text stays the same."""

    def __init__(self, name: str, settings: PollSettings, run: CommandRunner) -> None:
        self.name = name
        self._polls, self._run = settings, run
        self._post: Post = lambda _: None
        self._hinted = asyncio.Event()
        self._remarked: dict[str, str] = {}  # topic -> last remark
        self._hook_counts: Counter[str] = Counter()
        self._last_hook_s: float | None = None  # seconds since 1970

    @abstractmethod
    async def _round(self, agent: AgentOrder) -> float:
        """Poll and act; return the seconds until the next poll at the latest."""

    @abstractmethod
    async def _examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the settings of the scheduler."""

    @abstractmethod
    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Apply reports of hooks."""

    def _retry_s(self, failures: int) -> float:
        """Return the seconds until the next poll, after a failed poll that followed ``failures`` failed ones."""
        return min(timeouts.TIMEOUTS.scheduler_retry_most_s, self._polls.poll_s * 2.0**failures)

    def facts(self) -> SchedulerFacts:
        """Return hook counts, and the number of commands."""
        counts = dict(self._hook_counts)
        return SchedulerFacts(
            hooks=HooksView(messages=counts, last_s=self._last_hook_s) if self._polls.spool else None,
            commands_a_minute=self._run.in_last_minute,
            commands_limits={"at_rest": _MINUTE_S / self._polls.poll_s},
        )

    async def examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the settings of the scheduler, and the spool of hooks."""
        found: Sequence[SiteFinding]
        try:
            found = await self._examine(agent)
        except CommandFailed as error:
            fix = "run this where its commands work; bftrain doctor tests them"
            found = (problem("scheduler", NotAvailable(f"{self.name} does not answer: {error}", fix=fix)),)
        except NotAvailable as error:
            found = (problem("scheduler", error),)
        return (*found, examine_spool(self._polls.spool, self._polls.spool_writers))

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Poll, and post changes."""
        self._post = post
        for text in filter(None, self._remarked.values()):  # remarks found by ``check``
            post(Remark(text=text))
        failures = 0
        with listening(self._polls.spool, self._polls.spool_writers, self._count, post):
            while True:
                self._hinted.clear()
                try:
                    again_s = await self._round(agent)
                    if self._remarked.pop("controller", ""):
                        post(Remark(text=f"{self.name} answers again"))
                    failures = 0
                except CommandFailed as error:
                    self._remark("controller", f"{self.name} does not answer: {error}")
                    again_s, failures = self._retry_s(failures), min(failures + 1, 10)
                await self._pause(again_s, listen=not failures)

    def _count(self, heard: Sequence[HookNews]) -> None:
        if known := [one.what for one in heard if one.what != "lost"]:
            self._hook_counts.update(known)
            self._last_hook_s = time.time()
        self._hear(heard)

    async def _pause(self, seconds: float, *, listen: bool) -> None:
        """Wait until the time or the next hint, with a minimum between two polls."""
        gap_s = min(timeouts.TIMEOUTS.look_gap_s, seconds)
        await asyncio.sleep(gap_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - gap_s):
                await (self._hinted.wait() if listen else asyncio.sleep(seconds))

    def _remark(self, topic: str, text: str) -> None:
        if self._remarked.get(topic, "") != text:
            self._remarked[topic] = text
            if text:
                self._post(Remark(text=text))


class WatchSettings(PollSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of watched schedulers."""

    poll_s: Positive = 2.0


class NodeWatch(PolledScheduler):
    """A scheduler that is only watched: its idle nodes are used, and agents already run on all nodes.

    ``read`` parses the idle nodes in the output of ``command``; ``remedy`` helps if that command is missing.
    """

    keep_workers_s: float | None = 0.0  # only the daemon knows that a job starts, so workers stop without it

    def __init__(
        self,
        name: str,
        command: Command,
        read: Callable[[str], frozenset[str]],
        settings: WatchSettings,
        remedy: str,
        run: CommandRunner | None = None,
    ) -> None:
        super().__init__(name, settings, run or CommandRunner(timeout_s=settings.command_timeout_s))
        self._command, self._read, self._remedy = command, read, remedy
        self._allowed: frozenset[str] = frozenset()
        self._starting: set[str] = set()  # nodes with job starts since the last poll
        self._ended: dict[str, float] = {}  # nodes of finished jobs that are not idle yet -> since when

    def available(self) -> Availability:
        """Return whether the command is installed."""
        return found_all(self._command.argv[:1], self._remedy)

    async def _idle(self) -> frozenset[str]:
        return self._read(await self._run(self._command))

    async def _examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:  # noqa: ARG002 - agents run on all nodes already
        idle = await self._idle()
        return (fine("scheduler", f"{self.name} answers; {counted(len(idle), 'node')} idle now"),)

    async def _round(self, agent: AgentOrder) -> float:  # noqa: ARG002 - as above
        self._starting.clear()
        idle = await self._idle() - self._starting  # jobs that started during the query count
        before, self._allowed = self._allowed, idle
        if gone := before - idle:
            self._post(Taken(nodes=tuple(sorted(gone))))
        if came := idle - before:
            self._post(Allowed(nodes=tuple(sorted(came))))
        return min(self._polls.poll_s, self._until_tidy_s())

    async def look(self) -> frozenset[str] | None:
        """Return the idle nodes."""
        try:
            idle = await self._idle() - self._starting
        except CommandFailed:
            return None
        self._allowed |= idle  # our nodes from now on, so a loss is reported
        return idle

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Ignore the request: nodes are not reserved."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Return immediately: the scheduler can use its nodes at any time."""

    async def leave(self) -> None:
        """Return immediately: this scheduler started no agents."""

    def _until_tidy_s(self) -> float:
        """Return when to poll again after hooks reported an end but the node is not idle yet: soon, then less often."""
        now = time.monotonic()
        self._ended = {
            node: since
            for node, since in self._ended.items()
            if node not in self._allowed and now - since < timeouts.TIMEOUTS.node_tidying_s
        }
        return max(timeouts.TIMEOUTS.look_gap_s, now - max(self._ended.values())) if self._ended else math.inf

    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Return nodes where a job starts; poll immediately after an exit, as another job may have started."""
        self._starting.update(node for one in heard if one.what == "start" for node in one.nodes)
        if taken := self._allowed & self._starting:
            self._allowed -= taken
            self._post(Taken(nodes=tuple(sorted(taken))))
        now = time.monotonic()
        for one in heard:
            if one.what == "end":
                self._ended |= dict.fromkeys(one.nodes, now)
            elif one.what == "start":
                self._ended = {node: since for node, since in self._ended.items() if node not in one.nodes}
        if any(one.what != "ending" for one in heard):
            self._hinted.set()


ENDED_ITSELF: Final = frozenset({PilotState.LEFT, PilotState.FAILED})
_BLOCKS: Final = re.compile(r"(QOS|Assoc|Account|Partition|JobHeld|Invalid|BadConstraints)\w*")
_TOO_LONG: Final = re.compile(r"TimeLimit|MaxWall")
_NEWS_S: Final = 30.0  # a plan that moved by less is no news
_Length = Annotated[float, Meta(ge=60, le=1e15)]


class PilotSettings(PilotPolicySettings, frozen=True, kw_only=True):
    """Settings of all schedulers with pilots."""

    options: tuple[str, ...] = ()  # extra arguments of the command that submits pilots, such as --gres=gpu:4
    # Time limits of pilots, in seconds
    lengths_s: Annotated[tuple[_Length, ...], Meta(min_length=1)] = (86_400.0, 3_600.0, 600.0)
    plan_poll_s: NotNegative = 120.0  # interval of queries for planned jobs and drained nodes; 0: never


class PilotJobs(PolledScheduler):
    """A scheduler that provides nodes through pilots."""

    agents_suffice = True

    def __init__(
        self, batch: PilotBackend, settings: PilotSettings, site: Site, run: CommandRunner | None = None
    ) -> None:
        check_site(site)
        super().__init__(
            batch.name, settings, run or CommandRunner(timeout_s=settings.command_timeout_s, more=batch.variables)
        )
        self.unit = batch.unit
        self._batch, self._settings, self._site = batch, settings, site
        self._without: frozenset[str] = frozenset()  # drained nodes, by their operators
        self._nodes: frozenset[str] = frozenset()  # all known nodes
        self._stock, self._busy = PilotPolicy(settings, together=batch.together), asyncio.Lock()
        self._announced: dict[str, float | None] = {}  # node -> expected time of its loss
        self._known: dict[str, Pilot] = {}
        self._noticed: dict[str, float] = {}  # node -> when the scheduler announced that it takes it
        self._plans: Mapping[str, float] = {}
        self._plans_at = self._limits_at = -float("inf")
        self._drained: Mapping[str, str] = {}  # nodes that administrators empty, such as for maintenance -> reason
        self._longest_s, self._leaving, self._too_long = LATER, False, False
        self._cluster = ""  # the machine's name, if known

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Keep at most ``nodes`` pilots, and no pilots on the nodes ``without``."""
        self._stock.want(nodes)
        self._without = frozenset(without)
        self.hint()

    def hint(self) -> None:
        """Look soon."""
        self._hinted.set()

    def noticed(self, node: str) -> None:
        """Record that the scheduler terminates the node's current pilot."""
        self._noticed[node] = time.time()

    def available(self) -> Availability:
        """Return whether the commands of the scheduler are installed."""
        return self._batch.available()

    def facts(self) -> SchedulerFacts:
        """Return facts on pilots and their nodes."""
        found = Counter(str(pilot.state) for pilot in self._known.values())
        settings, (poll, plan, limits) = self._settings, self._batch.commands
        at_rest = (poll + bool(settings.reserve)) / settings.poll_s + limits / timeouts.TIMEOUTS.limits_s
        at_rest += plan / settings.plan_poll_s if settings.plan_poll_s else 0.0
        return msgspec.structs.replace(
            super().facts(),
            cluster=self._cluster,
            nodes=self._nodes,
            pilots={str(state): found[str(state)] for state in PilotState if state in ALIVE},
            partitions=self._batch.partitions,
            commands_limits={"at_rest": _MINUTE_S * at_rest, "submissions": settings.submits_per_min},
        )

    def gpus_of(self, node: str) -> float:  # noqa: ARG002 - equal for all pilots
        """Return the GPUs that a pilot requests; 0 if unknown."""
        return self._batch.gpus

    def to_leave(self) -> frozenset[str]:
        """Return the nodes that administrators of the scheduler drain: they are not to be used now."""
        slots = (name for name in self._announced if node_of(name) in self._drained) if self._drained else ()
        return frozenset(self._drained).union(slots)

    async def check(self, agent: AgentOrder) -> None:
        """Raise ``NotAvailable`` if pilots can never work with these settings; a controller may be down for now."""
        with suppress(CommandFailed):
            async with self._busy:
                await self._learn_limits(time.monotonic(), at_start=True)
            (order, *_) = self._orders(self._batch.script(agent, self._site), time.monotonic())
            if why := await self._batch.refused(self._run, order):
                fix = "see the settings in [scheduler]"
                raise NotAvailable(f"the scheduler rejects pilots: {why}", where=f"scheduler '{self.name}'", fix=fix)

    async def _examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the partition or queue, its preemption and limits, and a submission."""
        limits = await self._batch.limits(self._run)
        self._stock.limit(limits)
        (order, *_) = self._orders(self._batch.script(agent, self._site), time.monotonic())
        why = await self._batch.refused(self._run, order)
        found = [problem("preemption", one) for one in limits.problems]
        found += [SiteFinding(topic="preemption", state=FindingState.WARNING, detail=one) for one in limits.remarks]
        nodes = f"; it has {counted(len(limits.nodes), 'node')}" if limits.nodes else ""
        bounds = f"{_bound(limits.running)} running, {_bound(limits.submitted)} submitted"
        return (
            fine("scheduler", f"{limits.cluster or self.name} answers{nodes}"),
            *(found or [fine("preemption", "jobs of other users preempt pilots immediately")]),
            fine("limits", f"pilots: {bounds}, each up to {_bound(limits.longest_s / 3600)} h"),
            problem("submission", NotAvailable(f"pilots are rejected: {why}", fix="change [scheduler]"))
            if why
            else fine("submission", f"{self.name} accepts pilots"),
        )

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Keep the stock of pilots, and post changes of their states."""
        log_folder(self._site).mkdir(mode=0o700, parents=True, exist_ok=True)
        await super().run(post, agent)

    def _retry_s(self, failures: int) -> float:
        return min(timeouts.TIMEOUTS.pilot_retry_s, 2.0**failures)

    async def look(self) -> frozenset[str] | None:
        """Return the nodes with running pilots."""
        try:
            return frozenset(held_nodes(await self._ask()))
        except CommandFailed:
            return None

    async def give_back(self, nodes: Collection[str]) -> None:
        """Cancel the waiting pilots, which would immediately take the nodes, and then the pilots on these nodes.

        The next round submits missing pilots again, but not to drained nodes.
        """
        async with self._busy:
            try:
                pilots = await self._ask()
                here = [one.id for one in pilots if one.node in nodes and one.state in ALIVE]
                waiting = [one.id for one in pilots if one.state is PilotState.WAITING]
                for ids in filter(None, (waiting, here) if here else ()):
                    await self._batch.cancel(self._run, ids)
            except CommandFailed as error:
                self._remark("cancel", f"nodes are not given back yet: {error}")
        self.hint()

    async def leave(self) -> None:
        """Cancel all pilots, and wait until they have exited."""
        self._leaving, deadline = True, time.monotonic() + timeouts.TIMEOUTS.pilots_gone_s
        async with self._busy:
            while True:
                try:
                    if not await self._cancel_all():
                        return
                except CommandFailed as error:
                    self._remark("cancel", f"pilots are not cancelled yet: {error}")
                if time.monotonic() > deadline:
                    fix = f"cancel the jobs named {job_name(self._site)}"
                    raise NotAvailable("some pilots are still there", where=self.name, fix=fix)
                await asyncio.sleep(timeouts.TIMEOUTS.look_gap_s)

    async def _ask(self) -> Sequence[Pilot]:
        """List the pilots of our state directory; pilots of other directories are left alone."""
        pilots = await self._batch.pilots(self._run, job_name(self._site))
        self._remark("others", of_others(pilots, self._site))
        return [one for one in pilots if is_ours(one, self._site)]

    async def _cancel_all(self) -> bool:
        """Cancel all pilots; return whether there were any."""
        if ids := [pilot.id for pilot in await self._ask() if pilot.state in ALIVE]:
            await self._batch.cancel(self._run, ids)
        return bool(ids)

    async def _round(self, agent: AgentOrder) -> float:
        async with self._busy:
            return await self._look_and_act(self._batch.script(agent, self._site))

    async def _look_and_act(self, script: str) -> float:
        """List pilots, post changes, submit and cancel; return the seconds until the next poll at the latest."""
        now = time.monotonic()
        await self._learn_limits(now)
        pilots = await self._listed()
        if self._settings.plan_poll_s and now - self._plans_at >= self._settings.plan_poll_s:
            self._plans_at, self._plans = now, {}
            with suppress(CommandFailed):  # plans for other jobs are optional
                self._plans = await self._batch.plans(self._run, job_name(self._site))
            with suppress(CommandFailed):  # retried with the next plans
                await self._find_drained(held_nodes(pilots))
        self._tell(pilots)
        if self._leaving:
            return self._settings.poll_s
        others = await self._batch.waiting_jobs(self._run)
        idle = len(await self._batch.idle(self._run)) if self._settings.reserve or others else None
        orders = self._orders(script, now)
        marks = [one.mark for one in orders]
        moves = self._stock.moves(now, time.time(), pilots, marks=marks, idle=idle, others=others)
        if moves.cancel:
            await self._batch.cancel(self._run, moves.cancel)
        await self._submit(orders, moves.submit, pilots)
        self._remark("failing", failing(pilots, log_folder(self._site)) if self._stock.failing else "")
        why = blocked(pilots) or ("" if self._announced else self._remarked.get("blocked", ""))
        long = too_long(pilots)
        if (why and not self._remarked.get("blocked")) or (long and not self._too_long):
            self._limits_at = -math.inf  # limits have changed since the last read
        self._too_long = long
        self._remark("blocked", why)
        self._remark("turns", TURNS if self._stock.takes_turns else "")
        return min(1.0 if any(moves.submit) else moves.again_s, self._settings.poll_s)

    async def _submit(self, orders: Sequence[PilotOrder], counts: Sequence[int], pilots: Sequence[Pilot]) -> None:
        """Submit pilots; if the limit for one length is reached, try shorter pilots."""
        found = [pilot.mark for pilot in pilots if pilot.state in ALIVE]
        alive, marks = len(found), set(found)
        limit: CommandFailed | None = None
        longest: PilotOrder | None = orders[0] if orders else None  # longest pilot that may be accepted
        try:
            for place, (order, count) in enumerate(zip(orders, counts, strict=True)):
                done, error = await self._submit_length(order, count, at_once=count if limit is None else 1)
                alive += done
                if error is not None:
                    limit = error
                    if done or marks.intersection(one.mark for one in orders[: place + 1]):
                        longest = None  # there are some as long, so it is their number
                    elif longest is not None:
                        longest = orders[min(place + 1, len(orders) - 1)]
                elif done and limit is not None and longest is not None:
                    # A single extra pilot was accepted, so the length was the problem; retried after the next read
                    self._remark("length", f"pilots must not be longer than {longest.seconds:g} s: {limit}")
                    self._longest_s = min(self._longest_s, longest.seconds)
                    limit = None
        except CommandFailed as error:
            self._limits_at = -math.inf  # read before the next try
            self._stock.failed(time.monotonic(), self._batch.trouble(error), alive)
            self._remark("submit", f"pilots cannot be submitted: {error}")
            return
        if limit is not None:
            self._stock.failed(time.monotonic(), Trouble.LIMIT, alive)
            if not alive:
                self._remark("submit", f"pilots cannot be submitted: {limit}")

    async def _submit_length(self, order: PilotOrder, count: int, *, at_once: int) -> tuple[int, CommandFailed | None]:
        """Submit pilots of equal length; return their number, and the error if even a single pilot is rejected."""
        done = 0
        while done < count and self._stock.may_submit:
            some = min(count - done, at_once)
            try:
                more = await self._batch.submit(self._run, order, some)
            except CommandFailed as error:
                self._stock.submitted(0)
                if self._batch.trouble(error) is not Trouble.LIMIT:
                    raise
                if some == 1:
                    return done, error
                at_once = some // 2  # fewer may still be allowed
                continue
            self._stock.submitted(more)
            self._remark("submit", "")
            done += more
        return done, None

    async def _listed(self) -> Sequence[Pilot]:
        """List our pilots, including pilots that vanished without a final state."""
        pilots = list(await self._ask())
        listed = {pilot.id: pilot for pilot in pilots}
        for id_, pilot in self._known.items():
            if id_ not in listed and pilot.state in ALIVE and pilot.node:
                pilots.append(msgspec.structs.replace(pilot, state=PilotState.LEFT, end_s=time.time()))
        for place, pilot in enumerate(pilots):
            # An exit after a notice counts as preempted, although the scheduler reports a normal exit: the agent left
            # within its grace period
            if pilot.state in ENDED_ITSELF and pilot.start_s <= self._noticed.get(pilot.node, -math.inf):
                pilots[place] = msgspec.structs.replace(pilot, state=PilotState.TAKEN)
        self._known = listed
        self._nodes = self._nodes.union(node_of(pilot.node) for pilot in pilots if pilot.node)
        return pilots

    async def _learn_limits(self, now: float, *, at_start: bool = False) -> None:
        if now - self._limits_at < timeouts.TIMEOUTS.limits_s:
            return
        try:
            limits = await self._batch.limits(self._run)
            if limits.problems:
                raise limits.problems[0]
        except NotAvailable as unfit:  # pilots would be in others' way
            if at_start or isinstance(unfit, CommandFailed):
                raise  # fixable settings error; agents and tasks keep waiting meanwhile
            try:
                await self._cancel_all()
            except CommandFailed as error:
                self._remark("cancel", f"pilots block other jobs and are not cancelled yet: {error}")
            else:
                self._known = {}
                self._tell(())
            raise
        self._stock.limit(limits)
        self._limits_at, self._longest_s, self._cluster = now, limits.longest_s, limits.cluster
        self._nodes = self._nodes.union(limits.nodes)
        self._remark("limits", "; ".join(limits.remarks))

    def _orders(self, script: str, now: float) -> list[PilotOrder]:
        """Build the orders, the longest first."""
        # Schedulers refuse an order that names a node they do not know. One GPU of a node cannot be avoided alone
        without = self._without.union(self._stock.avoided(now), self._drained)
        avoid = tuple(sorted(self._nodes.intersection(map(node_of, without)) if self._batch.avoids else ()))
        name = job_name(self._site)
        lengths = sorted({min(length, self._longest_s) for length in self._settings.lengths_s}, reverse=True)
        orders = []
        for rank, seconds in enumerate(lengths):
            digest = hashlib.sha256(repr((script, avoid, seconds, self._settings)).encode()).hexdigest()[:12]
            mark = mark_of(self._site, digest)
            orders.append(PilotOrder(name=name, mark=mark, script=script, seconds=seconds, rank=rank, avoid=avoid))
        return orders

    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Apply hook reports: a finished pilot has lost its node; other jobs' exits may leave a node idle."""
        numbers = {pilot.number or pilot.id: pilot.node for pilot in held_nodes(self._known.values()).values()}
        over = {numbers[one.job] for one in heard if one.what in {"ending", "end"} and one.job in numbers}
        gone = tuple(sorted(over.intersection(self._announced)))
        for node in gone:
            del self._announced[node]
        if gone:
            self._post(Taken(nodes=gone))
        if any(one.what in {"end", "lost"} for one in heard):
            self.hint()

    def _tell(self, pilots: Sequence[Pilot]) -> None:
        """Post changes: new nodes, lost nodes, and until when they are ours."""
        held = held_nodes(pilots)
        gone = tuple(sorted(node for node in self._announced if node not in held))
        if gone:
            self._post(Taken(nodes=gone))
        groups: dict[float | None, list[str]] = {}
        message: dict[str, float | None] = {}
        for node, pilot in held.items():
            until = min((at for at in (pilot.end_s, self._plans.get(node_of(node))) if at is not None), default=None)
            before = self._announced.get(node)
            near = until is not None and before is not None and abs(until - before) < _NEWS_S
            known = node in self._announced and (until == before or near)
            message[node] = before if known else until
            if not known:
                groups.setdefault(until, []).append(node)
        self._announced = message
        for until, nodes in groups.items():
            self._post(Allowed(nodes=tuple(sorted(nodes)), until_s=until))

    async def _find_drained(self, held: Iterable[str]) -> None:
        """Query the nodes ``held``, and drained nodes until they return to service; post remarks."""
        asked = {*map(node_of, held), *self._drained}
        if not asked:
            return
        before, self._drained = self._drained, await self._batch.draining(self._run, sorted(asked))
        reasons: dict[str, list[str]] = {}
        for node, why in self._drained.items():
            if node not in before:
                reasons.setdefault(why, []).append(node)
        for why, drained in reasons.items():
            what = f"{self.name} drains {fold(drained)} ({why})"
            self._post(Remark(text=f"{what}: tasks leave, and nodes are given back"))

    async def _pause(self, seconds: float, *, listen: bool) -> None:
        await super()._pause(seconds, listen=listen)
        await asyncio.sleep(
            max(self._noticed.values(), default=0.0) + timeouts.TIMEOUTS.after_preemption_s - time.time()
        )


def blocked(pilots: Sequence[Pilot]) -> str:
    """Return the reasons for which no pilot starts however many nodes are idle; "" if one runs, or may start."""
    whys = {pilot.why for pilot in pilots if pilot.state is PilotState.WAITING}
    runs = any(pilot.state is PilotState.RUNNING for pilot in pilots)
    if runs or not whys or not all(map(_BLOCKS.fullmatch, whys)):
        return ""
    return f"no pilot can start: {', '.join(sorted(whys))}"


def too_long(pilots: Collection[Pilot]) -> bool:
    """Return whether a pilot waits because it is longer than the site allows by now."""
    return any(pilot.state is PilotState.WAITING and _TOO_LONG.search(pilot.why) for pilot in pilots)


def held_nodes(pilots: Collection[Pilot]) -> dict[str, Pilot]:
    """Return the pilots that run, by node."""
    return {pilot.node: pilot for pilot in pilots if pilot.state is PilotState.RUNNING and pilot.node}


def failing(pilots: Sequence[Pilot], logs: Path) -> str:
    """Return the remark on pilots that end as soon as they start, with some of their nodes."""
    nodes = {one.node for one in pilots if one.state in ENDED_ITSELF and one.node}
    where = f" on {fold(nodes)}" if nodes else ""
    return f"pilots end as soon as they start{where}: see the logs in {logs}"


def check_site(site: Site) -> None:
    """Raise unless the site's name is valid in job names of every scheduler."""
    if not site.name.isascii() or not site.name.replace("-", "").replace("_", "").isalnum():
        raise BadValue(
            f"must be letters, digits, '-' and '_', not {site.name!r}", where="Site.name", fix="such as 'physics'"
        )


def job_name(site: Site) -> str:
    """Return the job name of all pilots of a site."""
    return f"bftrain-{site.name}"


def mark_of(site: Site, digest: str) -> str:
    """Return the mark of a pilot: the site's name, the owner if there is one, and the digest of its order."""
    return ".".join(filter(None, (job_name(site), site.owner, digest)))


def is_ours(pilot: Pilot, site: Site) -> bool:
    """Return whether a pilot has the owner of a site in its mark, or none, as from an earlier version."""
    parts = pilot.mark.split(".")
    return len(parts) < 3 or parts[1] == site.owner  # noqa: PLR2004 - name, owner, digest


def of_others(pilots: Collection[Pilot], site: Site) -> str:
    """Return the remark on another owner's pilots with the site's name; "" if all of them have finished."""
    if all(is_ours(one, site) for one in pilots if one.state in ALIVE):
        return ""
    return (
        f"jobs named {job_name(site)} are pilots of a live run with another state, and left alone: give one of the two "
        "another name, or cancel these jobs if it has stopped"
    )


def _bound(number: float) -> str:
    return "any number" if number >= LATER else f"{number:,.4g}"
