"""``bftrain doctor``: what is there, what is not, why, and what helps."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bftrain import registry
from tests.helpers.in_process import CommandLine


def findings(bftrain: CommandLine) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(bftrain("doctor", "--json").out)}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory that is the whole PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    return place


def test_what_the_basic_work_needs_is_there(bftrain: CommandLine) -> None:
    found = findings(bftrain)
    words = bftrain("doctor")
    assert words.code == 0
    assert any(line.split()[:3] == ["solver", "exact", "ok"] for line in words.out.splitlines())
    assert {"kind", "name", "state", "detail", "fix", "needed"} == set(found["exact"])
    for name in ("bftrain", "python", "exact", "highs"):
        assert found[name]["state"] == "ok"
        assert found[name]["needed"]
    for name in ("throughput", "first-come", "grouped", "pyarrow", "slurm", "pbs"):
        assert name in found


def test_words_name_the_command_that_helps(bftrain: CommandLine, programs: Path) -> None:
    assert not os.listdir(programs)  # noqa: PTH208 - nothing is on PATH
    words = bftrain("doctor").out
    assert "apt-get install slurm-client" in words
    assert "absent" in words


def break_part(monkeypatch: pytest.MonkeyPatch, name: str, target: str) -> None:
    table: Mapping[Any, Mapping[str, str]] = registry.BUILT_IN
    changed = {**table, "solver": {**table["solver"], name: target}}
    monkeypatch.setattr(registry, "BUILT_IN", changed)


@pytest.mark.parametrize("name", ["exact", "highs"])
@pytest.mark.usefixtures("programs")
def test_a_needed_part_that_is_broken_is_4(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    break_part(monkeypatch, name, "no_such_module:solver")
    ended = bftrain("doctor")
    assert ended.code == 4
    assert ended.err == f"bftrain: required for basic work, but not usable: {name}\n"
    assert [part for part, found in findings(bftrain).items() if found["state"] == "broken"] == [name]


def test_an_optional_part_may_be_broken(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    break_part(monkeypatch, "magic", "no_such_module:solver")
    assert bftrain("doctor").code == 0
    assert "no_such_module" in findings(bftrain)["magic"]["detail"]
