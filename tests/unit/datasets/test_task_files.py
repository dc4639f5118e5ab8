"""Task files: people write them, so what is wrong is named with file, place and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import (
    BadInput,
    BadValue,
    BatchScaling,
    ResourceSpeeds,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
    TaskSpec,
    UnknownName,
    generate_mix,
    load_tasks,
    sample_log,
    save_tasks,
)
from bftrain.taskfiles.records import PROFILE_NAMES, profile, profiles
from bftrain_datasets.workloads.task_generators import TaskArrivals, TaskShape, generate_trials, sample_tasks

CURVE = SpeedCurve(nodes=(1, 2, 4), rate=(100.0, 190.5, 370.0))
FULL = TaskSpec(
    name='a "quoted", näme',
    curve=CURVE,
    min_nodes=2,
    max_nodes=3,
    work_samples=1e22,
    submit_s=-0.1,
    grow_cost_s=1.0,
    shrink_cost_s=2.0,
    start_cost_s=3.0,
    weight=0.0,
    deadline_s=1e9 + 1 / 3,
    user="ada",
    campaign="#7",
    batch=BatchScaling(initial=3, noise_scale=1e22 / 3, per_node=2, fixed_share=0.1),
    spread=SpreadSpeeds(speeds=(SpreadSpeed(share=1 / 3),)),
    resources=ResourceSpeeds(cpus=(1.0, 3.0), memory_gb=(16.0, 1 / 3e-2), speed=((1 / 3, 0.4), (0.9, 1.0))),
)
TASKS = (
    FULL,
    TaskSpec(name="#plain", curve=CURVE, max_nodes=4),
    TaskSpec(name="vgg", curve=profile("vgg16").curve, max_nodes=64, grow_cost_s=18.0, shrink_cost_s=0.0),
)
SLOW = SpeedCurve(nodes=(1, 8), rate=(3.25, 0.0))
BY_KIND = (
    TaskSpec(name="first stands in", curve=CURVE, curves={"v100": CURVE, "k80": SLOW}, min_nodes=2, max_nodes=2),
    TaskSpec(name="another stands in", curve=SLOW, curves={"A100 80GB": CURVE, "nodes": SLOW}, max_nodes=8),
    TaskSpec(name="a profile stands in", curve=profile("vgg16").curve, curves={"k80": SLOW}, max_nodes=3),
    TaskSpec(name="of one kind", curve=profile("vgg16").curve, curves={"v": profile("vgg16").curve}, max_nodes=64),
    TaskSpec(name="of any kind", curve=CURVE, max_nodes=4, batch=BatchScaling(initial=3, noise_scale=0.0, largest=9)),
    TaskSpec(
        name="spread by kind",
        curve=CURVE,
        max_nodes=3,
        spread=SpreadSpeeds(
            per_place=4,
            speeds=(
                SpreadSpeed(share=0.5),
                SpreadSpeed(kind="A100 80GB", curve=CURVE),
                SpreadSpeed(kind="A100 80GB", places=4, curve=SLOW),
            ),
        ),
    ),
    TaskSpec(name="spread", curve=CURVE, max_nodes=3, spread=SpreadSpeeds(speeds=(SpreadSpeed(curve=CURVE),))),
    TaskSpec(
        name="cpus",
        curve=CURVE,
        curves={"speed": CURVE},
        max_nodes=4,
        resources=ResourceSpeeds(cpus=(1.0, 3.0), speed=((0.5,), (1.0,))),
    ),
    TaskSpec(
        name="memory", curve=CURVE, max_nodes=4, resources=ResourceSpeeds(memory_gb=(1.0, 3.0), speed=((0.5, 1.0),))
    ),
    TaskSpec(
        name="one row",
        curve=CURVE,
        max_nodes=4,
        resources=ResourceSpeeds(cpus=(2.0,), memory_gb=(1.0, 3.0), speed=((0.5, 1.0),)),
    ),
    TaskSpec(name="initial", curve=CURVE, curves={"initial": CURVE}, max_nodes=4),
)


@pytest.mark.parametrize("suffix", [".toml", ".csv"])
@pytest.mark.parametrize("tasks", [TASKS, BY_KIND, sample_tasks()], ids=["odd", "by kind", "sample"])
def test_what_is_saved_is_loaded_again(tmp_path: Path, suffix: str, tasks: tuple[TaskSpec, ...]) -> None:
    path = tmp_path / f"tasks{suffix}"
    save_tasks(tasks, path, note="two\nlines")
    assert load_tasks(path) == tasks
    assert path.read_text().startswith("# two\n# lines\n")


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tasks.toml"
    path.write_text(text)
    return path


def test_a_profile_brings_curve_costs_and_largest_size(tmp_path: Path) -> None:
    path = toml(tmp_path, '[[task]]\nname = "t"\nprofile = "resnet18"\ngrow_cost_s = 5\n')
    (task,) = load_tasks(path)
    assert task.curve.speed(64) == 262_723
    assert (task.grow_cost_s, task.shrink_cost_s, task.start_cost_s) == (5.0, 12.0, 0.0)
    assert (task.min_nodes, task.max_nodes, task.work_samples) == (1, 64, None)


def test_a_curve_of_ones_own(tmp_path: Path) -> None:
    path = toml(tmp_path, '[[task]]\nname = "t"\ncurve = { nodes = [1, 8], rate = [10, 70] }\n')
    assert load_tasks(path) == (TaskSpec(name="t", curve=SpeedCurve(nodes=(1, 8), rate=(10.0, 70.0)), max_nodes=8),)


def test_curves_by_kind_need_no_other(tmp_path: Path) -> None:
    points = "{ p = { nodes = [1, 2], rate = [10, 19] }, k = { nodes = [1, 8], rate = [2, 7] } }"
    (task,) = load_tasks(toml(tmp_path, f'[[task]]\nname = "t"\ncurves = {points}\n'))
    assert task.curve == task.curves["p"] == SpeedCurve(nodes=(1, 2), rate=(10.0, 19.0))
    assert task.max_nodes == 8
    assert task.curve_on("k") == SpeedCurve(nodes=(1, 8), rate=(2.0, 7.0))
    assert task.curve_on("v") is None


def test_curves_by_kind_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("name,curves,max_nodes\nt,v100=1:100 2:190; k80 = 1:30,2\nu,k80=4:9;,\n")
    one, other = load_tasks(path)
    assert one.curves == {
        "v100": SpeedCurve(nodes=(1, 2), rate=(100.0, 190.0)),
        "k80": SpeedCurve(nodes=(1,), rate=(30.0,)),
    }
    assert (other.max_nodes, list(other.curves)) == (4, ["k80"])


def test_a_kind_that_a_cell_cannot_hold_is_refused(tmp_path: Path) -> None:
    odd = TaskSpec(name="t", curve=CURVE, curves={"a=b": CURVE}, max_nodes=4)
    with pytest.raises(BadInput, match=r"the kind 'a=b' does not fit a cell.*save the tasks as .toml"):
        save_tasks([odd], tmp_path / "tasks.csv")
    assert not (tmp_path / "tasks.csv").exists()
    save_tasks([odd], tmp_path / "tasks.toml")
    assert load_tasks(tmp_path / "tasks.toml") == (odd,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tasks.toml: contains no task"),
        ("task = 3", "task: must be a list of tables"),
        ("[[task]\n", r"tasks.toml:1: is not valid TOML: .*line 1"),
        ('[[tasks]]\nname = "t"\n', "no table of a task file is called 'tasks' .did you mean 'task'"),
        ("[[task]]\n", "tasks.toml: task 1: name: is missing"),
        ('[[task]]\nname = "t"\n', "task 1 't': neither profile nor curve nor curves"),
        ('[[task]]\nname = "t"\ncurves = {}\n', "curves: must have a curve for at least one"),
        ('[[task]]\nname = "t"\ncurves = 3\n', "curves: must have a curve for at least one"),
        ('[[task]]\nname = "t"\ncurves = { v = 3 }\n', "curves.v: must have nodes and rate.*write curves ="),
        (
            '[[task]]\nname = "t"\ncurves = { v = { nodes = [2, 1], rate = [1, 2] } }\n',
            "task 1 't': curves.v.nodes: must rise",
        ),
        ('[[task]]\nname = "t"\nprofile = "vgg16"\ncurve = {}\n', "profile and curve are both set"),
        ('[[task]]\nname = "t"\nprofile = "vgg"\n', "task 1 't': profile: no profile is called 'vgg'"),
        ('[[task]]\nname = "t"\nprofile = "densnet"\n', "did you mean 'densenet'"),
        ('[[task]]\nname = "t"\nmaxnodes = 3\n', "task 1: no key of a task is called 'maxnodes' .*'max_nodes'"),
        ('[[task]]\nname = "t"\nprofile = "vgg16"\nmax_nodes = 0\n', "task 1 't': max_nodes: must be at least 1"),
        ('[[task]]\nname = "t"\nprofile = "vgg16"\nsubmit_s = "now"\n', "submit_s: must be a finite number"),
        ('[[task]]\nname = "t"\nprofile = "vgg16"\nsubmit_s = 2021-01-01\n', "submit_s: must be a finite number"),
        ('[[task]]\nname = "t"\ncurve = { nodes = [2, 1], rate = [1, 2] }\n', "task 1 't': curve.nodes: must rise"),
        ('[[task]]\nname = "t"\ncurve = [1, 2]\n', "curve: must have nodes and rate"),
        ('[[task]]\nname = "t"\ncurve = { nodes = [1], rates = [1] }\n', "curve: must have nodes and rate"),
        ('[[task]]\nname = 5\nprofile = "vgg16"\n', "name: must be text"),
        (
            '[[task]]\nname = "t"\nprofile = "vgg16"\n[[task]]\nname = "t"\nprofile = "vgg16"\n',
            "tasks.toml: task 2: name: the task at .*task 1 has the same name 't'",
        ),
    ],
)
def test_a_bad_toml_is_refused_with_file_entry_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load_tasks(toml(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tasks.csv: contains no task"),
        ("name,profile\n", "contains no task"),
        ("name,profil\nt,vgg16\n", "tasks.csv:1: no column of a task file is called 'profil'.*'profile'"),
        ("name,profile,name\nt,vgg16,t\n", "tasks.csv:1: the column 'name' occurs twice"),
        ("name,profile\nt\n", "tasks.csv:2: the row has 1 cells, the header 2"),
        ("name,profile,max_nodes\nt,vgg16,x\n", "tasks.csv:2: max_nodes: 'x' is not a whole number"),
        ("name,profile,weight\nt,vgg16,x\n", "tasks.csv:2: weight: 'x' is not a number"),
        ("name,curve\nt,1-2\n", "tasks.csv:2: curve: '1-2' is not a list of points .write points as size:rate"),
        ("name,curves\nt,1:2\n", "tasks.csv:2: curves: '1:2' is not kind=points .write kind=points"),
        ("name,curves\nt,v=1\n", "tasks.csv:2: curves: 'v=1' is not kind=points"),
        ("name,curves\nt,v=1:2;=1:3\n", "tasks.csv:2: curves: '=1:3' is not kind=points"),
        ("name,curves\nt,v=1:2;v=1:3\n", "tasks.csv:2: curves: 'v' occurs twice"),
        ("name,profile,batch\nt,vgg16,initial=8\n", "tasks.csv:2: batch: 'initial=8' cannot be read .write it as"),
        ("name,profile,batch\nt,vgg16,{ initial = 8 }\n", "tasks.csv:2 't': batch: .* required field `noise_scale`"),
        ("name,profile,weight\nt,vgg16,-1\n", "tasks.csv:2 't': weight: must be at least 0"),
        ("# note\nname,profile\nt,vgg16\nt,vgg16\n", "tasks.csv:4: name: the task at .*tasks.csv:3"),
    ],
)
def test_a_bad_csv_is_refused_with_file_line_and_column(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        load_tasks(path)


def test_binary_and_oversized_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("t.toml", "t.csv"):
        path = tmp_path / name
        path.write_bytes(b"\x1f\x8b\x08\0\0")
        with pytest.raises(BadInput, match=r"t\.(toml|csv):1: not "):
            load_tasks(path)
    monkeypatch.setattr("bftrain.files.LARGEST_TEXT_BYTES", 3)
    with pytest.raises(BadInput, match="exceed the limit of a task file"):
        load_tasks(tmp_path / "t.toml")


def test_profiles_are_the_seven_published_models() -> None:
    assert PROFILE_NAMES == ("alexnet", "resnet18", "mnasnet", "mobilenet", "shufflenet", "vgg16", "densenet")
    for known in profiles().values():
        assert known.curve.nodes == (1, 2, 4, 8, 16, 32, 64)
        assert (known.grow_cost_s, known.shrink_cost_s) == (18.0, 12.0)
        assert "2106.12091" in known.source
    assert profile("densenet").curve.rate[-1] == 57_774
    with pytest.raises(UnknownName, match="did you mean 'mnasnet'"):
        profile("mnastnet")


def test_trials_are_identical_but_for_their_names() -> None:
    trials = generate_trials(12, "mobilenet", shape=TaskShape(work_samples=5.0, max_nodes=8, user="u", campaign="c"))
    assert len({task.name for task in trials}) == 12
    assert {(task.curve, task.work_samples, task.max_nodes, task.user, task.campaign) for task in trials} == {
        (profile("mobilenet").curve, 5.0, 8, "u", "c")
    }
    assert {task.submit_s for task in trials} == {0.0}


def test_a_mix_has_every_model_equally_often_in_an_order_of_the_seed() -> None:
    mix = generate_mix(16, seed=3)
    models = [task.name.rpartition("-")[0] for task in mix]
    assert {models.count(name) for name in PROFILE_NAMES} == {2, 3}
    assert mix == generate_mix(16, seed=3)
    assert mix != generate_mix(16, seed=4)
    assert [task.name for task in generate_mix(2, 0, models=["vgg16"])] == ["vgg16-1", "vgg16-2"]


def test_random_arrivals_come_at_the_asked_rate_and_in_order() -> None:
    tasks = generate_trials(2000, seed=1, arrivals=TaskArrivals(start_s=500.0, per_hour=60))
    moments = [task.submit_s for task in tasks]
    assert moments == sorted(moments)
    assert moments[0] > 500
    assert (moments[-1] - 500) / 2000 == pytest.approx(60, rel=0.1)
    assert tasks == generate_trials(2000, seed=1, arrivals=TaskArrivals(start_s=500.0, per_hour=60))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_wrong_counts_and_rates_are_named(rate: float) -> None:
    with pytest.raises(BadValue, match=r"Arrivals\.per_hour"):
        generate_trials(1, arrivals=TaskArrivals(per_hour=rate))
    with pytest.raises(BadValue, match=r"tasks\.count"):
        generate_mix(0, 1)
    with pytest.raises(BadValue, match=r"tasks\.seed"):
        generate_mix(1, -1)
    with pytest.raises(BadValue, match=r"generate_mix\.models"):
        generate_mix(1, 1, models=[])


@pytest.mark.parametrize("unit", ["node", "gpu"])
def test_the_sample_tasks_outlast_the_idle_time_of_the_sample_log(unit: str) -> None:
    tasks = sample_tasks(unit)
    assert tasks == generate_mix(56, 1, shape=TaskShape(work_samples=tasks[0].work_samples))
    # even at the best speed per node that each model reaches, the idle node-time does not suffice
    needed_node_s = sum(
        (task.work_samples or 0)
        / max(rate / size for size, rate in zip(task.curve.nodes, task.curve.rate, strict=True))
        for task in tasks
    )
    assert needed_node_s > 1.2 * sample_log(unit).idle_node_s
    assert all(task.start_cost_s > 0 and task.grow_cost_s > 0 and task.max_nodes == 64 for task in tasks)
