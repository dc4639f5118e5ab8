"""Rounds with an admission, and with metrics: both are those of every replay."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bftrain import BftrainError, BrokenPlugin, Entity, rounds, save_tasks
from tests.helpers.campaigns import CAMPAIGN_STRETCH, CAMPAIGNS
from tests.helpers.in_process import CommandLine
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import RoundResult

FOUR = {"": 4}
TASKS = [gang(f"t{number}", 3000.0, 1 + number % 3, 20.0 * number, user=f"u{number % 2}") for number in range(12)]


def run(admission: str = "", tasks: Any = TASKS, **settings: Any) -> RoundResult:  # noqa: ANN401 - as rounds() takes them
    return rounds(FOUR, tasks, admission=admission, **{"round_s": 60.0, "policy": "las", **settings})


def finished(done: RoundResult) -> list[float]:
    return [cell for cell in done.tasks_table["finish_s"] if cell is not None]


@pytest.mark.parametrize("admission", ["all", "first-come", "load=100"])
@pytest.mark.parametrize("policy", ["fifo", "las", "max-min"])
def test_who_lets_all_in_changes_nothing(admission: str, policy: str) -> None:
    assert run(admission, policy=policy).tasks_table == run(policy=policy).tasks_table


def test_by_load_who_is_let_in_runs_until_it_is_done() -> None:
    assert run().summary["preemptions"] > 0
    done = run("load=1")
    assert done.summary["preemptions"] == 0  # all who compete fit, and no task is overtaken
    starts = done.tasks_table["first_start_s"]
    assert starts == sorted(starts)
    assert done.ended == "all_done"


def test_a_quota_bounds_what_a_user_holds_in_every_round() -> None:
    done = run("quota", entities={"u0": Entity(nodes=3)})
    table = done.users_table
    held: dict[str, float] = {}
    for user, nodes in zip(table["user"], table["nodes"], strict=True):
        held[user] = max(held.get(user, 0.0), nodes)
    assert held["u0"] == pytest.approx(3.0)
    assert held["u1"] == pytest.approx(4.0)
    assert finished(done) and done.ended == "all_done"  # noqa: PT018 - one says little without the other


def test_a_task_above_its_quota_waits_until_the_run_stalls() -> None:
    done = run("quota,nodes=2")
    assert done.ended == "stalled"
    waiting = {name for name, state in zip(done.tasks_table["name"], done.states, strict=True) if state == "waiting"}
    assert waiting == {task.name for task in TASKS if task.min_nodes > 2}


def test_campaigns_let_a_short_study_go_before_the_rest_of_a_long_one() -> None:
    long = [gang(f"long-{number}", 4000.0, 2, 0.0, user="ann") for number in range(10)]
    short = [gang(f"short-{number}", 500.0, 2, 300.0, user="bob") for number in range(2)]
    ends = {}
    for admission in ("", CAMPAIGNS):
        done = run(admission, [*long, *short], policy="fifo")
        table = done.tasks_table
        ends[admission] = max(
            end for name, end in zip(table["name"], table["finish_s"], strict=True) if name.startswith("short")
        )
        assert done.ended == "all_done"
    assert ends[CAMPAIGNS] < 0.5 * ends[""]


def test_an_admission_of_ones_own_sees_what_there_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "class One:\n"
        "    name = 'one'\n\n"
        "    def __init__(self, max_tasks, spare=0):\n"
        "        self.spare = spare\n\n"
        "    def choose(self, queue):\n"
        "        names = list(queue)\n"
        "        assert all(name in queue and queue.most_nodes(name) >= queue.spec(name).min_nodes for name in names)\n"
        "        assert 'nobody' not in queue and queue.pool == sum(queue.pools.values()) == 4\n"
        "        assert all(queue.size(name) in (0, queue.spec(name).min_nodes) for name in names)\n"
        "        assert all(0 < queue.work_left(name) <= queue.spec(name).work_samples for name in names)\n"
        "        assert queue.time_s >= max(queue.spec(name).submit_s for name in names)\n"
        "        return names[: 1 + self.spare]\n"
    )
    done = run(f"{mine}:One")
    assert set(done.rounds_table["running"]) == {1}
    assert max(run(f"{mine}:One,spare=1").rounds_table["running"]) == 2


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("1 / 0", r"admission 'bad': raised ZeroDivisionError"),
        ("return {name: 1 for name in queue}", r"admission 'bad': limits task 't1' to 1 node, but it needs 2"),
    ],
)
def test_an_admission_that_is_wrong_is_named(body: str, complaint: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "class Bad:\n    name = 'bad'\n    def __init__(self, max_tasks): ...\n"
        f"    def choose(self, queue):\n        {body}\n"
    )
    with pytest.raises(BrokenPlugin, match=complaint):
        run(f"{bad}:Bad")


@pytest.mark.parametrize(
    ("admission", "complaint"), [("unknown", "no admission is called"), ("quota", "no user has a quota")]
)
def test_what_is_no_admission_is_refused_before_any_round(admission: str, complaint: str) -> None:
    with pytest.raises(BftrainError, match=complaint):
        run(admission)


def test_metrics_are_measured_on_the_run(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def longest(run):\n"
        "    return run.table('tasks')['waited_s'].max()\n\n"
        "def held(run):\n"
        "    assert len(run.table('users')) and len(run.table('rounds')) and len(run.table('over_time')) == 1000\n"
        "    return sum(task.node_s for task in run.tasks) / 3600\n\n"
        "def decided(run):\n"
        "    return len(run.table('decisions'))\n\n"
        "def endless(run):\n"
        "    return float('inf')\n"
    )
    done = run(metrics=f"{mine}:longest,{mine}:held,{CAMPAIGN_STRETCH}")
    found = done.summary["metrics"]
    assert found["longest"] == max(done.tasks_table["waited_s"])
    assert found["held"] == pytest.approx(done.summary["used_node_h"])
    assert found["campaigns"] == found["campaigns_finished"] == 2
    broken = run(metrics=f"{mine}:decided")
    assert broken.summary["metrics"] == {"decided": None}
    (error,) = broken.own_metrics.broken
    assert re.match(r"metric 'decided': raised UsageError: .*has no table 'decisions'", str(error))
    (note,) = run(metrics=f"{mine}:endless").own_metrics.notes
    assert note.startswith("metric 'endless': 'endless' is inf, which JSON cannot hold")
    with pytest.raises(BftrainError, match="no metric is called 'none'"):
        run(metrics="none")


def test_a_run_whose_metric_raises_is_written_without_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mine, tasks, out = tmp_path / "mine.py", tmp_path / "tasks.toml", tmp_path / "out"
    mine.write_text("def odd(run):\n    return 1 / 0\n")
    save_tasks(TASKS, tasks)
    command = CommandLine(monkeypatch, capfd)
    assert command(
        "rounds", "--cluster", 4, "--tasks", tasks, "--round", 60, "--metrics", f"{mine}:odd", "-o", out
    ).code
    assert json.loads((out / "summary.json").read_text())["metrics"] == {"odd": None}


def test_remarks_of_an_admission_are_reported_once_and_not_without_end() -> None:
    done = run("quota,nodes=2")
    above = [task.name for task in TASKS if task.min_nodes > 2]
    assert done.remarks == tuple(
        f"task '{name}' needs 3 nodes and its user 'u{int(name[1:]) % 2}' may use 2: it never runs" for name in above
    )
    many = [gang(f"t{number}", 3000.0, 3, 0.0, user="ann") for number in range(12)]
    said = run("quota,nodes=2", many).remarks
    assert len(said) == 6
    assert said[-1] == "and so for 7 more tasks"
    assert run("load=1").remarks == run().remarks == ()
