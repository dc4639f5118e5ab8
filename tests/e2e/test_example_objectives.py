"""The objectives in examples/: they stand on the pages as they are in the files, and do what the pages say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.pages import ROOT, page

FOLDER = ROOT / "examples" / "objectives"
TUTORIAL = ROOT / "docs" / "tutorials" / "your-objective.md"


def on_page(path: Path) -> dict[str, str]:
    return {name: block.text for block in page(path).blocks if (name := block.one("file")) is not None}


def sizes(bftrain: CommandLine, problem: Path, *options: str | Path) -> dict[str, int]:
    ended = bftrain("solve", problem, "--json", *options)
    assert ended.code == 0, ended.err
    found: dict[str, int] = json.loads(ended.out)["sizes"]
    return found


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(on_page(TUTORIAL)["problem.json"])
    return path


def test_who_is_thrifty_leaves_nodes_that_bring_too_little(bftrain: CommandLine, problem: Path) -> None:
    metric = f"{FOLDER / 'thrifty.py'}:"
    assert sum(sizes(bftrain, problem).values()) == 60
    # resnet gains 94, 86 and 72 % of its first node's 2,000 on its first 8, up to 16 and up to 32; bert 92, 79 and 57 %
    assert sizes(bftrain, problem, "--objective", f"{metric}at_70") == {"resnet": 32, "bert": 16}
    assert sizes(bftrain, problem, "--objective", f"{metric}thrifty") == {"resnet": 16, "bert": 8}
    assert sizes(bftrain, problem, "--objective", f"{metric}at_90") == {"resnet": 8, "bert": 8}


def test_who_is_calm_changes_one_task_at_most(bftrain: CommandLine, problem: Path) -> None:
    held = {"resnet": 8, "bert": 16}
    plain = sizes(bftrain, problem)
    assert sum(plain[name] != size for name, size in held.items()) == 2
    calm = sizes(bftrain, problem, "--objective", f"{FOLDER / 'calm.py'}:Calm", "--solver", "highs")
    assert calm == {"resnet": 32, "bert": 16}
