"""docs/formats.md tells the truth: its examples load, its tables are complete."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import fields

from bftrain import (
    AllocationProblem,
    BatchScaling,
    CompetingTask,
    NodeState,
    ResourceSpeeds,
    Settings,
    SpreadSpeed,
    SpreadSpeeds,
    TaskSpec,
    load_log,
    load_tasks,
    sample_log,
    save_log,
)
from bftrain.taskfiles.records import COLUMNS, KEYS, profiles
from bftrain.values import wire
from bftrain_datasets.log.measures import FragmentSummary, LeavingSummary, LogSummary
from bftrain_datasets.log.npz_log import FORMAT, KINDS, MEMBERS
from bftrain_datasets.log.provenance import LogProvenance

TEXT = (Path(__file__).parents[3] / "docs/formats.md").read_text()


def example(tmp_path: Path, heading: str, name: str) -> Path:
    block = TEXT.split(f"### {heading}")[1].split("```")[1]
    path = tmp_path / name
    path.write_text(block.partition("\n")[2])
    return path


def first_cells(heading: str) -> list[str]:
    """Names in the first column of the tables between this heading and the next."""
    section = re.split(r"^##", TEXT.split(f"{heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]


def test_the_example_log_loads(tmp_path: Path) -> None:
    log = load_log(example(tmp_path, "Log as `.csv`", "log.csv"))
    assert log.node_names == ("n1", "n2")
    assert log.idle_node_s == 300.5 + 180.5
    assert log.states_at(900).tolist() == [NodeState.BUSY, NodeState.DOWN]


def test_the_example_tasks_load_and_say_the_same_in_both_formats(tmp_path: Path) -> None:
    full = load_tasks(example(tmp_path, "Tasks as `.toml`", "tasks.toml"))
    table = load_tasks(example(tmp_path, "Tasks as `.csv`", "tasks.csv"))
    assert [task.name for task in full] == [task.name for task in table] == ["resnet18-1", "mine"]
    assert full[1].curve == table[1].curve
    assert full[0].work_samples == table[0].work_samples


def test_the_content_hash_is_made_as_described(tmp_path: Path) -> None:
    log = sample_log()
    save_log(log, tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as arrays:
        order = ("node_names", "times", "offsets", "nodes", "states", "end_s")
        assert ", ".join(f"`{name}`" for name in order[:-1]) + f" and `{order[-1]}`" in TEXT
        parts = [b"bftrain event log 1", *(arrays[name].tobytes() for name in order)]
    assert hashlib.sha256(b"\n".join(parts)).hexdigest() == log.sha256


def test_the_content_hash_with_kinds_is_made_as_described(tmp_path: Path) -> None:
    plain = sample_log()
    kinds = np.arange(len(plain.node_names)) % 2
    log = replace(plain, kind_names=("v100", "k80"), node_kinds=kinds)
    save_log(log, tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as arrays:
        order = ("node_names", "times", "offsets", "nodes", "states", "end_s")
        parts = [b"bftrain event log 1", *(arrays[name].tobytes() for name in order), b"kinds"]
        parts += [arrays[name].tobytes() for name in KINDS]
    assert hashlib.sha256(b"\n".join(parts)).hexdigest() == log.sha256


def test_the_example_problem_is_read_and_every_key_is_described() -> None:
    block = TEXT.split("## Problem as `.json`")[1].split("```json\n")[1].split("```")[0]
    problem = wire.decode(block, AllocationProblem)
    assert [task.name for task in problem.tasks] == ["running", "new"]
    keys = {*AllocationProblem.__struct_fields__, *CompetingTask.__struct_fields__}
    assert set(first_cells("## Problem as `.json`")) == keys


def test_every_setting_is_described_with_its_default() -> None:
    assert first_cells("## Settings as `.toml`") == list(Settings.__struct_fields__)
    section = TEXT.split("## Settings as `.toml`")[1]
    for field in fields(Settings):
        if field.default is msgspec.NODEFAULT:
            default = f"`{field.default_factory()}`"
        else:
            default = f"`{field.default}`" if isinstance(field.default, str) else field.default
        assert re.search(rf"^\| `{field.name}` \| .* \| {re.escape(str(default))} \|$", section, re.MULTILINE)


NESTED = {name for kind in (BatchScaling, SpreadSpeeds, SpreadSpeed, ResourceSpeeds) for name in kind.__struct_fields__}


def test_every_array_key_and_profile_is_described(tmp_path: Path) -> None:
    assert first_cells("### Log as `.npz`") == [*MEMBERS, *KINDS]
    assert first_cells("### Provenance") == list(LogProvenance.__struct_fields__)
    figures = (LogSummary, FragmentSummary, LeavingSummary)
    assert first_cells("### Figures of a log") == [name for kind in figures for name in kind.__struct_fields__]
    described = first_cells("### Tasks as `.toml`")
    assert set(described) == set(KEYS) | set(profiles()) | NESTED
    assert set(COLUMNS) == set(TaskSpec.__struct_fields__) | {"profile"}
    for known in profiles().values():
        assert f"| `{known.name}` | {known.curve.rate[0]:,.0f} | {known.curve.rate[-1]:,.0f} |" in TEXT
    save_log(sample_log(), tmp_path / "log.csv")
    assert f"# {FORMAT}\n" in (tmp_path / "log.csv").read_text()
    assert f"`{FORMAT}`" in TEXT
    assert f"| `format` | uint8 | {len(FORMAT)} |" in TEXT
