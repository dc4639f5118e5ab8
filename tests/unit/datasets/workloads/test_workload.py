"""Imported workloads: task files keep them, damage is found, and speeds of a throughput table are checked."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, BadValue, UnknownName, WorkloadOptions, import_workload, load_tasks, save_tasks
from tests.helpers.workloads import BLOX, GAVEL, SAMPLES, TABLE, gavel_line, read


def options_for(name: str) -> dict[str, Any]:
    return {"speeds": TABLE} if name == "gavel" else {}


@pytest.mark.parametrize("suffix", [".toml", ".csv"])
@pytest.mark.parametrize("name", SAMPLES)
def test_tasks_of_every_format_survive_their_file(tmp_path: Path, name: str, suffix: str) -> None:
    found = read(tmp_path, SAMPLES[name], **options_for(name))
    assert found.format == name.partition(" ")[0]
    assert found.rows.read == found.rows.used == len(found.tasks) > 1
    path = tmp_path / f"tasks{suffix}"
    save_tasks(found.tasks, path)
    assert load_tasks(path) == found.tasks


STRICT = [
    ("gavel", gavel_line(gang="two")),
    ("gavel", gavel_line(arrival="noon")),
    ("gavel", "a\tb\n"),
    ("gavel", gavel_line(kind="Unheard")),
    ("blox", "5,soon,9,1\n"),
    ("blox", "5,9,9\n"),
    ("blox", "5,9,9,1.5\n"),
    ("swf", "1 2 3\n"),
]


@pytest.mark.parametrize(("name", "row"), STRICT)
def test_a_strict_import_rejects_doubtful_rows(tmp_path: Path, name: str, row: str) -> None:
    text = SAMPLES[name]
    line = len(text.splitlines()) + 1
    assert sum(read(tmp_path, text + row, **options_for(name)).rows.aside.values()) == 1
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text + row, strict=True, **options_for(name))
    assert caught.value.where == f"jobs:{line}"
    assert caught.value.fix


def test_damage_to_the_file_is_found(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number},9,1\n" for number in range(1, 9000))
    packed = gzip.compress((BLOX.splitlines()[0] + "\n" + rows).encode())
    found = read(tmp_path, packed[: len(packed) // 2])
    assert "truncated" in {each.name for each in found.findings}
    with pytest.raises(BadInput):
        read(tmp_path, packed[: len(packed) // 2], strict=True)


def test_reading_reports_its_progress(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text(BLOX)
    read_bytes: list[int] = []
    import_workload(path, WorkloadOptions(), tell=read_bytes.append)
    assert sum(read_bytes) == len(BLOX)


def test_a_finding_names_all_its_treatments(tmp_path: Path) -> None:
    rows = "job_id,arrival_s,duration_s,gpus\n1,1700000060000,9,1\n2,1700000000000,9,1\n"
    found = {each.name: each for each in read(tmp_path, rows + "3,soon,9,1\n").findings}
    assert (found["notation"].count, found["notation"].done) == (3, "divided by 1,000; converted and sorted")
    assert found["bad_time"].done == "row skipped"


@pytest.mark.parametrize("field", ["nodes", "first", "per_node"])
def test_counts_below_one_are_rejected(field: str) -> None:
    with pytest.raises(BadValue, match=field):
        WorkloadOptions(**{field: 0})  # type: ignore[arg-type]  # each is a count


def test_a_packed_table_of_speeds_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "speeds.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TABLE).encode()))
    (tmp_path / "gavel").write_text(GAVEL)
    packed = import_workload(tmp_path / "gavel", WorkloadOptions(speeds=path))
    assert packed.tasks == read(tmp_path, GAVEL, speeds=TABLE).tasks


@pytest.mark.parametrize(
    ("key", "model", "gang"),
    [
        ("('Net', 4)", "Net", 4),
        ('("It\'s a Net", 2)', "It's a Net", 2),
        ("('Net (batch size 8)', 1)", "Net (batch size 8)", 1),
        ("Net (scale factor 2)", "Net", 2),
        ("Net (batch size 8) (scale factor 4)", "Net (batch size 8)", 4),
        ("Net (batch size 8)", "Net (batch size 8)", 1),
        ("(__import__('os').abort(), 1)", "(__import__('os').abort(), 1)", 1),  # text; it is never evaluated
    ],
)
def test_keys_of_new_and_older_tables(tmp_path: Path, key: str, model: str, gang: int) -> None:
    found = read(tmp_path, gavel_line(gang=gang, kind=model), speeds={"v100": {key: {"null": 2}}})
    assert [(task.curve.nodes, task.curve.rate) for task in found.tasks] == [((gang,), (2.0,))]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "must be an object"),
        ({}, "no node kind"),
        ({"v100": 3}, "v100: must be an object"),
        ({"v100": {"('A', 1)": 3}}, "must be an object"),
        ({"v100": {"('A', 1)": {}}}, "None is not a speed"),
        ({"v100": {"('A', 1)": {"null": -1}}}, "-1 is not a speed"),
        ({"v100": {"('A', 1)": {"null": True}}}, "True is not a speed"),
        ({"v100": {"('A', 1)": {"null": "9"}}}, "'9' is not a speed"),
        ('{"v100": {"A": {"null": NaN}}}', "nan is not a speed"),
        ('{"v100": {"A": {"null": 1e999}}}', "inf is not a speed"),
        (f'{{"v100": {{"A": {{"null": 1{"0" * 400}}}}}}}', "1000.* is not a speed"),
        ({"v100": {"('A', 0)": {"null": 1}}}, "gang of at least 1"),
        ({"v100": {"": {"null": 1}}}, "no model"),
        ({"v100": {"('A', 1)": {"null": 1}, "A": {"null": 2}}}, "occurs twice"),
    ],
)
def test_a_broken_table_of_speeds_is_rejected_with_its_place(tmp_path: Path, content: object, word: str) -> None:
    with pytest.raises(BadInput, match=rf"speeds.json: .*{word}"):
        read(tmp_path, GAVEL, speeds=content)


def test_the_node_kind_is_the_named_one_or_the_only_one(tmp_path: Path) -> None:
    rows = {"Net": {"null": 1}}
    text = gavel_line(kind="Net")
    assert read(tmp_path, GAVEL, speeds=TABLE, kinds=("k80",)).node_kind == "k80"
    assert read(tmp_path, text, speeds={"t4": rows}).reference == "t4"
    with pytest.raises(UnknownName, match="did you mean 'a100'"):
        read(tmp_path, text, speeds={"t4": rows, "a100": rows}, kinds=("a10",))
