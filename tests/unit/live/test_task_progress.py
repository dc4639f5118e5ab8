"""Samples are counted to the step, whichever lines are lost and however often the counting process is killed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import BatchScaling, Run, SpeedCurve, TaskSpec
from bftrain.live.tasks.task_progress import TaskProgressTrack
from bftrain.values import wire
from tests.helpers.live_inside import LiveTaskRecord, Progress

BATCH = 32


def kept_task(progress: Progress | None = None) -> LiveTaskRecord:
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    return LiveTaskRecord(
        number=1,
        name="a",
        uid=0,
        user="me",
        launcher="native",
        spec=TaskSpec(name="a", curve=curve, min_nodes=1, max_nodes=4, submit_s=0.0),
        guessed=False,
        run=Run(argv=("train.py",)),
        submitted_s=0.0,
        progress=progress or Progress(),
    )


def a_report(step: int, samples: int, *, total: int | None = None, since: int = 0) -> dict[str, Any]:
    sent = {"type": "report", "task": "a", "t": float(step), "step": step, "size": 1, "samples": samples, "loss": None}
    return sent if total is None else {**sent, "total": total, "since": since}


class Counter:
    """Counts reports in tracks that are killed at any time, and then know what was written down some time before."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - the same losses every time
        self.written = Progress()
        self.track = TaskProgressTrack(kept_task(), self.written)
        self.heard: list[float] = []

    def hear(self, message: dict[str, Any], *, always: bool = False) -> None:
        """Hear a line, if it is not lost."""
        if always or self.dice.random() < 0.7:
            self.track.on_message(message)
            self.heard.append(self.track.progress.samples)
        if self.dice.random() < 0.1:  # as it is in a journal
            self.written = wire.decode(wire.encode(self.track.progress), Progress)
        if self.dice.random() < 0.03:
            self.track = TaskProgressTrack(kept_task(self.written), self.written)
            self.heard.append(self.written.samples)

    @property
    def samples(self) -> float:
        return self.track.progress.samples


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_from_the_beginning_is_exact_though_lines_are_lost_and_steps_done_again(seed: int) -> None:
    counter = Counter(seed)
    done = {0: 0}
    step = furthest = 0
    while step < 600:
        if counter.dice.random() < 0.02:
            step = max(0, step - counter.dice.randrange(5))  # back to a commit, and its sum
        step += 1
        done[step] = done[step - 1] + BATCH + step % 7
        furthest = max(furthest, step)
        counter.hear(a_report(step, BATCH + step % 7, total=done[step]), always=step == 600)
    counter.track.on_message(a_report(step, BATCH + step % 7, total=done[step]))
    assert (counter.track.progress.step, counter.samples) == (furthest, done[600])


@pytest.mark.parametrize("seed", range(5))
def test_sums_of_processes_that_are_started_again_are_exact_to_the_step(seed: int) -> None:
    counter = Counter(seed)
    step = done = 0
    while step < 600:
        since = max(0, step - counter.dice.randrange(5)) if counter.dice.random() < 0.7 else step
        step, total = since, 0
        for _ in range(counter.dice.randrange(1, 90)):
            step, total = step + 1, total + BATCH
            done = max(done, step)
            counter.hear(a_report(step, BATCH, total=total, since=since))
        counter.track.on_message(a_report(step, BATCH, total=total, since=since))  # its agent tells the last line again
    assert (counter.track.progress.step, counter.samples) == (done, BATCH * done)


def test_a_script_that_reports_now_and_then_is_not_taken_for_one_whose_lines_are_lost() -> None:
    track = TaskProgressTrack(kept_task(), Progress())
    for since, steps in ((9, range(10, 101, 10)), (99, range(100, 201, 10)), (209, range(210, 301, 10))):
        for number, step in enumerate(steps, start=1):
            track.on_message(a_report(step, 320, total=320 * number, since=since))
    assert (track.progress.step, track.progress.samples) == (300, 9600)


def test_what_was_done_before_the_task_in_its_folder_counts_as_done_and_is_no_harvest() -> None:
    track = TaskProgressTrack(kept_task(), Progress())
    track.on_message({"type": "confirmed", "task": "a", "size": 1, "step": 100})
    track.on_message(a_report(111, 10, total=1110))
    assert (track.progress.samples, track.progress.harvested) == (1110, 110)
    track.on_message(a_report(120, 10, total=1200))
    assert (track.progress.samples, track.progress.harvested) == (1200, 200)


def test_a_task_that_began_by_itself_has_harvested_all_of_it() -> None:
    track = TaskProgressTrack(kept_task(), Progress(earlier_samples=0.0))
    track.on_message(
        {"type": "confirmed", "task": "a", "size": 1, "step": 50}
    )  # taken over by a daemon that was restarted
    track.on_message(a_report(60, 10, total=600))
    assert (track.progress.samples, track.progress.harvested) == (600, 600)


def test_an_end_may_tell_the_sum_too() -> None:
    track = TaskProgressTrack(kept_task(), Progress(samples=400.0, step=40))
    track.on_message({"type": "done", "task": "a", "t": 1.0, "step": 80, "total": 800})
    assert (track.progress.samples, track.progress.step) == (800, 80)


def test_progress_of_older_journals_still_reads() -> None:
    old = b'{"samples":120.0,"step":12,"loss":0.5,"node_s":3.0,"preemptions":2}'
    progress = wire.decode(old, Progress)
    assert (progress.samples, progress.harvested, progress.counted_since) == (120.0, 120.0, None)
    track = TaskProgressTrack(kept_task(progress), progress)
    track.on_message(a_report(20, 10, total=200))
    assert (track.progress.samples, track.progress.harvested) == (200, 200)


def test_in_memory_is_lost_with_all_nodes_and_with_all_but_one_and_on_disk_is_not() -> None:
    track = TaskProgressTrack(kept_task(), Progress())

    def hear(what: str, **more: int) -> tuple[int, int]:
        track.on_message({"type": what, "task": "a", "t": 0.0, **more})
        return track.progress.in_memory_step, track.progress.committed_step

    assert hear("confirmed", size=2, step=0) == (0, 0)
    assert hear("in_memory", step=30) == (30, 0)
    assert hear("on_disk", step=25) == (30, 25)
    assert hear("in_memory", step=60) == (60, 25)
    assert hear("confirmed", size=3, step=58) == (58, 25)
    assert hear("on_disk", step=20) == (58, 25)
    assert hear("confirmed", size=1, step=61) == (0, 25)
    assert hear("on_disk", step=62) == (0, 62)
    assert hear("confirmed", size=2, step=62) == (0, 62)
    assert hear("in_memory", step=70) == (70, 62)
    assert hear("paused", step=70) == (0, 62)


def test_decisions_learn_the_noise_scale_that_is_reported_smoothed_and_where_it_has_changed() -> None:
    batch = BatchScaling(initial=64, largest=1024, noise_scale=1000.0)
    record = replace(kept_task(), spec=replace(kept_task().spec, batch=batch))
    track = TaskProgressTrack(record, Progress())
    for step, noise in enumerate((1040.0, None, 1040.0), start=1):
        track.on_message(a_report(step, 64) | ({} if noise is None else {"noise": noise}))
    assert track.progress.noise_scale == pytest.approx(1040.0)
    assert track.learn(record.spec, 100.0) is None, "a tenth more is worth no decision"
    track.on_message(a_report(4, 64) | {"noise": 3040.0})
    learned = track.learn(record.spec, 200.0)
    assert learned is not None
    assert (learned.noise_scale, learned.curve) == (pytest.approx(1240.0), None)
    assert wire.decode(wire.encode(track.progress), Progress) == track.progress
    without = TaskProgressTrack(kept_task(), Progress())
    without.on_message(a_report(1, 64) | {"noise": 5.0})
    assert without.learn(kept_task().spec, 100.0) is None, "it says no batches"


def test_samples_of_large_batches_count_for_the_work_as_much_as_they_help() -> None:
    spec = replace(
        kept_task().spec, work_samples=1000.0, batch=BatchScaling(initial=50, largest=1000, noise_scale=100.0)
    )
    track = TaskProgressTrack(replace(kept_task(), spec=spec), Progress())
    track.on_message(a_report(1, 50))
    assert track.progress.done_samples == track.progress.samples == 50.0
    track.on_message(a_report(2, 200))
    assert (track.progress.samples, track.progress.done_samples) == (250.0, 150.0)  # a half of 200
    track.on_message(a_report(3, 200) | {"noise": 400.0})
    assert track.progress.done_samples == pytest.approx(150.0 + 200.0 * 450.0 / 600.0)
    assert replace(track.record, progress=track.progress).work_left == pytest.approx(700.0)
    assert wire.decode(wire.encode(track.progress), Progress) == track.progress


def test_a_task_without_a_curve_that_names_kinds_is_measured_for_these() -> None:
    guess = SpeedCurve(nodes=(4,), rate=(4.0,))
    record = kept_task(Progress(speeds={1: 70.0}, settled=(1,)))
    spec = replace(record.spec, curve=guess, curves={"v100": guess, "k80": guess})
    track = TaskProgressTrack(replace(record, guessed=True, spec=spec), record.progress)
    track.news = True
    event = track.learn(spec, 1e9)
    assert event is not None
    assert event.curve is not None
    assert event.curve.rate[0] == 70.0
    assert event.curves == {"v100": event.curve, "k80": event.curve}


def test_an_unfinished_start_costs_at_least_the_time_so_far() -> None:
    track, spec = TaskProgressTrack(kept_task(), Progress()), kept_task().spec
    track.on_message({"type": "starting", "task": "a", "t": 100.0, "nodes": ["n1"]})
    costs = []
    for time_s in (103.0, 140.0, 170.0, 1000.0):
        event = track.learn(spec, time_s)
        if event is not None and event.start_cost_s is not None:
            spec = replace(spec, start_cost_s=event.start_cost_s)
            costs.append(event.start_cost_s)
    assert costs == [3.0, 40.0, 70.0, 300.0], "a program that reports no steps does not start for ever"
    track.on_message(a_report(1, BATCH))
    assert (track.starts, track.starting_since) == (0, None)
