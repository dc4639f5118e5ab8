"""The tables: the same rows in CSV and in Parquet, and in the columns that the documents promise."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest

from bftrain import NotAvailable, Settings
from bftrain.values import wire
from bftrain_replay import replay_folder, tables
from bftrain_replay.metrics.task_figures import TaskFigures
from bftrain_replay.output import csv_tables, summary_json
from bftrain_replay.provenance import FORMAT, InputSource
from bftrain_replay.results.result import MeasuredTimings, ReplayResult, ReplaySummary
from bftrain_replay.simulation.fixed_cluster import FixedCluster
from bftrain_replay.study import cluster_study, study
from bftrain_replay.tables import ColumnType, TableColumn, TaskRecord
from tests.unit.replay.cases import log_of, replayed, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=300.0)
TASKS = [
    task('ev"il, <b>', work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]
DOCUMENT = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")


def result() -> ReplayResult:
    return study(LOG, TASKS, Settings(max_tasks=2)).result


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def documented(heading: str) -> list[tuple[str, str]]:
    section = re.split(r"^##+ ", DOCUMENT.split(f"\n### {heading}\n")[1], flags=re.MULTILINE)[0]
    return re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", section, flags=re.MULTILINE)


@pytest.mark.parametrize("name", tables.TABLES)
def test_the_documents_name_every_column_in_its_order(name: str, tmp_path: Path) -> None:
    columns = documented(name.replace("_", " ").capitalize())
    assert columns == [(column.name, str(column.kind)) for column in tables.TABLES[name]]
    csv_tables.write(result(), tmp_path)
    header = (tmp_path / f"{name}.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header.split(",") == [column for column, _ in columns]


def test_the_documents_name_every_figure_and_the_format() -> None:
    section = DOCUMENT.split("\n## Figures\n")[1].split("\n## ")[0].split("\n### ")[0]
    named = {
        name
        for line in section.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if "|" in line else "")
    }
    written = summary_json.summary(study(LOG, TASKS, Settings(), baseline="equal-share"), InputSource())
    finite = [task("x", rate=(1.0,), work_samples=10.0)]
    on_a_cluster = summary_json.summary(cluster_study(FixedCluster(nodes={"": 1}), finite, Settings()), InputSource())
    assert set(on_a_cluster) - set(written) == {"cluster", "ideal"}
    assert named == {*written, *on_a_cluster, "unit"}  # which only logs of GPUs or cores have
    assert {*ReplaySummary.__struct_fields__, *MeasuredTimings.__struct_fields__} <= named
    assert f"`{FORMAT}`" in DOCUMENT
    assert all(f"`{name}`" in DOCUMENT.split("## Figures")[0] for name in summary_json.MEASURED)


def test_a_column_of_tasks_is_a_field_of_their_records() -> None:
    fields = [{"node_s": "node_h"}.get(name, name) for name in TaskRecord.__struct_fields__]
    assert [column.name for column in tables.TASKS] == fields


def test_figures_of_tasks_are_listed_once_and_stand_in_their_order() -> None:
    written = list(summary_json.summary(study(LOG, TASKS, Settings()), InputSource()))
    begin = written.index(TaskFigures.__struct_fields__[0])
    assert written[begin : begin + len(TaskFigures.__struct_fields__)] == list(TaskFigures.__struct_fields__)
    assert issubclass(ReplaySummary, TaskFigures)
    begin = written.index(ReplaySummary.__struct_fields__[0])
    assert written[begin : begin + len(ReplaySummary.__struct_fields__)] == list(ReplaySummary.__struct_fields__)


def test_sizes_are_those_of_tasks_that_hold_nodes(tmp_path: Path) -> None:
    csv_tables.write(result(), tmp_path)
    sizes = [json.loads(row["sizes"]) for row in csv_rows(tmp_path / "decisions.csv")]
    used = [int(row["used"]) for row in csv_rows(tmp_path / "decisions.csv")]
    assert [sum(each.values()) for each in sizes] == used
    assert sizes[0] == {'ev"il, <b>': 2}
    assert all(size > 0 for each in sizes for size in each.values())
    assert len({tuple(each.items()) for each in sizes}) > 2


def test_sizes_follow_tasks_that_come_and_go() -> None:
    log = log_of((0.0, "abc", ""), end_s=100.0)
    tasks = [task("x", rate=(10.0,), work_samples=100.0), task("y", rate=(4.0, 7.0), submit_s=5.0)]
    assert [dict(each) for each in replayed(log, tasks).decisions.sizes()] == [{"x": 1}, {"x": 1, "y": 2}, {"y": 2}]


def test_waits_are_counted_and_timed() -> None:
    log = log_of((10.0, "a", ""), (20.0, "", "a"), (50.0, "a", ""), end_s=60.0)
    record, never = replayed(log, [task("x", rate=(1.0,)), task("y", rate=(1.0,), submit_s=55.0)]).tasks
    assert (record.waits, record.waited_s, record.starts) == (2, 40.0, 2)
    assert (never.waits, never.waited_s) == (1, 5.0)
    (at_once,) = replayed(log_of((0.0, "a", ""), end_s=60.0), [task("x", rate=(1.0,))]).tasks
    assert (at_once.waits, at_once.waited_s) == (0, 0.0)


def test_allocations_are_quoted_like_everything_else(tmp_path: Path) -> None:
    done = result()
    csv_tables.write(done, tmp_path)
    allocations = csv_rows(tmp_path / "allocations.csv")
    assert {row["task"] for row in allocations} == {'ev"il, <b>', "u"}
    held_h = sum(float(row["to_s"]) - float(row["from_s"]) for row in allocations) / 3600
    assert held_h == pytest.approx(sum(float(row["node_h"]) for row in csv_rows(tmp_path / "tasks.csv")), rel=1e-12)
    assert held_h == pytest.approx(done.used_node_s / 3600, rel=1e-12)


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install '.[parquet]'")
    whole = study(LOG, TASKS, Settings(max_tasks=2))
    replay_folder.write(whole, tmp_path)
    read = {name: csv_rows(tmp_path / f"{name}.csv") for name in tables.TABLES}
    replay_folder.write(whole, tmp_path, tables="parquet")
    for name, columns in tables.TABLES.items():
        assert not (tmp_path / f"{name}.csv").exists()  # never two tables of which one may be old
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.schema.metadata[b"bftrain.format"].decode() == FORMAT
        assert table.column_names == [column.name for column in columns]
        assert len(table) == len(read[name])
        for row, text in zip(table.to_pylist(), read[name], strict=True):
            for column in columns:
                value, cell = row[column.name], text[column.name]
                match column.kind:
                    case ColumnType.SIZES:
                        assert dict(value) == json.loads(cell)
                    case ColumnType.TEXT:
                        assert value == cell
                    case _:
                        assert value == (None if cell == "" else float(cell))
    replay_folder.write(whole, tmp_path)
    assert not list(tmp_path.glob("*.parquet"))


def test_parquet_files_have_the_same_bytes_again(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install '.[parquet]'")
    for place in ("one", "two"):
        replay_folder.write(study(LOG, TASKS, Settings(max_tasks=2)), tmp_path / place, tables="parquet")
    for name in tables.TABLES:
        one, two = ((tmp_path / place / f"{name}.parquet").read_bytes() for place in ("one", "two"))
        assert one == two, name


def test_parquet_without_pyarrow_names_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        NotAvailable, match=r"need pyarrow, which is not installed \(pip install '.\[parquet\]' in the checkout"
    ):
        replay_folder.check_tables("parquet")
    replay_folder.check_tables("csv")


def test_sizes_are_cells_as_the_csv_module_writes_them(tmp_path: Path) -> None:
    names = {"number": ColumnType.WHOLE, "bound": ColumnType.NUMBER, "sizes": ColumnType.SIZES}
    columns = [TableColumn(name, kind) for name, kind in names.items()]
    sizes: list[dict[str, int]] = [{}, {"a": 1}, {'say "x", y': 2, "ü\n": 3, "a": 64}, {"a": 64}, {}]
    rows = [(number, None, each) for number, each in enumerate(sizes)]
    csv_tables.write_rows(tmp_path / "table.csv", columns, rows)
    expected = io.StringIO()
    writer = csv.writer(expected, lineterminator="\n")
    writer.writerow(column.name for column in columns)
    writer.writerows((number, bound, wire.encode(each).decode()) for number, bound, each in rows)
    assert (tmp_path / "table.csv").read_bytes().decode() == expected.getvalue()
