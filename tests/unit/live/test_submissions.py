"""What is kept of a task that is handed in, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, BftrainError, NotAllowed, NotFound, NotNow, Run, SpeedCurve, Submission, UnknownName
from tests.helpers.live_callers import ANN, BOB, CHIEF, submission
from tests.helpers.live_inside import Api, Caller, in_a_loop, live_inside
from tests.helpers.live_limits import set_limits


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
        assert "give at most 1, or ask an operator: [api] max_weight" in str(refused.value.fix)
        assert service.tasks(CHIEF, over=True) == ()
        assert (await service.submit(ANN, submission("a", weight=1.0))).weight == 1.0
        assert (await service.submit(CHIEF, submission("b", weight=1e6))).weight == 1e6
    (tmp_path / "other").mkdir()
    async with live_inside(tmp_path / "other", api=Api(max_weight=4.0)) as (_, service, _, _):
        assert (await service.submit(ANN, submission("a", weight=4.0))).weight == 4.0
        with pytest.raises(NotAllowed, match="give at most 4"):
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
        ({"weight": -1.0}, BadInput, "at least 0"),
        ({"work_samples": 0.0}, BadInput, "above 0"),
    ]
    async with live_inside(tmp_path, launchers=("inside",)) as (_, service, _, world):
        await service.submit(ANN, submission("a", run=own))
        for given, kind, words in (*refused, ({"launcher": "native"}, UnknownName, "native")):
            with pytest.raises(kind, match=words):
                await service.submit(ANN, submission(**{"name": "b", **given}))
        assert [task.name for task in service.tasks(ANN, over=True)] == ["a"]
        assert world.asked("add") == ["a"]


@in_a_loop
async def test_there_is_an_end_to_how_many_wait_and_no_user_fills_the_queue_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, most_unfinished=5, most_unfinished_of_user=2)
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
        assert service.tasks(ANN, over=True) == ()
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
