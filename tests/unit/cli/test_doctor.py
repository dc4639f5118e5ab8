"""``bftrain doctor``: it gets through everything, however broken, and tells what helps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bftrain import __version__
from tests.helpers import plugins
from tests.helpers.in_process import CommandLine

PLUGINS = """
from bftrain import Availability

class Fine:
    name = "fine"
    answer = Availability(ok=True, version="1.0")
    def available(self): return self.answer
    def solve(self, table, limits): ...

class Missing(Fine):
    answer = Availability(ok=False, reason="no licence", fix="buy one")

class Mute(Fine):
    answer = None

class Rude(Fine):
    def available(self): raise OSError("libfoo.so.3: cannot open shared object file")

fine, missing, mute, rude, number = Fine(), Missing(), Mute(), Rude(), 5
"""


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Look for schedulers in one empty folder only."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def findings(bftrain: CommandLine) -> dict[str, dict[str, Any]]:
    return {f"{finding['kind']} {finding['name']}": finding for finding in json.loads(bftrain("doctor", "--json").out)}


def test_what_the_basic_work_needs_is_there(bftrain: CommandLine) -> None:
    found = findings(bftrain)
    assert {name for name, row in found.items() if row["needed"]} == {
        *("base bftrain", "base python", "solver exact", "solver highs"),
    }  # fmt: skip
    assert all(row["state"] == "ok" for row in found.values() if row["needed"])
    assert found["base bftrain"]["detail"] == __version__
    assert {"objective throughput", "admission first-come", "placement grouped", "scheduler pbs"} <= set(found)
    whole, words = bftrain("doctor", "-v"), bftrain("doctor")
    assert (whole.code, words.code) == (0, 0)
    assert any(line.split()[:3] == ["solver", "exact", "ok"] for line in whole.out.splitlines())
    counts = {state: sum(row["state"] == state for row in found.values()) for state in ("ok", "broken", "absent")}
    summary = f"{counts['ok']} parts work, {counts['broken']} broken, {counts['absent']} optional ones unavailable"
    first, *rows = words.out.splitlines()
    assert first.endswith(summary)
    assert not any(" ok " in row for row in rows)
    assert len(rows) == counts["broken"] + counts["absent"] + 2 <= 11  # two lines are the table's head
    assert "apt-get install slurm-client" in words.out


@pytest.mark.parametrize(
    ("name", "target", "state", "detail", "fix"),
    [
        ("fine", "fine", "ok", "1.0", ""),
        ("missing", "missing", "absent", "no licence", "buy one"),
        ("rude", "rude", "broken", "OSError: libfoo.so.3: cannot open shared object file", ""),
        ("mute", "mute", "broken", "AttributeError: 'NoneType'", ""),
        ("gone", "no.such.module:x", "broken", "cannot be loaded from no.such.module:x", "uninstall doctor-plugins"),
        ("number", "number", "broken", "does not implement", "repair or uninstall doctor-plugins"),
        ("exact", "fine", "broken", "the name is already used by bftrain", "pip uninstall doctor-plugins"),
    ],
)
def test_plug_ins_good_and_bad(
    bftrain: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    target: str,
    state: str,
    detail: str,
    fix: str,
) -> None:
    plugins.install(monkeypatch, tmp_path, "doctor_plugins", PLUGINS, {f"solver.{name}": target})
    row = findings(bftrain)[f"solver {name} (doctor-plugins)"]
    assert (row["state"], detail in row["detail"], fix in row["fix"], row["needed"]) == (state, True, True, False), row
    assert findings(bftrain)["solver exact"]["state"] == "ok"
    assert bftrain("doctor").code == 0


def test_a_needed_part_that_is_broken_is_4(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bftrain_solvers.highs", None)
    ended = bftrain("doctor")
    assert (ended.code, ended.err.splitlines()[-1].endswith("not usable: highs")) == (4, True)


def test_an_extra_that_is_not_installed_has_the_command_that_installs_it(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    row = findings(bftrain)["extra torch"]
    assert (row["state"], "pip install '.[torch]'" in row["fix"]) == ("absent", True)


@pytest.mark.parametrize(
    ("script", "state", "detail"),
    [
        (b'#!/bin/sh\necho "Slurmctld(primary) at $1 is UP"; echo more', "ok", "Slurmctld(primary) at ping is UP"),
        (b"#!/bin/sh\nexit 0", "ok", "exit code 0"),
        (b"#!/bin/sh\necho no such host >&2; exit 1", "broken", "'scontrol ping': no such host"),
        (b"#!/bin/sh\necho is DOWN; exit 1", "broken", "'scontrol ping': is DOWN"),
        (b"#!/bin/sh\nprintf 'caf\\351\\n'", "ok", "caf\N{REPLACEMENT CHARACTER}"),
        (b"\x7fELF nonsense", "broken", "'scontrol ping' cannot be run: Exec format error"),
    ],
)
def test_a_schedulers_command_is_asked_and_quoted(
    bftrain: CommandLine, programs: Path, script: bytes, state: str, detail: str
) -> None:
    (programs / "scontrol").write_bytes(script)
    (programs / "scontrol").chmod(0o755)
    row = findings(bftrain)["scheduler slurm"]
    assert (row["state"], row["detail"]) == (state, detail)


def test_a_command_that_hangs_is_given_up(
    bftrain: CommandLine, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "qstat").touch(0o755)

    def hang(command: list[str], *, timeout: float, **_: object) -> None:
        assert timeout < 10.0
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    row = findings(bftrain)["scheduler pbs"]
    assert (row["state"], "'qstat -B' did not answer" in row["detail"]) == ("broken", True)
