"""``bftrain doctor``: what is there, what is not, why, and what helps."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bftrain import registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.helpers.in_process import CommandLine


def findings(bftrain: CommandLine) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(bftrain("doctor", "--json").out)}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty directory that is the whole PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    return place


def put(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def test_what_the_basic_work_needs_is_there(bftrain: CommandLine) -> None:
    found = findings(bftrain)
    assert bftrain("doctor").code == 0
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


@pytest.mark.parametrize(
    ("script", "state", "detail"),
    [
        ("echo 'Slurmctld(primary) at head is UP'", "ok", "is UP"),
        ("echo 'Slurmctld(primary) at head is DOWN'; exit 1", "broken", "is DOWN"),
        ("echo 'no slurm.conf' >&2; exit 1", "broken", "no slurm.conf"),
        ("exit 3", "broken", "exit code 3"),
    ],
)
def test_a_scheduler_is_asked_whether_it_answers(
    bftrain: CommandLine, programs: Path, script: str, state: str, detail: str
) -> None:
    put(programs, "scontrol", script)
    slurm = findings(bftrain)["slurm"]
    assert slurm["state"] == state
    assert detail in slurm["detail"]


def test_a_scheduler_that_hangs_is_broken(
    bftrain: CommandLine, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrain.doctor._COMMAND_TIMEOUT_S", 0.2)
    put(programs, "qstat", "exec /bin/sleep 60")
    pbs = findings(bftrain)["pbs"]
    assert pbs["state"] == "broken"
    assert "did not answer within 0.2 s" in pbs["detail"]


def break_part(monkeypatch: pytest.MonkeyPatch, name: str, target: str) -> None:
    table: Mapping[Any, Mapping[str, str]] = registry.BUILT_IN
    changed = {**table, "solver": {**table["solver"], name: target}}
    monkeypatch.setattr(registry, "BUILT_IN", changed)


def test_a_needed_part_that_is_broken_is_4(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    break_part(monkeypatch, "highs", "no_such_module:solver")
    ended = bftrain("doctor")
    assert ended.code == 4
    assert "not usable: highs" in ended.err
    assert findings(bftrain)["highs"]["state"] == "broken"


def test_a_part_that_nobody_needs_may_be_broken(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    break_part(monkeypatch, "magic", "no_such_module:solver")
    assert bftrain("doctor").code == 0
    assert "no_such_module" in findings(bftrain)["magic"]["detail"]


def test_a_part_that_raises_when_asked_does_not_stop_the_doctor(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moody:
        name = "moody"

        def solve(self, *_: object) -> None: ...

        def available(self) -> None:
            raise RuntimeError("not today")

    monkeypatch.setattr("bftrain.errors.moody", Moody(), raising=False)
    break_part(monkeypatch, "moody", "bftrain.errors:moody")
    assert "not today" in findings(bftrain)["moody"]["detail"]
