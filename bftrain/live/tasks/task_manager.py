"""Task manager: the state of each task, from the reports of launchers, and what is stored and learned of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from msgspec.structs import replace

from bftrain.deciding.harvester import Harvester
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.tasks.harvest_by_day import DailyHarvest
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.live.tasks.task_progress import TaskProgressTrack, TaskProgressTracks
from bftrain.live.tasks.task_store import TaskStore
from bftrain.values.events import Event, TaskCancelled, TaskFailed, TaskFinished, TaskMeasured
from bftrain_elastic.errors import BadJob

_REASON_LETTERS: Final = 4000
_ALL_OF_IT: Final = 0.999  # of the work: whole batches seldom come to it exactly


class TaskManager:
    """Memory, tracks and harvest, changed together. ``now`` gives the time on the clock of the events."""

    def __init__(
        self,
        memory: TaskStore,
        harvester: Harvester,
        carriers: LauncherPool,
        now: Callable[[], float],
        remark: Callable[[str], None],
    ) -> None:
        self.tracks = TaskProgressTracks()
        self.harvest = DailyHarvest(memory.fact("harvest"))
        self._memory = memory
        self._harvester = harvester
        self._carriers = carriers
        self._now = now
        self._remark = remark
        self._ended: list[str] = []  # tasks whose launchers still know them
        self.held_up: dict[str, str] = {}  # unfinished tasks that cannot be run now -> why
        self._attempts: dict[str, asyncio.Future[None]] = {}  # to let launchers know of tasks; each may hang

    async def take_up(self, kept: LiveTaskRecord, patience_s: float) -> None:
        """Go on with a task after a restart.

        One whose job is refused has failed. One that cannot be run as things are, for a file system that is not there
        or a launcher that is broken, is held up: it is to be tried again.
        """
        name, track = kept.name, self.tracks.get(kept.name) or self.begin(kept)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = self._attempts[name] = asyncio.ensure_future(
                run_in_daemon_thread(lambda: self._carriers.add(kept))
            )
        await asyncio.wait((attempt,), timeout=patience_s)
        if self.tracks.get(name) is not track:
            return  # it was cancelled meanwhile
        if not attempt.done():
            self._hold_up(name, f"its folder '{kept.run.folder}' does not answer")
            return
        del self._attempts[name]
        error = attempt.exception()
        if error is None:
            self.held_up.pop(name, None)
            held = self._harvester.held.get(name)
            if held:
                track.held, track.held_since_s, track.skip_start = held, self._now(), True
        elif isinstance(error.__cause__, BadJob):
            self._remark(f"task '{name}' cannot go on: {error}")
            self.over(name, LiveTaskState.FAILED, str(error))
        else:
            self._hold_up(name, str(error) or type(error).__name__)

    def _hold_up(self, name: str, why: str) -> None:
        if self.held_up.get(name) != why:
            self._remark(f"task '{name}' cannot go on for now, and is tried again: {why}")
        self.held_up[name] = why

    def begin(self, kept: LiveTaskRecord) -> TaskProgressTrack:
        """Follow a task from now on."""
        self.harvest.begin(kept.number, kept.progress)
        return self.tracks.begin(kept)

    def happened(self, event: Event) -> None:
        """Know what an event means for a task."""
        match event:
            case TaskFinished():
                self.over(event.task, LiveTaskState.DONE)
            case TaskCancelled():
                self.over(event.task, LiveTaskState.CANCELLED)
            case TaskFailed():
                self._failed(event.task, event.reason)

    def hold(self, *, decided: bool = False, gone: Collection[str] = ()) -> None:
        """Know who holds what now: by a decision, or because of events, by which nodes are ``gone``."""
        self.tracks.hold(self._harvester.held, self._now(), decided=decided, gone=gone)

    def over(self, name: str, state: LiveTaskState, reason: str = "") -> None:
        """Know that a task is over, and forget what only the unfinished need."""
        kept, track = self._memory.get(name), self.tracks.end(name)
        self._ended.append(name)
        self.held_up.pop(name, None)
        attempt = self._attempts.pop(name, None)
        if attempt is not None:
            attempt.add_done_callback(lambda done: self._attempted(name, done))
        if kept is None or track is None:
            return
        now = self._now()
        track.hold((), now)
        self._count(kept.number, track.progress, now)
        self.harvest.forget((kept.number,))
        self._memory.change(
            replace(kept, state=state, progress=track.progress, ended_s=now, reason=reason or kept.reason)
        )

    def _count(self, number: int, progress: Progress, now: float) -> None:
        """Have what a task did counted as harvest, written down together with its progress."""
        self.harvest.count(number, progress, now)
        self._memory.know("harvest", self.harvest.text)

    def _attempted(self, name: str, attempt: asyncio.Future[None]) -> None:
        """Have a launcher forget a task that it came to know when that was over."""
        if not attempt.cancelled() and attempt.exception() is None and self._memory.get(name) is None:
            self._carriers.drop(name)

    def written(self) -> None:
        """Have launchers forget the tasks that are over, now that it is written down that they are."""
        while self._ended:
            self._carriers.drop(self._ended.pop())

    def _failed(self, name: str, reason: str) -> None:
        kept, track = self._memory.get(name), self.tracks.get(name)
        if kept is None or track is None:
            return
        reason = reason[-_REASON_LETTERS:]
        self._remark(f"task '{name}' failed: {reason.partition(chr(10))[0]}")
        track.progress = replace(track.progress, failures=track.progress.failures + 1)
        if name in self._harvester.unfinished:  # it gets another try
            now = self._now()
            progress = track.settle(now)
            self._count(kept.number, progress, now)
            self._memory.change(replace(kept, reason=reason, progress=progress))
        else:
            self.over(name, LiveTaskState.FAILED, reason)

    def trouble(self, name: str, text: str) -> None:
        """Remember the last trouble of a task."""
        kept, text = self._memory.get(name), text[-_REASON_LETTERS:]
        if kept is not None and kept.reason != text:
            self._memory.change(replace(kept, reason=text))

    def missing(self, name: str) -> str:
        """Say how much of its work a task has not done that is done; "" if it has done all of it."""
        track = self.tracks.get(name)
        work = None if track is None else track.kept.spec.work_samples
        if track is None or work is None or not track.progress.step or track.progress.samples >= work * _ALL_OF_IT:
            return ""  # how much a task that never reports has done is unknown
        return f"ended well after {track.progress.samples:,.0f} of {work:,.0f} samples"

    # -- progress

    def heard(self, message: Mapping[str, Any]) -> TaskProgressTrack | None:
        """Take in what a launcher tells of a task; gives its track if it is unfinished."""
        track = self.tracks.get(message["task"])
        if track is not None:
            track.hear(message)
        return track

    def learned(self) -> list[TaskMeasured]:
        """Give what the decisions should know, and have tasks run where something is to be measured."""
        now, events = self._now(), []
        for track in self.tracks:
            name = track.kept.name
            if track.news and name in self._harvester.unfinished:
                event = track.learn(self._harvester.spec(name), now)
                events += [] if event is None else [event]
                self._narrow(track)
        return events

    def narrow(self) -> None:
        """Have tasks run on as many of their nodes as is worth knowing of."""
        for track in self.tracks:
            self._narrow(track)

    def _narrow(self, track: TaskProgressTrack) -> None:
        name = track.kept.name
        size = track.size_to_run() if self._carriers.can_narrow(name) else None
        if size != track.narrowed:
            track.narrowed = size
            self._carriers.narrow(name, size)

    def work_left(self, time_s: float) -> list[TaskMeasured]:
        """Say how much work is left of tasks that run, for objectives that look at it."""
        return [
            TaskMeasured(time_s=time_s, task=track.kept.name, work_left_samples=max(0.0, work - track.progress.samples))
            for track in self.tracks
            if track.held and (work := track.kept.spec.work_samples) is not None
        ]

    def progress(self, names: Collection[str] | None = None) -> None:
        """See that it is written down how far tasks came: these, or all."""
        now = self._now()
        for track in self.tracks if names is None else filter(None, map(self.tracks.get, names)):
            if track.held or track.progress != track.kept.progress:
                progress = track.settle(now)
                self._memory.progressed(track.kept.name, progress)
                self.harvest.count(track.kept.number, progress, now)
        self._memory.know("harvest", self.harvest.text)
