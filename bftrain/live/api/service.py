"""LiveService: the requests of callers: their own tasks, and the state of the pool."""

from __future__ import annotations

import asyncio
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bftrain import registry
from bftrain.errors import BadInput, NotAvailable, UnknownName
from bftrain.live.api.prometheus import LiveMetrics
from bftrain.live.model.background_thread import run_in_daemon_thread, within
from bftrain.live.model.callers import Caller, insist_on_operator, ourselves
from bftrain.live.model.schemas import (
    KindView,
    LastDecision,
    LogFile,
    NodeView,
    NotFound,
    NotNow,
    PageView,
    StatusView,
    Submission,
    TaskView,
    spec_fields,
    state_of,
)
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress, is_name
from bftrain.live.monitor.status_stream import StatusStream
from bftrain.live.monitor.task_views import view_of
from bftrain.live.run.daemon import LiveDaemon
from bftrain.live.tasks import task_logs
from bftrain.live.tasks.task_progress import guess
from bftrain.values.events import Event, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from bftrain.values.task import TaskSpec
from bftrain.version import __version__

_NAMED: Final = re.compile(r"task '([^']*)'")
_FAULT: Final = "a fault of ours"
_ODD: Final = (_FAULT, "no decision")  # what follows are words of an error, which may say anything
_MOST_UNFINISHED: Final = 10_000  # tasks: every one of them is looked at when something is decided
_PATIENCE_S: Final = 30.0  # with a file system on which a folder is to be
_MOST_OF_ONE: Final = 2_000  # of them, of a user who is no operator


class LiveService:
    """Answers callers. All methods belong to the daemon's loop."""

    def __init__(self, daemon: LiveDaemon) -> None:
        self._daemon = daemon
        self._memory = daemon.memory
        self._adding = asyncio.Lock()
        self._folders: dict[int, str] = {}  # of unfinished tasks, with all links followed; what is missing is found out
        self.addresses: tuple[str, ...] = ()
        self.watch = StatusStream(daemon, self)
        self.metrics = LiveMetrics(daemon)

    # -- tasks

    async def submit(self, caller: Caller, given: Submission) -> TaskView:
        """Take a task in; when this returns it is safe."""
        await self._until_ready()
        async with self._adding:
            kept = self._kept(caller, given)
            await self._insist_on_own_folder(kept)
            carriers, folder = self._daemon.carriers, f"the folder '{kept.run.folder}'"
            await within(_PATIENCE_S, lambda: carriers.add(kept), folder, undo=lambda: carriers.drop(kept.name))
            self._memory.add(kept)
            self._daemon.books.begin(kept)
            self._happened(TaskSubmitted(time_s=self._daemon.stepper.now, spec=kept.spec))
        return self._view(kept)

    async def cancel(self, caller: Caller, name: str) -> TaskView:
        """End a task for good."""
        await self._until_ready()
        kept = self._unfinished(caller, name)
        self._happened(TaskCancelled(time_s=self._daemon.stepper.now, task=kept.name))
        return self._view(self._memory.find(f"#{kept.number}") or kept)

    async def pause(self, caller: Caller, name: str) -> TaskView:
        """Let a task wait without nodes until it is resumed."""
        await self._until_ready()
        kept = self._unfinished(caller, name)
        if kept.state is not LiveTaskState.PAUSED:
            kept = replace(kept, state=LiveTaskState.PAUSED)
            self._memory.change(kept)
            self._happened(TaskPaused(time_s=self._daemon.stepper.now, task=kept.name))
        return self._view(kept)

    async def resume(self, caller: Caller, name: str) -> TaskView:
        """Let a paused task compete again."""
        await self._until_ready()
        kept = self._unfinished(caller, name)
        if kept.state is LiveTaskState.PAUSED:
            kept = replace(kept, state=LiveTaskState.SUBMITTED)
            self._memory.change(kept)
            if kept.name in self._daemon.books.held_up:
                self._insist(self._daemon.write())  # it goes on once it can
            else:
                self._happened(TaskResumed(time_s=self._daemon.stepper.now, task=kept.name))
        return self._view(kept)

    def tasks(self, caller: Caller, *, over: bool) -> tuple[TaskView, ...]:
        """List the caller's tasks: the unfinished ones, with ``over`` also the latest of the others."""
        found = (*(self._memory.over if over else ()), *self._memory.unfinished)
        return tuple(self._view(kept) for kept in found if caller.may_touch(kept))

    def task(self, caller: Caller, name: str) -> TaskView:
        """Describe a task."""
        return self._view(self._find(caller, name))

    async def logs(self, caller: Caller, name: str) -> tuple[LogFile, ...]:
        """List a task's log files."""
        kept = self._find(caller, name)
        return await run_in_daemon_thread(lambda: task_logs.files(kept))

    async def log(self, caller: Caller, name: str, file: str, offset: int) -> bytes:
        """Read a piece of a task's log."""
        kept = self._find(caller, name)
        return await run_in_daemon_thread(lambda: task_logs.read(kept, file, offset))

    # -- nodes

    async def drain(self, caller: Caller, nodes: Iterable[str]) -> tuple[NodeView, ...]:
        """Use nodes no more; what runs there moves first."""
        insist_on_operator(caller)
        await self._until_ready()
        nodes = tuple(nodes)
        self._memory.drain(nodes, caller.user, time.time())
        self._insist(self._daemon.write())
        self._daemon.yard.ground.drain(self._memory.drained)
        self._daemon.yard.leave(nodes)
        self._daemon.want()
        return self._some(nodes)

    async def undrain(self, caller: Caller, nodes: Iterable[str]) -> tuple[NodeView, ...]:
        """Use nodes again."""
        insist_on_operator(caller)
        await self._until_ready()
        nodes = tuple(nodes)
        self._memory.undrain(nodes)
        self._insist(self._daemon.write())
        self._daemon.yard.ground.drain(self._memory.drained)
        self._daemon.yard.look_over()
        self._daemon.want()
        return self._some(nodes)

    def nodes(self, caller: Caller) -> tuple[NodeView, ...]:
        """List all known nodes; their tasks are shown to callers that may see these."""
        return self._nodes(caller)

    # -- everything

    def status(self, caller: Caller | None = None) -> StatusView:
        """Say how things stand, without a word on tasks that are none of the caller's business (none: an operator)."""
        asks = caller or ourselves()
        daemon, site = self._daemon, self._daemon.site
        now = daemon.stepper.now
        holdings = daemon.harvester.plan.sizes
        states = [state_of(kept, holdings.get(kept.name, 0)) for kept in self._memory.unfinished]
        pool = daemon.harvester.pool
        return StatusView(
            version=__version__,
            site=site.name,
            state=daemon.state,
            user=ourselves().user,
            pid=os.getpid(),
            scheduler=str(site.scheduler["name"]),
            solver=site.deciding.solver,
            objective=site.deciding.objective,
            since_s=daemon.since_s,
            now_s=now,
            pool=len(pool),
            used=sum(holdings.values()),
            kinds=self._kinds(),
            agents=len(daemon.yard.ground.present),
            drained=len(self._memory.drained),
            running=states.count("running"),
            waiting=states.count("waiting"),
            paused=states.count("paused"),
            over=self._memory.next_number - 1 - len(self._memory.unfinished),
            speed=sum(track.speed(now) for track in daemon.books.tracks),
            steps=len(daemon.opened.journal),
            decision=self._decision(asks),
            harvested=daemon.books.harvest.days,
            remarks=tuple(one for one in daemon.remarks.latest if self._may_hear(asks, one.text, one.time_s)),
            addresses=self.addresses,
        )

    def _kinds(self) -> dict[str, KindView]:
        """Count nodes by kind, if the site has kinds: all that it names, and the others if there are some."""
        harvester, kinds = self._daemon.harvester, self._daemon.yard.kinds
        if not kinds:
            return {}
        pool = Counter(map(kinds.of, harvester.pool))
        used = Counter(kinds.of(node) for nodes in harvester.held.values() for node in nodes)
        names = dict.fromkeys((*self._daemon.site.kinds, *pool))
        return {kind: KindView(pool=pool[kind], used=used[kind]) for kind in names}

    def page(self) -> PageView:
        """Say where the status page is."""
        address = next((one for one in self.addresses if one.startswith("http")), "")
        return PageView(address=f"{address}/" if address else "", token_file=str(self._daemon.site.token))

    def fault(self, error: Exception) -> None:
        """Say what a request led to that should not happen."""
        at = traceback.extract_tb(error.__traceback__)[-1]
        self._daemon.remark(f"{_FAULT} at {at.name}:{at.lineno}: {type(error).__name__}: {error}")

    # -- within

    def _happened(self, event: Event) -> None:
        """Have an event taken in; what the caller wants is safe after that, or the caller hears that it is not."""
        self._daemon.stepper.happened(event, sync=True)
        self._insist(self._daemon.state != "broken")

    def _insist(self, written: bool) -> None:  # noqa: FBT001 - it says itself what it is
        if not written:
            raise NotAvailable("the journal cannot be written", where=str(self._daemon.site.journal))

    async def _insist_on_own_folder(self, kept: LiveTaskRecord) -> None:
        """Refuse a folder that an unfinished task has, however both are spelled: links, slashes and dots."""
        others = self._memory.unfinished
        # what is held up may hang, so nothing is asked of its file system
        odd = {one.number: one.run.folder for one in others if one.name in self._daemon.books.held_up}
        known = {**self._folders, **odd}

        def resolved() -> tuple[str, dict[int, str]]:
            theirs = {one.number: known.get(one.number) or os.path.realpath(one.run.folder) for one in others}
            return os.path.realpath(kept.run.folder), theirs

        what = f"the folder '{kept.run.folder}', or that of another task,"
        own, theirs = await within(_PATIENCE_S, resolved, what, undo=lambda: None)
        if own in theirs.values():
            raise NotNow("an unfinished task has this folder already", where="run.folder", fix="choose another one")
        self._folders = {number: path for number, path in theirs.items() if number not in odd}
        self._folders[kept.number] = own

    def _kept(self, caller: Caller, given: Submission) -> LiveTaskRecord:
        site = self._daemon.site
        launcher = given.launcher or site.launcher
        known = site.launchers or tuple(name for name, part in registry.parts("launcher").items() if not part.problem)
        if launcher not in known:
            raise UnknownName.among("launcher", launcher, known, where="launcher")
        if len(self._memory.unfinished) >= _MOST_UNFINISHED:
            raise NotNow(f"there are {_MOST_UNFINISHED} unfinished tasks already", fix="wait, or cancel some")
        own = sum(kept.uid == caller.uid for kept in self._memory.unfinished)
        if own >= _MOST_OF_ONE and not caller.operator:
            raise NotNow(f"you have {own} unfinished tasks already", fix="wait, or cancel some")
        number = self._memory.next_number
        name = given.name or self._memory.free_name(_stem(given.run.argv[0]))
        if self._memory.get(name) is not None:
            raise NotNow(f"an unfinished task is called '{name}' already", where="name", fix="choose another name")
        self._insist_on_a_kind(given)
        others = [self._daemon.harvester.spec(task).curve for task in self._daemon.harvester.unfinished]
        folder = given.run.folder or str(site.tasks / f"{number:06d}-{name}")
        now = self._daemon.stepper.now
        spec = TaskSpec(
            name=name,
            curve=given.curve or next(iter(given.curves.values()), None) or guess(others, given.max_nodes),
            submit_s=now,
            user=caller.user,
            **spec_fields(given),
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
            # In a folder of its own it begins at step 0, in another one perhaps where an earlier task ended
            progress=Progress(earlier_samples=None if given.run.folder else 0.0),
        )

    def _insist_on_a_kind(self, given: Submission) -> None:
        """Refuse a task that no kind of node here can ever hold."""
        kinds = self._daemon.yard.kinds
        unfit = kinds.unfit(given.min_nodes, given.curves)
        if unfit:
            instead = "give one for a kind that is here" if kinds else "give curve instead"
            raise BadInput(unfit, where="curves", fix=f"leave curves out, or {instead}")

    async def _until_ready(self) -> None:
        """Wait until the daemon has taken up its tasks again; refuse if it is ending."""
        self._refuse_if_ending()
        await self._daemon.ready.wait()
        self._refuse_if_ending()

    def _refuse_if_ending(self) -> None:
        if self._daemon.state in {"draining", "broken"}:
            raise NotNow("the live run is ending", fix="submit again when it is back")

    def _find(self, caller: Caller, name: str) -> LiveTaskRecord:
        kept = self._memory.find(name)
        if kept is None or not caller.may_touch(kept):  # its existence is private
            raise NotFound(f"no task is called '{name}'", fix="list yours: bftrain queue --all")
        return kept

    def _unfinished(self, caller: Caller, name: str) -> LiveTaskRecord:
        kept = self._find(caller, name)
        if not kept.unfinished:
            raise NotNow(f"task '{kept.name}' is {kept.state} already", where=f"#{kept.number}")
        return kept

    def _view(self, kept: LiveTaskRecord) -> TaskView:
        track = self._daemon.books.tracks.get(kept.name) if kept.unfinished else None
        return view_of(kept, track, self._daemon.stepper.now)

    def _decision(self, caller: Caller) -> LastDecision | None:
        last = self._daemon.last_decision
        if last is None or self._may_hear(caller, last.fallback, last.time_s):
            return last
        return replace(last, fallback="the solver gave none")

    def _may_hear(self, caller: Caller, text: str, time_s: float) -> bool:
        """Return whether a text names no task of another user."""
        if caller.operator:
            return True
        found = [self._memory.find(name) for name in _NAMED.findall(text)]
        own = all(kept is not None and caller.may_touch(kept) and kept.submitted_s <= time_s for kept in found)
        return own and not text.startswith(_ODD)

    def _some(self, names: Iterable[str]) -> tuple[NodeView, ...]:
        wanted = set(names)
        found = {view.name: view for view in self._nodes(ourselves()) if view.name in wanted}
        kinds = self._daemon.yard.kinds
        return tuple(
            found.get(name) or NodeView(name=name, state="away", kind=kinds.of(name)) for name in sorted(wanted)
        )

    def _nodes(self, caller: Caller) -> tuple[NodeView, ...]:
        ground, kinds = self._daemon.yard.ground, self._daemon.yard.kinds
        pool = self._daemon.harvester.pool
        lingering = self._daemon.carriers.lingering
        drained = self._memory.drained
        holders = {node: track.kept for track in self._daemon.books.tracks for node in track.held}
        views = []
        for node in sorted(pool | ground.present | drained | lingering):
            kept = holders.get(node)
            if node in lingering:
                state = "draining"
            elif node in drained:
                state = "drained"
            elif node in pool:
                state = "free" if kept is None else "used"
            else:
                state = "away"
            task = kept.name if kept is not None and caller.may_touch(kept) else ""
            views.append(
                NodeView(
                    name=node,
                    state=state,
                    task=task,
                    agent=node in ground.present,
                    until_s=ground.until_s.get(node),
                    kind=kinds.of(node),
                )
            )
        return tuple(views)


def _stem(argv0: str) -> str:
    """Give a name after the script that is run."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", Path(argv0).stem).lstrip("._-")[:60]
    return name if is_name(name) else "task"
