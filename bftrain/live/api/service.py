"""LiveService: answers callers' requests about their tasks and the state of the pool."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
import traceback
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bftrain import registry, speed_estimates
from bftrain.errors import BadInput, NotAvailable, UnknownName
from bftrain.live import timeouts
from bftrain.live.api import resource_status
from bftrain.live.api.prometheus import LiveMetrics
from bftrain.live.api.task_edits import edited
from bftrain.live.api.task_views import view_of
from bftrain.live.api.why_waiting import why_waiting
from bftrain.live.model import resource_views, schemas
from bftrain.live.model.background_thread import run_in_daemon_thread, within
from bftrain.live.model.callers import Caller, check_weight, ourselves, require_operator
from bftrain.live.model.harvesting import HarvestingView, Pause
from bftrain.live.model.task_edit import TaskEdit
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.monitor.status_stream import StatusStream
from bftrain.live.run.daemon import LiveDaemon
from bftrain.live.tasks.task_logs import log_files, read_log
from bftrain.live.tasks.usage_ledger import usage
from bftrain.node_units import node_of
from bftrain.values.events import Event, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from bftrain.values.task import TaskSpec
from bftrain.version import __version__

_NAMED: Final = re.compile(r"task '([^']*)'")
_FAULT: Final = "a fault of ours"
_ODD: Final = (_FAULT, "no decision")  # followed by the text of an error, which may hold anything


class LiveService:
    """Answers requests of callers. All methods run in the daemon's event loop."""

    def __init__(self, daemon: LiveDaemon) -> None:
        self._daemon = daemon
        self._task_store = daemon.task_store
        self._adding = asyncio.Lock()
        self._folders: dict[int, str] = {}  # of unfinished tasks, with all links followed; what is missing is found out
        self.addresses: tuple[str, ...] = ()
        self.watch = StatusStream(daemon, self.status, self.nodes)
        self.metrics = LiveMetrics(daemon)

    async def submit(self, caller: Caller, given: schemas.Submission) -> schemas.TaskView:
        """Add a task; it is on disk when this returns."""
        await self._until_ready()
        async with self._adding:
            record = self._record(caller, given)
            await self._check_own_folder(record)
            pool, folder = self._daemon.launcher_pool, f"the folder '{record.run.folder}'"
            await within(
                timeouts.TIMEOUTS.file_system_s, lambda: pool.add(record), folder, undo=lambda: pool.drop(record.name)
            )
            self._task_store.add(record)
            self._daemon.task_manager.begin(record)
            now, waits = self._daemon.decision_loop.now, record.name in self._daemon.task_manager.after
            paused = (TaskPaused(time_s=now, task=record.name),) if waits else ()
            self._happened(TaskSubmitted(time_s=now, spec=record.spec), *paused)
        return self._view(record)

    @cached_property
    def _launchers(self) -> tuple[str, ...]:
        """The launchers that tasks may choose; to look through all packages for each task would take too long."""
        there = (name for name, part in registry.parts("launcher").items() if not part.problem)
        return self._daemon.site.launchers or tuple(there)

    async def cancel(self, caller: Caller, name: str) -> schemas.TaskView:
        """Cancel a task."""
        await self._until_ready(to_write=False)  # to end what fills a disk must be possible
        record = self._unfinished(caller, name)
        done = f"task '{record.name}' holds no nodes any more, but is cancelled for certain only when it is written"
        self._happened(TaskCancelled(time_s=self._daemon.decision_loop.now, task=record.name), done=done)
        return self._view(self._task_store.find(f"#{record.number}") or record)

    async def pause(self, caller: Caller, name: str) -> schemas.TaskView:
        """Pause a task: it waits without nodes until it is resumed."""
        await self._until_ready()
        record = self._unfinished(caller, name)
        if record.state is not LiveTaskState.PAUSED:
            record = replace(record, state=LiveTaskState.PAUSED)
            self._task_store.change(record)
            self._happened(TaskPaused(time_s=self._daemon.decision_loop.now, task=record.name))
        return self._view(record)

    async def resume(self, caller: Caller, name: str) -> schemas.TaskView:
        """Resume a paused task."""
        await self._until_ready()
        record = self._unfinished(caller, name)
        if record.state is LiveTaskState.PAUSED:
            record = replace(record, state=LiveTaskState.SUBMITTED)
            self._task_store.change(record)
            if record.name in self._daemon.task_manager.not_now:
                self._insist(self._daemon.write())  # it goes on once it can
            else:
                self._happened(TaskResumed(time_s=self._daemon.decision_loop.now, task=record.name))
        return self._view(record)

    async def edit(self, caller: Caller, name: str, given: TaskEdit) -> schemas.TaskView:
        """Change a task that holds no nodes."""
        await self._until_ready()
        async with self._adding:
            record, event = await edited(self._daemon, caller, lambda: self._unfinished(caller, name), given)
            try:
                self._happened(event)
            finally:
                if event.renamed:
                    self._daemon.launcher_pool.drop(event.task)
        return self._view(record)

    def tasks(self, caller: Caller, *, over: bool) -> tuple[schemas.TaskView, ...]:
        """List the caller's unfinished tasks, with ``over`` also the latest finished ones."""
        found = (*(self._task_store.over if over else ()), *self._task_store.unfinished)
        return tuple(self._view(record) for record in found if caller.may_touch(record))

    def task(self, caller: Caller, name: str) -> schemas.TaskView:
        """Return one task."""
        return self._view(self._find(caller, name))

    async def logs(self, caller: Caller, name: str) -> tuple[schemas.LogFile, ...]:
        """List a task's log files."""
        record = self._find(caller, name)
        return await run_in_daemon_thread(lambda: log_files(record))

    async def log(self, caller: Caller, name: str, file: str, offset: int) -> bytes:
        """Read a piece of a task's log."""
        record = self._find(caller, name)
        return await run_in_daemon_thread(lambda: read_log(record, file, offset))

    def usage(self, caller: Caller, by: str, since: str) -> tuple[resource_views.UsageRow, ...]:
        """Sum up hours and samples from a day on: of the caller's tasks, of all for an operator."""
        self._daemon.task_manager.progress()
        self._daemon.write(sync=False)
        return usage(self._daemon.opened.journal, by, since, None if caller.operator else caller.uid)

    async def drain(self, caller: Caller, nodes: Iterable[str], *, end: bool = False) -> tuple[schemas.NodeView, ...]:
        """Stop using nodes, after their tasks have moved; with ``end`` use them again."""
        require_operator(caller)
        await self._until_ready()
        names = sorted(set(nodes))
        if end:
            self._task_store.undrain(names)
        else:
            self._task_store.drain(names, caller.user, time.time())
        self._insist(self._daemon.write())
        self._daemon.node_manager.node_tracker.drained = self._task_store.drained
        self._daemon.node_manager.leave(() if end else self._daemon.node_manager.node_tracker.not_to_use)
        self._daemon.want()
        found, kinds = {view.name: view for view in self.nodes(ourselves())}, self._daemon.node_manager.kinds
        return tuple(
            found.get(name) or schemas.NodeView(name=name, state="away", kind=kinds.of(name)) for name in names
        )

    def nodes(self, caller: Caller) -> tuple[schemas.NodeView, ...]:
        """List all known nodes; their tasks are shown to callers that may see these."""
        node_tracker, kinds = self._daemon.node_manager.node_tracker, self._daemon.node_manager.kinds
        pool, drained = self._daemon.harvester.pool, self._task_store.drained
        lingering = self._daemon.launcher_pool.lingering
        holders = {node: track.record for track in self._daemon.task_manager.tracks.values() for node in track.held}
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

    async def pause_harvesting(self, caller: Caller, given: Pause) -> HarvestingView:
        """Use no node for a while, or until that is resumed: tasks save where they are and wait."""
        return await self._harvest_from(caller, math.inf if given.for_s is None else time.time() + given.for_s)

    async def resume_harvesting(self, caller: Caller) -> HarvestingView:
        """Use nodes again."""
        return await self._harvest_from(caller, 0.0)

    async def _harvest_from(self, caller: Caller, time_s: float) -> HarvestingView:
        require_operator(caller)
        await self._until_ready()
        self._daemon.harvesting.set_until(time_s)
        self._insist(self._daemon.write())
        self._daemon.want()
        return self._daemon.harvesting.view

    def harvesting(self) -> HarvestingView:
        """Return whether nodes are used, and how the last ones were handed back."""
        return self._daemon.harvesting.view

    def status(self, caller: Caller | None = None) -> schemas.StatusView:
        """Return the overall status, without names of tasks of other users; ``None`` is an operator."""
        asks = caller or ourselves()
        daemon, site = self._daemon, self._daemon.site
        now = daemon.decision_loop.now
        holdings = daemon.harvester.plan.sizes
        states = [schemas.state_of(record, holdings.get(record.name, 0)) for record in self._task_store.unfinished]
        pool, last = daemon.harvester.pool, daemon.last_decision
        if last is not None and not self._may_see(asks, last.fallback, last.time_s):
            last = replace(last, fallback="the solver gave none")
        return schemas.StatusView(
            version=__version__,
            site=site.name,
            state=daemon.harvesting.shown(daemon.state),
            paused_until_s=daemon.harvesting.until_s,
            user=ourselves().user,
            pid=os.getpid(),
            scheduler=site.scheduler_name,
            solver=site.deciding.solver,
            objective=site.deciding.objective,
            since_s=daemon.since_s,
            now_s=now,
            pool=len(pool),
            used=sum(holdings.values()),
            unit=site.unit,
            kinds=resource_status.kinds(daemon),
            pools=resource_status.pools(daemon),
            agents=len(daemon.node_manager.node_tracker.present),
            drained=len(self._task_store.drained),
            running=states.count("running"),
            waiting=states.count("waiting"),
            paused=states.count("paused"),
            over=self._task_store.next_number - 1 - len(self._task_store.unfinished),
            speed=sum(track.speed(now) for track in daemon.task_manager.tracks.values()),
            steps=len(daemon.opened.journal),
            decision=last,
            hooks=resource_status.hooks(daemon),
            commands_a_minute=daemon.opened.scheduler.facts().commands_a_minute,
            harvested=daemon.task_manager.ledger.days,
            remarks=tuple(one for one in daemon.remarks.latest if self._may_see(asks, one.text, one.time_s)),
            addresses=self.addresses,
        )

    def page(self) -> schemas.PageView:
        """Return the address of the status page."""
        address = next((one for one in self.addresses if one.startswith("http")), "")
        return schemas.PageView(address=f"{address}/" if address else "", token_file=str(self._daemon.site.token))

    def fault(self, error: Exception) -> None:
        """Report an unexpected error of a request."""
        at = traceback.extract_tb(error.__traceback__)[-1]
        self._daemon.remark(f"{_FAULT} at {at.name}:{at.lineno}: {type(error).__name__}: {error}")

    def _happened(self, *events: Event, done: str = "this is not certain yet") -> None:
        """Pass events to the decision loop; raise if they could not be written to disk, with what is ``done``."""
        self._daemon.decision_loop.on_events(*events, sync=True)
        self._insist(self._daemon.state != "broken" and self._daemon.decision_loop.stalled is None, done)

    def _insist(self, written: bool, done: str = "this is not certain yet") -> None:  # noqa: FBT001 - it says itself
        if not written:
            stalled, what, fix = self._daemon.decision_loop.stalled, "the journal cannot be written", None
            if stalled is not None:
                what, fix = f"{done}: the journal {stalled.what}", "free space; it is written then"
            raise NotAvailable(what, where=str(self._daemon.site.journal), fix=fix)

    async def _check_own_folder(self, record: LiveTaskRecord) -> None:
        """Raise if an unfinished task has the same folder, also by another spelling such as a link."""
        others = self._task_store.unfinished
        # what is held up may hang, so nothing is asked of its file system
        odd = {one.number: one.run.folder for one in others if one.name in self._daemon.task_manager.held_up}
        known = {**self._folders, **odd}

        def resolved() -> tuple[str, dict[int, str]]:
            theirs = {one.number: known.get(one.number) or os.path.realpath(one.run.folder) for one in others}
            return os.path.realpath(record.run.folder), theirs

        what = f"the folder '{record.run.folder}', or that of another task,"
        own, theirs = await within(timeouts.TIMEOUTS.file_system_s, resolved, what, undo=lambda: None)
        if own in theirs.values():
            raise schemas.NotNow(
                "an unfinished task has this folder already", where="run.folder", fix="choose another one"
            )
        self._folders = {number: path for number, path in theirs.items() if number not in odd}
        self._folders[record.number] = own

    def _record(self, caller: Caller, given: schemas.Submission) -> LiveTaskRecord:
        site = self._daemon.site
        launcher = given.launcher or site.launcher
        if launcher not in self._launchers:
            raise UnknownName.among("launcher", launcher, self._launchers, where="launcher")
        if len(self._task_store.unfinished) >= timeouts.LIMITS.unfinished_tasks:
            raise schemas.NotNow(
                f"there are {timeouts.LIMITS.unfinished_tasks} unfinished tasks already", fix="wait, or cancel some"
            )
        own = sum(record.uid == caller.uid for record in self._task_store.unfinished)
        if own >= timeouts.LIMITS.unfinished_tasks_of_user and not caller.operator:
            raise schemas.NotNow(f"you have {own} unfinished tasks already", fix="wait, or cancel some")
        check_weight(caller, given.weight, site.api.max_weight)
        number, ending = self._task_store.next_number, caller.name_ending if site.api.names_by_user else ""
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", Path(given.run.argv[0]).stem).lstrip("._-")[:60]  # after the script
        name = f"{given.name}{ending}" if given.name else self._task_store.free_name(stem or "task", ending)
        if self._task_store.get(name) is not None:
            raise schemas.NotNow(
                f"an unfinished task is called '{name}' already", where="name", fix="choose another name"
            )
        kinds = self._daemon.node_manager.kinds
        others = [self._daemon.harvester.spec(task).curve for task in self._daemon.harvester.unfinished]
        curve = given.curve or next(iter(given.curves.values()), None)
        curve = curve or speed_estimates.first_curve(given.max_nodes, others)
        curves = given.curves or dict.fromkeys(given.kinds, curve)
        if unfit := kinds.unfit(given.min_nodes, curves):
            where = "kinds" if given.kinds else "curves"
            instead = "give one for a kind that is here" if kinds else "give curve instead"
            raise BadInput(unfit, where=where, fix=f"leave {where} out, or {instead}")
        folder = given.run.folder or str(site.tasks / f"{number:06d}-{name}")
        now = self._daemon.decision_loop.now
        spec = TaskSpec(
            name=name, curve=curve, submit_s=now, user=caller.user, **schemas.spec_fields(given) | {"curves": curves}
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
            after=self._numbers_before(caller, given.after),
            # In a folder of its own it begins at step 0, in another one perhaps where an earlier task ended
            progress=Progress(earlier_samples=None if given.run.folder else 0.0),
        )

    def _numbers_before(self, caller: Caller, names: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of tasks that have to be done before a new one."""
        try:
            found = [self._find(caller, name) for name in names]
        except schemas.NotFound as error:
            raise BadInput(error.what, where="after", fix=error.fix) from error
        for record in found:
            if record.state in {LiveTaskState.FAILED, LiveTaskState.CANCELLED}:
                raise schemas.NotNow(f"task '{record.name}' is {record.state} already", where="after")
        return tuple(dict.fromkeys(record.number for record in found))

    async def _until_ready(self, *, to_write: bool = True) -> None:
        """Wait until the daemon has restored its tasks; raise if it is ending, or has ``to_write`` and cannot."""
        for _ in range(2):  # it may have begun to end while this waited
            if self._daemon.state in {"draining", "broken"}:
                raise schemas.NotNow("the live run is ending", fix="submit again when it is back")
            await self._daemon.ready.wait()
        if to_write and (stalled := self._daemon.decision_loop.stalled) is not None:
            raise NotAvailable(f"nothing can be changed now: {stalled}", fix="free space, and try again")

    def _find(self, caller: Caller, name: str) -> LiveTaskRecord:
        found = filter(None, map(self._task_store.find, (name, name + caller.name_ending)))
        record = next(filter(caller.may_touch, found), None)
        if record is None:  # or another's: its existence is private
            raise schemas.NotFound(f"no task is called '{name}'", fix="list yours: bftrain queue --all")
        return record

    def _unfinished(self, caller: Caller, name: str) -> LiveTaskRecord:
        record = self._find(caller, name)
        if not record.unfinished:
            raise schemas.NotNow(f"task '{record.name}' is {record.state} already", where=f"#{record.number}")
        return record

    def _view(self, record: LiveTaskRecord) -> schemas.TaskView:
        track = self._daemon.task_manager.tracks.get(record.name) if record.unfinished else None
        view = view_of(record, track, self._daemon.decision_loop.now, self._daemon.site.unit)
        return replace(view, waits=why_waiting(self._daemon, record)) if record.unfinished and not view.nodes else view

    def _may_see(self, caller: Caller, text: str, time_s: float) -> bool:
        """Return whether a text names no task of another user."""
        if caller.operator:
            return True
        found = [self._task_store.find(name) for name in _NAMED.findall(text)]
        own = all(record is not None and caller.may_touch(record) and record.submitted_s <= time_s for record in found)
        return own and not text.startswith(_ODD)
