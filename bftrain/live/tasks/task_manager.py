"""Task manager: the state of each task, from the reports of launchers, and what is stored and learned of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from bftrain.deciding.harvester import Harvester
from bftrain.errors import BftrainError
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.schemas import Harvested
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.live.tasks.task_progress import TaskProgressTrack
from bftrain.live.tasks.task_store import TaskStore
from bftrain.values import wire
from bftrain.values.events import Event, TaskCancelled, TaskFailed, TaskFinished, TaskMeasured
from bftrain_elastic.errors import BadJob

_REASON_LETTERS: Final = 4000
_ALL_OF_IT: Final = 0.999  # of the work: whole batches seldom come to it exactly


@dataclass(eq=False, repr=False)
class TaskManager:
    """Memory, tracks and harvest, changed together. ``now`` gives the time on the clock of the events."""

    _task_store: TaskStore
    _harvester: Harvester
    _launcher_pool: LauncherPool
    _now: Callable[[], float]
    _remark: Callable[[str], None]

    def __post_init__(self) -> None:
        self.tracks: dict[str, TaskProgressTrack] = {}  # of all unfinished tasks
        self.harvest = DailyHarvest(self._task_store.fact("harvest"))
        self._ended: list[str] = []  # tasks whose launchers still know them
        self.held_up: dict[str, str] = {}  # unfinished tasks that cannot be run now -> why
        self._attempts: dict[str, asyncio.Future[None]] = {}  # to let launchers know of tasks; each may hang

    async def restore(self, record: LiveTaskRecord, patience_s: float) -> None:
        """Go on with a task after a restart.

        One whose job is refused has failed. One that cannot be run as things are, for a file system that is not there
        or a launcher that is broken, is held up: it is to be tried again.
        """
        name, track = record.name, self.tracks.get(record.name) or self.begin(record)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = self._attempts[name] = asyncio.ensure_future(
                run_in_daemon_thread(lambda: self._launcher_pool.add(record))
            )
        await asyncio.wait((attempt,), timeout=patience_s)
        if self.tracks.get(name) is not track:
            return  # it was cancelled meanwhile
        if not attempt.done():
            self._hold_up(name, f"its folder '{record.run.folder}' does not answer")
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

    def begin(self, record: LiveTaskRecord) -> TaskProgressTrack:
        """Follow a task from now on."""
        self.harvest.begin(record.number, record.progress)
        track = self.tracks[record.name] = TaskProgressTrack(record, record.progress)
        return track

    def on_event(self, event: Event) -> None:
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
        holdings, now = self._harvester.held, self._now()
        for name, track in self.tracks.items():
            track.hold(holdings.get(name, ()), now, decided=decided, gone=gone)

    def over(self, name: str, state: LiveTaskState, reason: str = "") -> None:
        """Know that a task is over, and forget what only the unfinished need."""
        record, track = self._task_store.get(name), self.tracks.pop(name, None)
        self._ended.append(name)
        self.held_up.pop(name, None)

        def attempted(done: asyncio.Future[None]) -> None:
            """Have its launcher forget it if that comes to know it only now."""
            if not done.cancelled() and done.exception() is None and self._task_store.get(name) is None:
                self._launcher_pool.drop(name)

        if (attempt := self._attempts.pop(name, None)) is not None:
            attempt.add_done_callback(attempted)
        if record is None or track is None:
            return
        now = self._now()
        track.hold((), now)
        self._count(record.number, track.progress, now)
        self.harvest.forget(record.number)
        self._task_store.change(
            replace(record, state=state, progress=track.progress, ended_s=now, reason=reason or record.reason)
        )

    def _count(self, number: int, progress: Progress, now: float) -> None:
        """Have what a task did counted as harvest, written down together with its progress."""
        self.harvest.count(number, progress, now)
        self._task_store.record_fact("harvest", self.harvest.text)

    def written(self) -> None:
        """Have launchers forget the tasks that are over, now that it is written down that they are."""
        while self._ended:
            self._launcher_pool.drop(self._ended.pop())

    def _failed(self, name: str, reason: str) -> None:
        record, track = self._task_store.get(name), self.tracks.get(name)
        if record is None or track is None:
            return
        reason = reason[-_REASON_LETTERS:]
        self._remark(f"task '{name}' failed: {reason.partition(chr(10))[0]}")
        track.progress = replace(track.progress, failures=track.progress.failures + 1)
        if name in self._harvester.unfinished:  # it gets another try
            now = self._now()
            progress = track.advance_to(now)
            self._count(record.number, progress, now)
            self._task_store.change(replace(record, reason=reason, progress=progress))
        else:
            self.over(name, LiveTaskState.FAILED, reason)

    def trouble(self, name: str, text: str) -> None:
        """Remember the last trouble of a task."""
        record, text = self._task_store.get(name), text[-_REASON_LETTERS:]
        if record is not None and record.reason != text:
            self._task_store.change(replace(record, reason=text))

    def missing(self, name: str) -> str:
        """Say how much of its work a task has not done that is done; "" if it has done all of it."""
        track = self.tracks.get(name)
        work = None if track is None else track.record.spec.work_samples
        if track is None or work is None or not track.progress.step or track.progress.samples >= work * _ALL_OF_IT:
            return ""  # how much a task that never reports has done is unknown
        return f"ended well after {track.progress.samples:,.0f} of {work:,.0f} samples"

    # -- progress

    def on_message(self, message: Mapping[str, Any]) -> TaskProgressTrack | None:
        """Take in what a launcher tells of a task; gives its track if it is unfinished."""
        track = self.tracks.get(message["task"])
        if track is not None:
            track.on_message(message)
        return track

    def learned(self) -> list[TaskMeasured]:
        """Give what the decisions should know, and have tasks run where something is to be measured."""
        now, events = self._now(), []
        for name, track in self.tracks.items():
            if track.news and name in self._harvester.unfinished:
                event = track.learn(self._harvester.spec(name), now)
                events += [] if event is None else [event]
                self._narrow(track)
        return events

    def narrow(self) -> None:
        """Have tasks run on as many of their nodes as is worth knowing of."""
        for track in self.tracks.values():
            self._narrow(track)

    def _narrow(self, track: TaskProgressTrack) -> None:
        name = track.record.name
        size = track.size_to_run()
        if size != track.narrowed:
            track.narrowed = size
            self._launcher_pool.narrow(name, size)

    def work_left(self, time_s: float) -> list[TaskMeasured]:
        """Say how much work is left of tasks that run, for objectives that look at it."""
        return [
            TaskMeasured(
                time_s=time_s, task=track.record.name, work_left_samples=max(0.0, work - track.progress.samples)
            )
            for track in self.tracks.values()
            if track.held and (work := track.record.spec.work_samples) is not None
        ]

    def progress(self, names: Collection[str] | None = None) -> None:
        """See that it is written down how far tasks came: these, or all."""
        now = self._now()
        for track in self.tracks.values() if names is None else filter(None, map(self.tracks.get, names)):
            if track.held or track.progress != track.record.progress:
                progress = track.advance_to(now)
                self._task_store.progressed(track.record.name, progress)
                self.harvest.count(track.record.number, progress, now)
        self._task_store.record_fact("harvest", self.harvest.text)


_DAYS: Final = 31


class DailyHarvest:
    """Samples and node-seconds by day, from the progress of tasks."""

    def __init__(self, text: str = "") -> None:
        self._seen: dict[int, Progress] = {}  # task -> what of it is counted already
        try:
            known = wire.decode(text, tuple[Harvested, ...]) if text else ()
        except BftrainError:
            known = ()  # it is for people to look at, nothing depends on it
        self._days = {one.day: one for one in known}

    def begin(self, number: int, progress: Progress) -> None:
        """Know what a task had done before."""
        self._seen[number] = progress

    def count(self, number: int, progress: Progress, time_s: float) -> None:
        """Count what a task did since it was counted last."""
        before = self._seen.get(number, Progress())
        self._seen[number] = progress
        samples, node_s = progress.harvested - before.harvested, progress.node_s - before.node_s
        if samples or node_s:
            day = time.strftime("%Y-%m-%d", time.localtime(time_s))
            today = self._days.get(day) or Harvested(day=day)
            self._days[day] = replace(today, samples=today.samples + samples, node_s=today.node_s + node_s)
            for old in sorted(self._days)[:-_DAYS]:
                del self._days[old]

    def forget(self, number: int) -> None:
        """Forget a task that is over."""
        self._seen.pop(number, None)

    @property
    def days(self) -> tuple[Harvested, ...]:
        """Give the days, the last one last."""
        return tuple(self._days[day] for day in sorted(self._days))

    @property
    def text(self) -> str:
        """Its JSON form, to go on from."""
        return wire.encode(self.days).decode()
