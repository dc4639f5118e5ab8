"""The published replayer's task sets: a pair of pickled tables becomes tasks, and nothing is lost without a word."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bftrain import BadInput, NodeState, load_tasks, save_log, save_tasks
from bftrain.cli.main import main
from bftrain.taskfiles.records import profile
from bftrain_datasets.published.tasks import import_tasks
from tests.helpers.samples import PICKLES
from tests.helpers.site_data import site_data
from tests.helpers.transitions import log_from_transitions

BEGIN_S = 1612951200.0  # 2021-02-10 10:00 UTC, the first Tsub of the saved pairs


def pair(folder: Path, **changes: object) -> tuple[Path, Path]:
    """Save a pair of two tasks, with some columns changed."""
    moments = pd.DatetimeIndex(["2021-02-10 10:00", "2021-02-10 11:00"])
    bounds: dict[str, Any] = {
        "Tcup": [18.0, 20.0], "Tcdw": [12.0, 9.0], "Jmin": [1.0, 2.0], "Jmax": [8.0, 4.0], "Pmax": [1e6, 2e6],
        "Tsub": moments,
    }  # fmt: skip
    speeds: dict[str, Any] = {
        "Ns": [[0, 1, 8], [0, 2, 4]],
        "Ps": [[0, 10.0, 70.0], [0, 30.0, 50.0]],
        "Os": [[0, 10.0, 70.0], [0, 30.0, 50.0]],
        "Tsub": moments,
    }
    names = list(changes.pop("names", ["a", "b"]))  # type: ignore[call-overload]  # a list of names
    other = list(changes.pop("other_names", names))  # type: ignore[call-overload]  # a list of names
    for key, value in changes.items():
        (speeds if key in {"Ns", "Ps", "Os", "more"} else bounds)[key] = value
    first, second = folder / "Jbnd.pkl", folder / "JNPs.pkl"
    pd.DataFrame(bounds, index=pd.Index(names, dtype=object)).to_pickle(first)
    pd.DataFrame(speeds, index=pd.Index(other, dtype=object)).to_pickle(second)
    return first, second


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["generate", "from-trace", *map(str, arguments)])
    if isinstance(result.exception, BadInput):
        raise result.exception
    return result


@pytest.mark.parametrize("version", ["0.25", "1.1", "1.5", "2.2", "3.1"])
def test_every_column_has_its_place(version: str) -> None:
    found = import_tasks(PICKLES / f"pandas-{version}-bounds.pkl", PICKLES / f"pandas-{version}-speeds.pkl")
    one, two, three = found.tasks
    assert [task.name for task in found.tasks] == ["one", "two", "three"]
    assert one.curve == profile("vgg16").curve
    assert (two.curve.nodes, two.curve.rate) == ((1, 8), (100.5, 700.0))
    assert (two.grow_cost_s, two.shrink_cost_s, two.start_cost_s) == (20.0, 10.0, 0.0)
    assert (three.min_nodes, three.max_nodes, three.work_samples) == (2, 4, 2e6)
    assert [task.submit_s for task in found.tasks] == [0.0, 0.0, 7200.0]
    assert found.begin_s == BEGIN_S
    assert found.profiles == {"vgg16": 1}
    assert [source.name for source in found.sources] == [f"pandas-{version}-bounds.pkl", f"pandas-{version}-speeds.pkl"]


def test_a_curve_is_a_profile_if_it_is_the_same_to_the_sample() -> None:
    files = PICKLES / "pandas-3.1-bounds.pkl", PICKLES / "pandas-3.1-speeds.pkl"
    rounded = import_tasks(*files)
    assert rounded.tasks[0].curve.rate[:2] == (1193.0, 2389.0)
    assert rounded.rounded == pytest.approx(0.4 / 1193.4)


def test_times_count_from_where_one_says(tmp_path: Path) -> None:
    found = import_tasks(*pair(tmp_path), begin_s=BEGIN_S + 600)
    assert [task.submit_s for task in found.tasks] == [-600.0, 3000.0]


def test_tables_in_another_order_are_joined_by_name(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    expected = import_tasks(first, second).tasks
    pd.read_pickle(second).iloc[::-1].to_pickle(second)  # noqa: S301 - written above
    assert import_tasks(first, second).tasks == expected


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"other_names": ["a", "c"]}, r"JNPs.pkl: no row for 'b' .*Jbnd.pkl has 2 tasks"),
        ({"names": ["a", "a"]}, r"Jbnd.pkl: two tasks have the label 'a'"),
        ({"Tsub": pd.DatetimeIndex(["2021-02-10 10:00", "2021-02-10 10:30"])}, "task 'b': Tsub differs"),
        ({"Tsub": pd.DatetimeIndex(["2021-02-10", "NaT"])}, "Jbnd.pkl: Tsub: row 2 has no time"),
        ({"Tsub": ["soon", "later"]}, "Jbnd.pkl: Tsub: the values are not times"),
        ({"Jmin": [1.5, 1.0]}, "Jbnd.pkl: task 'a': Jmin: 1.5 is not a whole number"),
        ({"Jmin": [float("nan"), 1.0]}, "task 'a': Jmin: nan is not a whole number"),
        ({"Jmin": ["x", "y"]}, "task 'a': Jmin: 'x' is not a whole number"),
        ({"Jmax": [8.0, 1.0]}, "task 'b': Jmax: is 1, below min_nodes = 2"),
        ({"Pmax": [0.0, 1.0]}, "task 'a': Pmax: must be above 0"),
        ({"Tcup": [-1.0, 1.0]}, "task 'a': Tcup: must be at least 0"),
        ({"Ns": [[0, 1, 8], [0, 4, 2]]}, "task 'b': Ns: must rise strictly"),
        ({"Ns": [[0, 1], [0, 4, 8]]}, "task 'a': Ns and Ps must be lists of the same length"),
        ({"Ns": [1, 2]}, "task 'a': Ns and Ps must be lists"),
        ({"Ps": [[0, 1, -8], [0, 4, 5]]}, "task 'a': Ps: has the negative speed"),
        ({"Ps": [[5, 1, 8], [0, 4, 5]]}, "task 'a': Ps must be 0 where Ns is 0"),
        ({"Ns": [[], [0, 4, 8]], "Ps": [[], [0, 4, 5]]}, "task 'a': Ns: has no point"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        import_tasks(*pair(tmp_path, **changes))


def test_the_files_are_distinguished(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    with pytest.raises(BadInput, match=r"JNPs.pkl: this is the other file of the pair .*first"):
        import_tasks(second, first)
    with pytest.raises(BadInput, match=r"the table has no column 'Tcup'"):
        import_tasks(PICKLES / "pandas-1.1-nodes.pkl", second)
    (tmp_path / "text.pkl").write_text("name,curve\n")
    with pytest.raises(BadInput, match=r"text.pkl: a damaged pickle"):
        import_tasks(tmp_path / "text.pkl", second)


def test_the_command_writes_tasks_and_says_where_they_are_from(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    log = tmp_path / "log.npz"
    save_log(log_from_transitions([(BEGIN_S - 60, "n1", NodeState.IDLE)], end_s=BEGIN_S + 9), log)
    result = run(first, second, "-o", tmp_path / "tasks.toml", "--log", log)
    assert result.exit_code == 0, result.output
    assert "2 tasks" in result.stdout
    tasks = load_tasks(tmp_path / "tasks.toml")
    assert [task.submit_s for task in tasks] == [60.0, 3660.0]
    head = (tmp_path / "tasks.toml").read_text()
    assert "# from Jbnd.pkl, sha256 " in head
    assert "# submit_s counts from 2021-02-10 09:59:00 UTC" in head
    output = json.loads(run(first, second, "-o", tmp_path / "tasks.csv", "--json").stdout)
    assert load_tasks(tmp_path / "tasks.csv") == import_tasks(first, second).tasks
    assert output["tasks"] == 2
    assert output["begin_s"] == BEGIN_S
    assert [source["name"] for source in output["sources"]] == ["Jbnd.pkl", "JNPs.pkl"]


def test_the_command_warns_of_early_tasks(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    log = tmp_path / "log.csv"
    save_log(log_from_transitions([(BEGIN_S + 60, "n1", NodeState.IDLE)], end_s=BEGIN_S + 90), log)
    said = run(first, second, "-o", tmp_path / "tasks.csv", "--log", log).stderr
    assert "warning: 1 task submitted before the origin of submit_s" in said


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("hps-shufflenet-{}-10J.pkl", 10),
        ("hps-shufflenet-{}-1000J.pkl", 1000),
        ("ImageNet-imgps-{}-1001J.pkl", 1001),
        ("ImageNet-spdup-{}-1001J.pkl", 1001),
    ],
)
def test_the_published_pairs(tmp_path: Path, name: str, count: int) -> None:
    files = [site_data(f"summit/{name.format(part)}") for part in ("Jbnd", "JNPs")]
    found = import_tasks(*files)
    assert len(found.tasks) == sum(found.profiles.values()) == count
    assert found.rounded < 3e-4
    assert {task.max_nodes for task in found.tasks} == {64}
    assert {task.work_samples for task in found.tasks} == {1.3e8}
    assert max(task.submit_s for task in found.tasks) == 36_000
    for suffix in (".toml", ".csv"):
        path = tmp_path / f"tasks{suffix}"
        save_tasks(found.tasks, path)
        begin = process_time()
        assert load_tasks(path) == found.tasks
        assert process_time() - begin < 1
        assert path.stat().st_size < 200 * count
