"""A field of TaskSpec is written in one place: from there it reaches task files, the API, the commands and replays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from bftrain import BadInput, SpeedCurve, Submission, TaskSpec, TaskView, load_tasks
from bftrain.live.commands.submit import command as submit
from bftrain.live.commands.submit import records_of, submission_of
from bftrain.live.model.schemas import spec_fields, view_fields
from bftrain.taskfiles import records

ALL = set(TaskSpec.__struct_fields__)
GIVEN = """
name = "both"
command = "train"
launcher = "process"
curve = { nodes = [1, 4], rate = [10.0, 30.0] }
nodes = "2:4"
work_samples = 500.0
grow_cost_s = 20.0
weight = 3.0
campaign = "search"
batch = { initial = 64, noise_scale = 500, largest = 1024 }
spread = 0.75
user = "ada"
submit_s = 60.0
deadline_s = 3660.0
"""


def test_every_field_is_a_key_of_task_files() -> None:
    assert set(records.COLUMNS) - {"profile"} == ALL
    others = {"name", "user", "campaign", "curve", "curves", "batch", "spread", "resources"}
    assert set(records.COUNTS) | set(records.NUMBERS) | others == ALL


def test_fields_of_a_submission_reach_the_spec_and_its_view_and_have_an_option() -> None:
    passed_over = {"submit_s", "user", "resources"}  # the live run knows the first two itself
    assert ALL - set(Submission.__struct_fields__) == passed_over
    options = {parameter.name for parameter in submit.params}
    instead = {"min_nodes", "max_nodes", "deadline_s", "curve", "curves", "batch", "spread"}  # or a task file
    assert ALL - options == {*passed_over, *instead}
    assert {"deadline", "nodes"} <= options
    sent = msgspec.convert({"run": {"argv": ["a"]}, "max_nodes": 2}, Submission)
    assert set(spec_fields(sent)) == ALL - {"name", "curve", *passed_over}
    spec = TaskSpec(name="a", max_nodes=2, curve=SpeedCurve(nodes=(1,), rate=(1.0,)))
    assert set(view_fields(spec)) == ALL.intersection(TaskView.__struct_fields__) - {"name", "user"}


def test_replays_and_live_runs_read_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(GIVEN)
    (spec,) = load_tasks(path)
    ((where, record),) = records_of(path)
    now = datetime.now(UTC).timestamp()
    sent = submission_of(record, where, tmp_path)
    assert sent.deadline_s == pytest.approx(now + 3600.0, abs=60.0)  # an hour after it is handed in
    shared = ALL.intersection(Submission.__struct_fields__) - {"deadline_s"}
    assert {name: getattr(sent, name) for name in shared} == {name: getattr(spec, name) for name in shared}
    assert (spec.min_nodes, spec.max_nodes, spec.user, spec.deadline_s) == (2, 4, "ada", 3660.0)
    assert sent.run.argv == ("train",)


def test_the_largest_measured_size_is_the_most_nodes_in_live_runs_too(tmp_path: Path) -> None:
    record = {"command": "train", "curves": {"v100": {"nodes": [1, 4], "rate": [1.0, 3.0]}}}
    assert submission_of(record, "here", tmp_path).max_nodes == 4


def test_a_time_on_the_calendar_is_for_live_runs(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text('name = "a"\nprofile = "vgg16"\ncommand = "train"\ndeadline = 2030-01-31T18:00:00Z\n')
    ((where, record),) = records_of(path)
    assert submission_of(record, where, tmp_path).deadline_s == datetime(2030, 1, 31, 18, tzinfo=UTC).timestamp()
    with pytest.raises(BadInput, match="write deadline_s, in seconds from the start"):
        load_tasks(path)
    with pytest.raises(BadInput, match="both given"):
        submission_of({**record, "deadline_s": 5.0}, where, tmp_path)
