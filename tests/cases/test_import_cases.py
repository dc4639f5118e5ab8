"""Import every case and compare the results that it lists.

Add a case: create FORMAT/NAME/expect.toml with a [[variant]] for each import; keys above the first one apply to all.
Input: `text` (a string, or a list: one per file) or `files` of the folder, with `replace = [[old, new], ...]`;
`options` of the import ("" stands for None).
Results, compared only if listed: see `results_of_log` and `results_of_workload`; or `error`, its type, and `match`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest

import bftrain
from bftrain import EventLog, ImportOptions, NodeState, WorkloadOptions, import_logs, import_workload
from bftrain_datasets.log.idle_doubts import doubts_of

CASES = Path(__file__).parent
INPUT_KEYS = {"about", "text", "files", "replace", "options", "speeds", "error", "match"}
MAX_LISTED_NODES = 8


def variants() -> list[Any]:
    """Return each variant with its case's folder and the keys that apply to all variants of the case."""
    params = []
    for file in sorted(CASES.glob("*/*/expect.toml")):
        case = tomllib.loads(file.read_text(encoding="utf-8"))
        listed = case.pop("variant", [{}])
        for number, variant in enumerate(listed):
            label = f"{file.parent.parent.name}/{file.parent.name}/{number}"
            params.append(pytest.param(file.parent, case | variant, id=label))
    return params


def write_inputs(folder: Path, case: Mapping[str, Any], target: Path) -> list[Path]:
    """Write the input files of a case, called 0, 1, ..., and return their paths."""
    texts = case.get("text", [])
    contents = [text.encode() for text in ([texts] if isinstance(texts, str) else texts)]
    contents += [(folder / name).read_bytes() for name in case.get("files", []) if "text" not in case]
    for old, new in case.get("replace", []):
        assert any(old.encode() in content for content in contents), f"nothing to replace: {old!r}"
        contents = [content.replace(old.encode(), new.encode()) for content in contents]
    paths = [target / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def import_options(values: Mapping[str, Any]) -> ImportOptions:
    def with_none(value: Any) -> Any:  # noqa: ANN401 - nested lists
        return [with_none(item) for item in value] if isinstance(value, list) else None if value == "" else value

    return msgspec.convert({name: with_none(value) for name, value in values.items()}, ImportOptions)


def workload_options(folder: Path, case: Mapping[str, Any], target: Path) -> WorkloadOptions:
    values = dict(case.get("options", {}))
    if "zone" in values:
        values["zone"] = ZoneInfo(values["zone"])
    for name in ("kinds", "window"):
        if name in values:
            values[name] = tuple(None if item == "" else item for item in values[name])
    if "speeds" in case:
        shared = folder.parent / case["speeds"]
        values["speeds"] = target / "speeds.json"
        values["speeds"].write_text(shared.read_text() if shared.suffix == ".json" else case["speeds"])
    return WorkloadOptions(**values)


def results_of_log(log: EventLog) -> dict[str, Any]:
    """Return the results of an import; ``idle`` holds the node-seconds of each node, or of all where they are many."""
    idle, down = np.zeros(len(log.node_names)), 0.0
    for time_s, length_s in zip(log.times.tolist(), log.durations_s.tolist(), strict=True):
        states = log.states_at(time_s)
        idle += (states == NodeState.IDLE) * length_s
        down += float((states == NodeState.DOWN).sum() * length_s)
    story = log.provenance
    prefix = "rows_aside_"
    return {
        "format": story.made_by.removeprefix("reader "),
        "unit": log.unit,
        "start": log.start_s,
        "end": log.end_s,
        "nodes": len(log.node_names),
        "idle": log.idle_node_s if idle.size > MAX_LISTED_NODES else dict(zip(log.node_names, idle, strict=True)),
        "down": down,
        "used": story.counts["rows_used"],
        "aside": {name.removeprefix(prefix): rows for name, rows in story.counts.items() if name.startswith(prefix)},
        "kinds": sorted(finding.name for finding in story.findings),
        "findings": {each.name: [each.count, each.node_s or 0.0, each.first] for each in story.findings},
        "doubts": doubts_of(log).causes,
        "partitions": dict(story.partitions),
    }


def results_of_workload(path: Path, options: WorkloadOptions, target: Path) -> dict[str, Any]:
    found = import_workload(path, options)
    bftrain.save_tasks(found.tasks, target / "tasks.toml")
    tasks = tomllib.loads((target / "tasks.toml").read_text(encoding="utf-8")).get("task", [])
    return {
        "format": found.format,
        "begin": found.begin_s,
        "count": len(found.tasks),
        "tasks": {task.pop("name"): task for task in tasks},
        "used": found.rows.used,
        "aside": found.rows.aside,
        "kinds": sorted(finding.name for finding in found.findings),
        "findings": {each.name: [each.count, each.node_s or 0.0, each.first] for each in found.findings},
        "speeds_of": [found.node_kind or "", *found.kinds, found.reference or ""],
    }


def compare(expected: Any, found: Any, where: str) -> None:  # noqa: ANN401 - TOML values
    """Compare nested values; ``findings`` may list some of them, every other table must be complete."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys() or (where == "findings" and found.keys() >= expected.keys()), where
        for name, value in expected.items():
            compare(value, found[name], f"{where}.{name}")
    elif isinstance(expected, list) and where.startswith("findings"):
        compare(dict(enumerate(expected)), dict(enumerate(found[: len(expected)])), where.partition(".")[2])
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), where
    else:
        assert found == expected, where


@pytest.mark.parametrize(("folder", "case"), variants())
def test_case(folder: Path, case: dict[str, Any], tmp_path: Path) -> None:
    paths = write_inputs(folder, case, tmp_path)

    def results() -> dict[str, Any]:
        if folder.parent.name == "workloads":
            return results_of_workload(paths[0], workload_options(folder, case, tmp_path), tmp_path)
        return results_of_log(import_logs(*paths, options=import_options(case.get("options", {}))).log)

    if "error" in case:
        with pytest.raises(getattr(bftrain, case["error"])) as caught:
            results()
        assert re.search(case.get("match", ""), str(caught.value))
        return
    found = results()
    for name, expected in case.items():
        if name not in INPUT_KEYS:
            compare(expected, found[name], name)
