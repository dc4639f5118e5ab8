"""Tasks from their submission on: what is kept and refused, edits, order, and progress to the step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import (
    BadInput,
    BadValue,
    BatchScaling,
    BftrainError,
    NotAllowed,
    NotFound,
    NotNow,
    Run,
    SpeedCurve,
    Submission,
    TaskMeasured,
    TaskSpec,
    UnknownName,
)
from bftrain.live.daemon.task_manager import TaskProgressTrack
from bftrain.live.model.schemas import Pause
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import Api, Caller, LiveTaskRecord, Progress, in_a_loop, live_inside, wire
from tests.helpers.timeouts import set_limits


@in_a_loop
async def test_a_task_without_a_name_is_called_after_its_script(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        names = [
            (await service.submit(ANN, submission(run=Run(argv=(argv0,))))).name
            for argv0 in ("/x/train.py", "/y/train.py", "/x/ü b.py", "-", "a" * 200)
        ]
        assert names == ["train", "train-2", "b", "task", "a" * 60]


@in_a_loop
async def test_only_operators_give_a_task_more_weight_than_the_site_allows(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, _):
        with pytest.raises(NotAllowed, match="weight: 1e\\+06 is more than 'ann' may give") as refused:
            await service.submit(ANN, submission("a", weight=1e6))
        assert "give 1 or less, or ask an operator: [api] max_weight" in str(refused.value.fix)
        assert service.tasks(CHIEF, all=True) == ()
        assert (await service.submit(ANN, submission("a", weight=1.0))).weight == 1.0
        assert (await service.submit(CHIEF, submission("b", weight=1e6))).weight == 1e6
    (tmp_path / "other").mkdir()
    async with live_inside(tmp_path / "other", api=Api(max_weight=4.0)) as (_, service, _, _):
        assert (await service.submit(ANN, submission("a", weight=4.0))).weight == 4.0
        with pytest.raises(NotAllowed, match="give 4 or less"):
            await service.submit(ANN, submission("b", weight=4.5))


@in_a_loop
async def test_names_by_user_tell_nothing_of_the_tasks_of_others(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=Api(names_by_user=True)) as (_, service, _, _):
        script = Run(argv=("/x/cnn.py",))
        names = [
            (await service.submit(caller, submission(name, run=script))).name
            for caller, name in ((ANN, "cnn"), (BOB, "cnn"), (BOB, ""), (CHIEF, "cnn"), (CHIEF, ""))
        ]
        assert names == ["cnn@ann", "cnn@bob", "cnn-2@bob", "cnn", "cnn-2"]
        assert [service.task(caller, "cnn").number for caller in (ANN, BOB, CHIEF)] == [1, 2, 4]
        assert service.task(CHIEF, "cnn@bob").number == 2
        with pytest.raises(NotNow, match="called 'cnn@ann' already"):
            await service.submit(ANN, submission("cnn"))
        with pytest.raises(NotFound, match="no task is called 'cnn@bob'"):
            service.task(ANN, "cnn@bob")
        assert (await service.cancel(BOB, "cnn")).name == "cnn@bob"
        odd = Caller(uid=70009, user="CORP\\ann@x", operator=False)
        assert (await service.submit(odd, submission("cnn"))).name == "cnn@70009"


@in_a_loop
async def test_a_task_is_kept_as_it_was_handed_in(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, world):
        curve = SpeedCurve(nodes=(1, 2), rate=(10.0, 19.0))
        given = submission(
            "a", 2, curve=curve, work_samples=50.0, weight=0.5, deadline_s=9e9, campaign="c", start_cost_s=1.5
        )
        view = await service.submit(ANN, given)
        assert (view.number, view.user, view.state, view.size, view.launcher) == (1, "ann", "waiting", 0, "inside")
        assert (view.work_samples, view.weight, view.deadline_s, view.campaign) == (50.0, 0.5, 9e9, "c")
        assert view.folder == str(tmp_path / "live" / "tasks" / "000001-a")
        assert world.asked("add") == ["a"]
        assert world.jobs["a"]["argv"] == ("/home/ann/train.py",)
        assert service.task(ANN, "#1") == service.task(ANN, "a")


@in_a_loop
async def test_a_refused_task_leaves_nothing_behind(tmp_path: Path) -> None:
    own = Run(argv=("x",), folder=str(tmp_path / "own"))
    refused: list[tuple[dict[str, Any], type[BftrainError], str]] = [
        ({"name": "a"}, NotNow, "'a' already"),
        ({"run": own}, NotNow, "this folder already"),
        ({"launcher": "insid"}, UnknownName, "'inside'"),
        ({"launcher": "native"}, UnknownName, "native"),
        ({"weight": -1.0}, BadInput, "at least 0"),
        ({"work_samples": 0.0}, BadInput, "above 0"),
    ]
    async with live_inside(tmp_path, launchers=("inside",)) as (_, service, _, world):
        await service.submit(ANN, submission("a", run=own))
        for given, kind, words in refused:
            with pytest.raises(kind, match=words):
                await service.submit(ANN, submission(**{"name": "b", **given}))
        assert [task.name for task in service.tasks(ANN, all=True)] == ["a"]
        assert world.asked("add") == ["a"]


@in_a_loop
async def test_there_is_an_end_to_how_many_wait_and_no_user_fills_the_queue_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, unfinished_tasks=5, unfinished_tasks_of_user=2)
    async with live_inside(tmp_path) as (_, service, _, _):
        for number, caller in enumerate((ANN, ANN, CHIEF, CHIEF)):
            await service.submit(caller, submission(f"t{number}"))
        with pytest.raises(NotNow, match="you have 2 unfinished"):
            await service.submit(ANN, submission("more"))
        await service.submit(CHIEF, submission("t4"))
        with pytest.raises(NotNow, match="5 unfinished"):
            await service.submit(BOB, submission("more"))
        await service.cancel(ANN, "t0")
        assert (await service.submit(BOB, submission("more"))).number == 6


@in_a_loop
async def test_a_launcher_that_refuses_a_job_is_heard(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as (_, service, _, world):
        world.breaks["add"] = BadInput("no such command", where="argv")
        with pytest.raises(BadInput, match="no such command"):
            await service.submit(ANN, submission("a"))
        del world.breaks["add"]
        assert service.tasks(ANN, all=True) == ()
        assert (await service.submit(ANN, submission("a"))).number == 1


@in_a_loop
async def test_a_folder_that_is_spelled_differently_is_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    spellings = [f"{folder}/", f"{tmp_path}/./mine", f"{tmp_path}/x/../mine", str(tmp_path / "link"), f"/{folder}"]

    def in_it(spelled: str) -> Submission:
        return submission(run=Run(argv=("train.py",), folder=spelled))

    async with live_inside(tmp_path) as (daemon, service, _, world):
        first = await service.submit(ANN, in_it(spellings[3]))
        assert first.folder == spellings[3], "and it stays as it was said"
        for spelled in [*spellings, str(folder)]:
            with pytest.raises(NotNow, match="has this folder already"):
                await service.submit(BOB, in_it(spelled))
        await service.submit(BOB, in_it(str(tmp_path / "another")))
    async with live_inside(tmp_path, world) as (daemon, service, _, _):
        with pytest.raises(NotNow, match="has this folder already"):
            await service.submit(BOB, in_it(spellings[0]))
        await service.cancel(ANN, first.name)
        await service.submit(BOB, in_it(spellings[0]))
        taken = tmp_path / "live" / "tasks" / f"{daemon.task_store.next_number + 1:06d}-task"
        await service.submit(ANN, submission(run=Run(argv=("x",), folder=f"{taken}/")))
        with pytest.raises(NotNow, match="has this folder already"):
            await service.submit(ANN, submission("task"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"argv": ()}, "argv: must be a list of length >= 1"),
        ({"argv": ("a", "")}, r"argv\[1\]: must be text of length >= 1"),
        ({"argv": ("a\0",)}, "NUL"),
        ({"argv": ("a",), "cwd": "b"}, "cwd: must be an absolute path"),
        ({"argv": ("a",), "folder": "b"}, "folder: must be an absolute path"),
        ({"argv": ("a",), "env": {"": "x"}}, "key in env: must be a name without '='"),
        ({"argv": ("a",), "env": {"A=B": "x"}}, "key in env"),
        ({"argv": ("a",), "env": {"A": "x\0"}}, "NUL"),
        ({"argv": ("a" * 100_001,)}, "too long"),
        ({"argv": ("a",), "stop_grace_s": -1.0}, ">= 0"),
        ({"argv": ("a",), "workers_per_node": -1}, ">= 0"),
        ({"argv": ("a",), "workers_per_node": 10**30}, "<= 65536"),
        ({"argv": ("a",), "stop_grace_s": float("inf")}, "stop_grace_s: must be finite"),
        ({"argv": ("a",), "stall_limit_s": float("inf")}, "stall_limit_s: must be finite"),
    ],
)
def test_what_cannot_be_run(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        wire.convert(given, Run)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_nodes": 0}, "max_nodes: must be a whole number >= 1"),
        ({"max_nodes": 1_000_001}, "<= 1000000"),
        ({"max_nodes": 2, "min_nodes": 0}, ">= 1"),
        ({"max_nodes": 2, "min_nodes": 3}, "below min_nodes = 3"),
        ({"max_nodes": 2, "name": "a/b"}, "letters, digits"),
        ({"max_nodes": 2, "work_samples": float("inf")}, "work_samples: must be finite"),
        ({"max_nodes": 2, "weight": float("inf")}, "weight: must be finite"),
        ({"max_nodes": 2, "name": "a\n"}, "letters, digits"),
    ],
)
def test_what_cannot_be_handed_in(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        wire.convert({"run": {"argv": ["a"]}, **given}, Submission)


@pytest.mark.parametrize(("kind", "name"), [(Pause, "for_s")])
def test_no_change_or_pause_is_infinite(kind: Any, name: str) -> None:  # noqa: ANN401 - a struct
    with pytest.raises(BadValue, match=f"{name}: must be finite"):  # as JSON it would be null
        kind(**{name: float("inf")})


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
    hear("copied", step=69)
    assert hear("paused", step=70) == (0, 62)
    assert track.copied_step == 69, "the copy on another node outlives all nodes of the task"
    hear("copied", step=0)
    assert track.copied_step == 0


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
    assert wire.decode(wire.encode(track.progress), Progress) == track.progress


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


def train_on(track: TaskProgressTrack, kind: str, samples_per_s: float, t: float) -> None:
    """Start on a node of a kind, and report 40 steps of 10 samples each."""
    track.kind = kind
    track.on_message({"type": "starting", "task": "a", "t": t})
    track.on_message({"type": "confirmed", "task": "a", "t": t, "size": 1, "step": track.progress.step})
    for number in range(1, 41):
        at = {"t": t + number * 10.0 / samples_per_s, "size": 1}
        track.on_message(a_report(track.progress.step + 1, 10) | at)


def rates(learned: TaskMeasured | None) -> dict[str, float]:
    assert learned is not None
    assert learned.curves is not None
    return {kind: pytest.approx(curve.speed(1)) for kind, curve in learned.curves.items()}


def test_speeds_are_measured_by_kind_and_completed_by_the_ratios_of_other_tasks() -> None:
    curves = dict.fromkeys(("k80", "p100", "v100"), SpeedCurve(nodes=(1,), rate=(1.0,)))
    record = replace(kept_task(), guessed=True, spec=replace(kept_task().spec, curves=curves, max_nodes=1))
    track = TaskProgressTrack(record, Progress())
    train_on(track, "k80", 20.0, 0.0)
    learned = track.learn(record.spec, 100.0, ratios={"v100": 4.0})
    assert rates(learned) == {"k80": 20.0, "v100": 80.0, "p100": 20.0}
    assert learned is not None
    spec = replace(record.spec, curves=learned.curves)
    train_on(track, "v100", 50.0, 200.0)
    again = track.learn(spec, 300.0, ratios={"k80": 0.25, "p100": 0.5})
    assert rates(again) == {"k80": 20.0, "v100": 50.0, "p100": 25.0}
    assert {kind: dict(speeds) for kind, speeds in track.speeds_of.items()} == {
        "k80": {1: pytest.approx(20.0)},
        "v100": {1: pytest.approx(50.0)},
    }
    kept = wire.decode(wire.encode(track.progress), Progress)
    after = TaskProgressTrack(replace(record, progress=kept), kept)
    assert after.speeds_of == track.speeds_of, "a restart forgets no kind"


def test_stated_speeds_on_other_kinds_stay() -> None:
    curves = {"k80": SpeedCurve(nodes=(1,), rate=(5.0,)), "v100": SpeedCurve(nodes=(1,), rate=(100.0,))}
    record = replace(kept_task(), spec=replace(kept_task().spec, curves=curves, max_nodes=1))
    track = TaskProgressTrack(record, Progress())
    train_on(track, "k80", 20.0, 0.0)
    assert rates(track.learn(record.spec, 100.0, ratios={"v100": 2.0})) == {"k80": 20.0, "v100": 100.0}
