"""LiveService: answers callers' requests about their tasks and the state of the pool."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import stat
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from bftrain import registry, speed_estimates
from bftrain.errors import BadInput, NotAvailable, UnknownName
from bftrain.live import timeouts
from bftrain.live.api.prometheus import LiveMetrics
from bftrain.live.api.status_stream import StatusStream, task_figures
from bftrain.live.daemon.daemon import Harvesting
from bftrain.live.daemon.decision_loop import DecisionLoop
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.startup import LiveResources
from bftrain.live.daemon.task_manager import LauncherPool, TaskManager
from bftrain.live.daemon.task_store import GROUPINGS, usage
from bftrain.live.log import RecentWarnings
from bftrain.live.model import schemas
from bftrain.live.model.background_thread import run_in_daemon_thread, within
from bftrain.live.model.schemas import Caller, LiveTaskRecord, LiveTaskState, Progress, ourselves, require_operator
from bftrain.node_units import node_of, word_of
from bftrain.text_formats import counted
from bftrain.values.events import Event, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from bftrain.values.job import said
from bftrain.values.task import TaskSpec
from bftrain.version import __version__

_log = logging.getLogger(__name__)
_WAIT_OR_CANCEL: Final = "wait, or cancel some"
_CHUNK: Final = 256 * 1024  # bytes of a log per request
_MOST_FILES: Final = 10_000

LARGEST: Final = 2**53  # exact in all JSON readers
Offset = Annotated[int, Meta(ge=-LARGEST, le=LARGEST), said("The first byte; negative: counted from the end.")]
Grouping = Annotated[str, said("The grouping of the sums.", schema={"enum": list(GROUPINGS)})]
Day = Annotated[
    str,
    said(
        "The first day that counts, as YYYY-MM-DD; all days if it is left out.",
        schema={"pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$"},
    ),
]


@dataclass(frozen=True)
class RunControl:
    """The live run as a whole: its state, and operators' actions."""

    state: Callable[[], str]  # state as shown to callers
    since_s: float
    ready: asyncio.Event
    warnings: RecentWarnings
    drain_nodes: Callable[..., bool]
    pause_until: Callable[[float], bool]


@dataclass(eq=False, repr=False)
class LiveService:
    """Answers requests of callers. All methods run in the daemon's event loop."""

    _run: RunControl
    _opened: LiveResources
    _loop: DecisionLoop
    _tasks: TaskManager
    _nodes: NodeManager
    _launchers: LauncherPool
    _harvesting: Harvesting

    def __post_init__(self) -> None:
        opened, tasks, nodes = self._opened, self._tasks, self._nodes
        self._site, self._journal, self._store = opened.site, opened.journal, opened.task_store
        self._harvester, self._scheduler = opened.harvester, opened.scheduler
        self._adding = asyncio.Lock()
        self._folders: dict[int, str] = {}  # resolved folders of unfinished tasks; missing entries are computed
        self.addresses: tuple[str, ...] = ()
        self.metrics = LiveMetrics(opened, tasks, nodes, self.status)
        self.watch = StatusStream(opened, tasks, nodes, self.status, self.nodes)

    async def submit(self, caller: Caller, given: schemas.Submission) -> schemas.TaskView:
        """Add a task; it is on disk when this returns."""
        await self._until_ready()
        async with self._adding:
            record = self._record(caller, given)
            await self._check_own_folder(record)
            await self._register(record)
            self._store.add(record)
            self._tasks.begin(record)
            self._apply(TaskSubmitted(time_s=self._tasks.now, spec=record.spec))
        return self._view(record)

    @cached_property
    def _launcher_names(self) -> tuple[str, ...]:
        """The launchers that tasks may choose, cached: searching all packages for each task would take too long."""
        there = (name for name, part in registry.parts("launcher").items() if not part.problem)
        return self._site.launchers or tuple(there)

    async def cancel(self, caller: Caller, task: str) -> schemas.TaskView:
        """Cancel a task."""
        await self._until_ready(to_write=False)  # stopping a task that fills the disk must be possible
        record = self._unfinished(caller, task)
        done = f"task '{record.name}' has lost its nodes, but the cancellation is final only once it is written"
        self._apply(TaskCancelled(time_s=self._tasks.now, task=record.name), done=done)
        return self._view(self._store.find(f"#{record.number}") or record)

    async def pause(self, caller: Caller, task: str) -> schemas.TaskView:
        """Pause a task: it waits without nodes until it is resumed."""
        return await self._set_state(caller, task, LiveTaskState.PAUSED)

    async def resume(self, caller: Caller, task: str) -> schemas.TaskView:
        """Resume a paused task."""
        return await self._set_state(caller, task, LiveTaskState.SUBMITTED)

    async def _set_state(self, caller: Caller, task: str, state: LiveTaskState) -> schemas.TaskView:
        await self._until_ready()
        record = self._unfinished(caller, task)
        if record.state is not state:
            record, now = replace(record, state=state), self._tasks.now
            self._store.change(record)
            if state is LiveTaskState.PAUSED:
                self._apply(TaskPaused(time_s=now, task=record.name))
            elif record.name in self._tasks.held_up:
                self._require_written(self._loop.write())  # it continues once possible
            else:
                self._apply(TaskResumed(time_s=now, task=record.name))
        return self._view(record)

    async def _register(self, record: LiveTaskRecord) -> None:
        """Register a task with its launcher; raise if its file system does not answer."""
        pool, folder = self._launchers, f"the folder '{record.run.folder}'"
        await within(
            timeouts.TIMEOUTS.file_system_s, lambda: pool.add(record), folder, undo=lambda: pool.drop(record.name)
        )

    def tasks(
        self,
        caller: Caller,
        *,
        all: Annotated[bool, said("Include finished tasks.")] = False,  # noqa: A002 - its name in the query
    ) -> tuple[schemas.TaskView, ...]:
        """List the caller's unfinished tasks, or all including the latest finished ones."""
        found = (*(self._store.finished if all else ()), *self._store.unfinished)
        return tuple(self._view(record) for record in found if caller.may_touch(record))

    def task(self, caller: Caller, task: str) -> schemas.TaskView:
        """Return one task."""
        return self._view(self._find(caller, task))

    async def logs(self, caller: Caller, task: str) -> tuple[schemas.LogFile, ...]:
        """List a task's log files."""
        record = self._find(caller, task)
        return await run_in_daemon_thread(lambda: log_files(record))

    async def log(self, caller: Caller, task: str, file: str, *, offset: Offset = 0) -> bytes:
        """Read a piece of a task's log."""
        record = self._find(caller, task)
        return await run_in_daemon_thread(lambda: read_log(record, file, offset))

    def usage(self, caller: Caller, *, by: Grouping = GROUPINGS[0], since: Day = "") -> tuple[schemas.UsageRow, ...]:
        """Sum up usage and samples from a day on: of the caller's tasks, of all for an operator."""
        self._tasks.progress()
        self._loop.write(sync=False)
        return usage(self._journal, by, since, None if caller.operator else caller.uid)

    async def drain(self, caller: Caller, nodes: Iterable[str], *, end: bool = False) -> tuple[schemas.NodeView, ...]:
        """Stop using nodes, after their tasks have moved; with ``end`` use them again."""
        require_operator(caller)
        await self._until_ready()
        names = sorted(set(nodes))
        self._require_written(self._run.drain_nodes(names, caller.user, end=end))
        found, kinds = {view.name: view for view in self.nodes(ourselves())}, self._nodes.kinds
        return tuple(
            found.get(name) or schemas.NodeView(name=name, state="away", kind=kinds.of(name)) for name in names
        )

    def nodes(self, caller: Caller) -> tuple[schemas.NodeView, ...]:
        """List all known nodes; their tasks are shown to callers that may see these."""
        node_tracker, kinds = self._nodes.node_tracker, self._nodes.kinds
        pool, drained = self._harvester.pool, self._store.drained
        lingering = self._launchers.lingering
        holders = {node: track.record for track in self._tasks.tracks.values() for node in track.held}
        views = []
        for node in sorted(pool | node_tracker.present | drained | lingering):
            record = holders.get(node)
            if node in lingering:
                state = "draining"
            elif node in drained or node_of(node) in drained:
                state = "drained"
            elif node in pool:
                state = "free" if record is None else "used"
            else:
                state = "away"
            views.append(
                schemas.NodeView(
                    name=node,
                    state=state,
                    task=record.name if record is not None and caller.may_touch(record) else "",
                    agent=node in node_tracker.present,
                    until_s=node_tracker.until_s.get(node),
                    kind=kinds.of(node),
                )
            )
        return tuple(views)

    async def pause_harvesting(self, caller: Caller, given: schemas.Pause) -> schemas.HarvestingView:
        """Stop using nodes for a while, or until it is resumed: tasks save their state and wait."""
        return await self._harvest_from(caller, math.inf if given.for_s is None else time.time() + given.for_s)

    async def resume_harvesting(self, caller: Caller) -> schemas.HarvestingView:
        """Use nodes again."""
        return await self._harvest_from(caller, 0.0)

    async def _harvest_from(self, caller: Caller, time_s: float) -> schemas.HarvestingView:
        require_operator(caller)
        await self._until_ready()
        self._require_written(self._run.pause_until(time_s))
        return self._harvesting.view

    def harvesting(self) -> schemas.HarvestingView:
        """Return whether nodes are used, and how the last ones were handed back."""
        return self._harvesting.view

    def status(self, caller: Caller | None = None) -> schemas.StatusView:
        """Return the overall status; ``None`` is an operator. Other callers get no remarks, which may name tasks."""
        asks, site = caller or ourselves(), self._site
        now, facts = self._tasks.now, self._scheduler.facts()
        holdings = self._harvester.plan.sizes
        states = [schemas.state_of(record, holdings.get(record.name, 0)) for record in self._store.unfinished]
        last = self._loop.last_decision
        if last is not None and last.fallback and not asks.operator:
            last = replace(last, fallback="the solver gave none")
        return schemas.StatusView(
            version=__version__,
            site=site.name,
            state=self._run.state(),
            paused_until_s=self._harvesting.until_s,
            user=ourselves().user,
            pid=os.getpid(),
            scheduler=site.scheduler_name,
            solver=site.deciding.solver,
            objective=site.deciding.objective,
            policy=site.deciding.policy,
            round_s=site.deciding.round_s if site.deciding.policy else 0.0,
            since_s=self._run.since_s,
            now_s=now,
            pool=self._harvester.pool_size,
            used=sum(holdings.values()),
            unit=site.unit,
            kinds=self._kinds(),
            pools=facts.pools,
            agents=len(self._nodes.node_tracker.present),
            copies_memory=site.agents.copies_memory,
            drained=len(self._store.drained),
            running=states.count("running"),
            waiting=states.count("waiting"),
            paused=states.count("paused"),
            over=self._store.next_number - 1 - len(self._store.unfinished),
            speed=sum(track.speed(now) for track in self._tasks.tracks.values()),
            steps=len(self._journal),
            decision=last,
            hooks=facts.hooks,
            commands_a_minute=facts.commands_a_minute,
            commands_limits=facts.commands_limits,
            harvested=self._tasks.ledger.days,
            remarks=self._run.warnings.latest if asks.operator else (),
            addresses=self.addresses,
            token_file=str(site.token),
        )

    def _kinds(self) -> dict[str, schemas.KindView]:
        """Count nodes by kind, if nodes have kinds: all kinds of the site, and a remainder if not empty."""
        harvester, known = self._harvester, self._nodes.kinds
        if not known:
            return {}
        pool = Counter(map(known.of, harvester.pool))
        used = Counter(known.of(node) for nodes in harvester.held.values() for node in nodes)
        named = (*self._site.kinds, *(one.kind for one in self._site.pools if one.kind))
        return {kind: schemas.KindView(pool=pool[kind], used=used[kind]) for kind in dict.fromkeys((*named, *pool))}

    def fault(self, error: Exception) -> None:
        """Report an unexpected error of a request."""
        at = traceback.extract_tb(error.__traceback__)[-1]
        _log.warning("internal error at %s:%d: %s: %s", at.name, at.lineno, type(error).__name__, error)

    def _apply(self, *events: Event, done: str = "this is not certain yet") -> None:
        """Pass events to the decision loop; raise if they could not be written to disk, reporting ``done``."""
        self._loop.on_events(*events, sync=True)
        self._require_written(not self._loop.broken.done() and self._loop.stalled is None, done)

    def _require_written(self, written: bool, done: str = "this is not certain yet") -> None:  # noqa: FBT001 - clear at the calls
        if not written:
            stalled, what, fix = self._loop.stalled, "the journal cannot be written", None
            if stalled is not None:
                what, fix = f"{done}: the journal {stalled.what}", "free space; it is written then"
            raise NotAvailable(what, where=str(self._site.journal), fix=fix)

    async def _check_own_folder(self, record: LiveTaskRecord) -> None:
        """Raise if an unfinished task has the same folder, also by another spelling such as a link."""
        others = self._store.unfinished
        # The file system of a task on hold may hang, so it is not accessed
        on_hold = {one.number: one.run.folder for one in others if one.name in self._tasks.held_up}
        known = {**self._folders, **on_hold}

        def resolved() -> tuple[str, dict[int, str]]:
            theirs = {one.number: known.get(one.number) or os.path.realpath(one.run.folder) for one in others}
            return os.path.realpath(record.run.folder), theirs

        what = f"the folder '{record.run.folder}', or another task's folder,"
        own, theirs = await within(timeouts.TIMEOUTS.file_system_s, resolved, what, undo=lambda: None)
        if own in theirs.values():
            raise schemas.NotNow(
                "an unfinished task has this folder already", where="run.folder", fix="choose another one"
            )
        self._folders = {number: path for number, path in theirs.items() if number not in on_hold}
        self._folders[record.number] = own

    def _record(self, caller: Caller, given: schemas.Submission) -> LiveTaskRecord:
        site = self._site
        launcher = given.launcher or site.launcher
        if launcher not in self._launcher_names:
            raise UnknownName.among("launcher", launcher, self._launcher_names, where="launcher")
        self._check_count(caller)
        if given.weight > (most := site.api.max_weight) and not caller.operator:
            fix = f"give {most:g} or less, or ask an operator: [api] max_weight in the settings of the live run"
            what = f"{given.weight:g} is more than '{caller.user}' may give"
            raise schemas.NotAllowed(what, where="weight", fix=fix)
        number, ending = self._store.next_number, caller.name_ending if site.api.names_by_user else ""
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", Path(given.run.argv[0]).stem).lstrip("._-")[:60]  # the script's name
        name = f"{given.name}{ending}" if given.name else self._store.free_name(stem or "task", ending)
        if self._store.get(name) is not None:
            what = f"an unfinished task is called '{name}' already"
            raise schemas.NotNow(what, where="name", fix="choose another name")
        kinds = self._nodes.kinds
        others = [self._harvester.spec(task).curve for task in self._harvester.unfinished]
        curve = given.curve or next(iter(given.curves.values()), None)
        curve = curve or speed_estimates.first_curve(given.max_nodes, others)
        curves = given.curves or dict.fromkeys(given.kinds, curve)
        if unfit := kinds.unfit(given.min_nodes, curves):
            where = "kinds" if given.kinds else "curves"
            instead = "give one for a kind of this site" if kinds else "give curve instead"
            raise BadInput(unfit, where=where, fix=f"leave {where} out, or {instead}")
        folder = given.run.folder or str(site.tasks / f"{number:06d}-{name}")
        now = self._tasks.now
        spec = TaskSpec(
            name=name,
            curve=curve,
            curves=curves,
            min_nodes=given.min_nodes,
            max_nodes=given.max_nodes,
            work_samples=given.work_samples,
            submit_s=now,
            grow_cost_s=given.grow_cost_s,
            shrink_cost_s=given.shrink_cost_s,
            start_cost_s=given.start_cost_s,
            weight=given.weight,
            deadline_s=given.deadline_s,
            user=caller.user,
            campaign=given.campaign,
            batch=given.batch,
            spread=given.spread,
        )
        return LiveTaskRecord(
            number=number,
            name=name,
            uid=caller.uid,
            user=caller.user,
            launcher=launcher,
            spec=spec,
            guessed=given.curve is None and not given.curves,
            run=replace(given.run, folder=folder),
            submitted_s=now,
            # In a folder of its own it starts at step 0; in another folder it may continue an earlier task
            progress=Progress(earlier_samples=None if given.run.folder else 0.0),
        )

    def _check_count(self, caller: Caller) -> None:
        """Raise if the live run or the caller has the largest allowed number of unfinished tasks."""
        unfinished, limits = self._store.unfinished, timeouts.LIMITS
        if len(unfinished) >= limits.unfinished_tasks:
            raise schemas.NotNow(f"there are {limits.unfinished_tasks} unfinished tasks already", fix=_WAIT_OR_CANCEL)
        own = sum(record.uid == caller.uid for record in unfinished)
        if own >= limits.unfinished_tasks_of_user and not caller.operator:
            raise schemas.NotNow(f"you have {own} unfinished tasks already", fix=_WAIT_OR_CANCEL)

    async def _until_ready(self, *, to_write: bool = True) -> None:
        """Wait until the daemon has restored its tasks; raise if it is ending, or, with ``to_write``, cannot write."""
        for _ in range(2):  # shutdown may have started during the wait
            if self._run.state() in {"draining", "broken"}:
                raise schemas.NotNow("the live run is ending", fix="try again when it is back")
            await self._run.ready.wait()
        if to_write and (stalled := self._loop.stalled) is not None:
            raise NotAvailable(f"no changes are possible now: {stalled}", fix="free space, and try again")

    def _find(self, caller: Caller, name: str) -> LiveTaskRecord:
        found = filter(None, map(self._store.find, (name, name + caller.name_ending)))
        record = next(filter(caller.may_touch, found), None)
        if record is None:  # unknown, or another user's: its existence is private
            raise schemas.NotFound(f"no task is called '{name}'", fix="list yours: bftrain status --all")
        return record

    def _unfinished(self, caller: Caller, name: str) -> LiveTaskRecord:
        record = self._find(caller, name)
        if not record.unfinished:
            raise schemas.NotNow(f"task '{record.name}' is {record.state} already", where=f"#{record.number}")
        return record

    def _view(self, record: LiveTaskRecord) -> schemas.TaskView:
        """Return the view of a task."""
        track, progress, figures = task_figures(record, self._tasks)
        held = () if track is None else track.held
        copied_step = 0 if track is None else track.copied_step
        committed_step = max(progress.committed_step, copied_step)
        return schemas.TaskView(
            **figures,
            launcher=record.launcher,
            unit=self._site.unit,
            nodes=held,
            running=0 if track is None else track.running,
            submitted_s=record.submitted_s,
            started_s=progress.started_s,
            in_memory_step=max(progress.in_memory_step, committed_step),
            committed_step=committed_step,
            copied_step=copied_step,
            speeds=progress.speeds if track is None else track.speeds,
            costs=progress.costs,
            weight=record.spec.weight,
            deadline_s=record.spec.deadline_s,
            campaign=record.spec.campaign,
            folder=record.run.folder,
            argv=record.run.argv,
            reason=record.reason,
            waits="" if held or not record.unfinished else self._why_waiting(record),
        )

    def _why_waiting(self, record: LiveTaskRecord) -> str:
        """Return the reason why a task has no nodes, as text; the first reason to fix has priority."""
        if record.state is LiveTaskState.PAUSED:
            return f"it is paused: bftrain task resume {record.name}"
        if held_up := self._tasks.held_up.get(record.name):
            return f"it cannot be run now, and is tried again: {held_up}"
        if record.name not in self._harvester.unfinished:
            return "just submitted"
        return self._general_reason() or self._too_few_nodes(record.name) or self._last_result(record.name)

    def _general_reason(self) -> str:
        """Return the reason why no task can have nodes; "" if they can."""
        state = self._run.state()
        if state == "paused":
            return "harvesting is paused by an operator"
        if self._loop.stalled is not None:
            return "the journal cannot be written, so tasks get no further nodes"
        if state != "running":
            return f"the live run is {state}"
        unit = word_of(self._site.unit)
        return "" if self._harvester.pool_size else f"no {unit} is idle now that the live run may use"

    def _too_few_nodes(self, name: str) -> str:
        """Return that the task needs more nodes than available; "" if it does not."""
        harvester, spec = self._harvester, self._harvester.spec(name)
        fitting = {kind: count for kind, count in harvester.pools.items() if spec.curve_on(kind) is not None}
        most = max(fitting.values(), default=0) if harvester.pools else harvester.pool_size
        if most >= spec.min_nodes:
            return ""
        kinds = f" of kind {' or '.join(spec.curves)}" if spec.curves else ""
        return f"it needs {counted(spec.min_nodes, word_of(self._site.unit))}{kinds}, and the live run has {most} now"

    def _last_result(self, name: str) -> str:
        """Return the result of the last decision, as text."""
        harvester, deciding, unit = self._harvester, self._site.deciding, word_of(self._site.unit)
        last = self._loop.last_decision
        if last is None or last.time_s < harvester.spec(name).submit_s:
            return "no decision since its submission"
        if name not in harvester.competed:
            before = f"{counted(len(harvester.competed), 'other task')} compete before it"
            return f"{before}, by admission {deciding.admission} with max_tasks = {deciding.max_tasks}"
        held = harvester.held
        used = sum(map(len, held.values()))
        others = f"{counted(used, unit)} went to {counted(len(held), 'other task')} by objective {deciding.objective}"
        free = harvester.pool_size - used
        return f"{others}, and starting it on the {counted(free, unit)} left has no benefit" if free else others


def log_files(record: LiveTaskRecord) -> tuple[schemas.LogFile, ...]:
    """List a task's log files by name."""
    try:
        with os.scandir(Path(record.run.folder, "logs")) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return ()
    return tuple(
        schemas.LogFile(name=name, size=about.st_size)
        for name, about in sorted(found)[:_MOST_FILES]
        if stat.S_ISREG(about.st_mode)
    )


def read_log(record: LiveTaskRecord, name: str, offset: int) -> bytes:
    """Read a chunk of a log file from a byte offset (from the end if below 0); empty at the current end."""
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise schemas.NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'")
    try:
        # No links: a task must not redirect the read to another file
        file = os.open(
            Path(record.run.folder, "logs", name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError as error:
        raise schemas.NotFound(f"no log file is called {name!r}", where=f"task '{record.name}'") from error
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("is not a plain file", where=name)
        return os.pread(file, _CHUNK, max(0, about.st_size + offset) if offset < 0 else offset)
    finally:
        os.close(file)
