"""The doctor: it gets through everything, however broken, and says what helps."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bftrain import __version__, registry
from bftrain.cli import doctor
from bftrain.cli.doctor import DoctorFinding, PartState, examine
from tests.unit.core.plugins import HERE, register


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Look for schedulers in one empty folder only."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def found(kind: str, name: str) -> DoctorFinding:
    matching = [finding for finding in examine() if (finding.kind, finding.name) == (kind, name)]
    assert len(matching) == 1
    return matching[0]


def test_the_base_is_there() -> None:
    assert found("base", "bftrain") == DoctorFinding(
        kind="base", name="bftrain", state=PartState.OK, detail=__version__, needed=True
    )
    assert found("base", "python").detail == ".".join(map(str, sys.version_info[:3]))


def test_every_registered_part_is_looked_at() -> None:
    looked_at = {(finding.kind, finding.name) for finding in examine()}
    assert {(port, name) for port in registry.PORTS for name in registry.BUILT_IN[port]} <= looked_at


def test_what_the_basic_work_needs_is_needed_and_works() -> None:
    needed = {(finding.name, finding.state) for finding in examine() if finding.needed}
    assert needed == {(name, PartState.OK) for name in ("bftrain", "python", "exact", "highs")}


@pytest.mark.parametrize(
    ("entry", "target", "state", "detail", "fix"),
    [
        ("dice", f"{HERE}:dice", PartState.OK, "", ""),
        ("module", HERE, PartState.OK, "module 1.0", ""),
        ("missing", f"{HERE}:missing", PartState.ABSENT, "no licence", "buy one"),
        ("rude", f"{HERE}:rude", PartState.BROKEN, "raised OSError: libfoo.so.3: cannot open shared object file", ""),
        (
            "mute",
            f"{HERE}:mute",
            PartState.BROKEN,
            "raised AttributeError: 'NoneType' object has no attribute 'ok'",
            "",
        ),
        (
            "gone",
            "no.such.module:x",
            PartState.BROKEN,
            "cannot be loaded from no.such.module:x: ModuleNotFoundError: No module named 'no'",
            "repair or uninstall someones-package",
        ),
        (
            "wrong",
            f"{HERE}:no_solver",
            PartState.BROKEN,
            f"{HERE}:no_solver does not implement bftrain.ports.Solver",
            "repair or uninstall someones-package",
        ),
        (
            "exact",
            f"{HERE}:dice",
            PartState.BROKEN,
            "the name is taken by bftrain; rename the entry point",
            "pip uninstall someones-package",
        ),
    ],
)
def test_plug_ins_good_and_bad(
    monkeypatch: pytest.MonkeyPatch, entry: str, target: str, state: PartState, detail: str, fix: str
) -> None:
    register(monkeypatch, ("solver", entry, target))
    finding = found("solver", f"{entry} (someones-package)")
    assert (finding.state, finding.detail, finding.fix, finding.needed) == (state, detail, fix, False)
    assert found("solver", "exact").state is PartState.OK


def test_a_needed_part_that_breaks_stays_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**registry.BUILT_IN, "solver": {"exact": f"{HERE}:rude", "highs": f"{HERE}:missing"}}
    monkeypatch.setattr(registry, "BUILT_IN", broken)
    assert (found("solver", "exact").state, found("solver", "exact").needed) == (PartState.BROKEN, True)
    assert (found("solver", "highs").state, found("solver", "highs").needed) == (PartState.ABSENT, True)
    broken["solver"]["exact"] = "no.such:thing"
    assert (found("solver", "exact").state, found("solver", "exact").needed) == (PartState.BROKEN, True)


def test_an_extra_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)  # noqa: ARG005 - nothing is there
    fix = "pip install '.[torch]' in the checkout, or with the path of a wheel for '.'"
    assert found("extra", "torch") == DoctorFinding(
        kind="extra", name="torch", state=PartState.ABSENT, detail="for training", fix=fix
    )


def test_an_extra_that_is_installed_is_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "_EXTRAS", {"nowhere_else": ("nowhere_else", "sweeps", "pip install it")})
    (tmp_path / "nowhere_else.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "nowhere_else-2026.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nowhere_else\nVersion: 2026.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert found("extra", "nowhere_else").detail == "2026.1, for sweeps"
    shutil.rmtree(info)
    monkeypatch.syspath_prepend(tmp_path)  # forget what was seen there
    assert found("extra", "nowhere_else").detail == "version unknown, for sweeps"


def program(place: Path, name: str, script: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)


def test_without_its_command_a_scheduler_is_absent() -> None:
    slurm, pbs = found("scheduler", "slurm"), found("scheduler", "pbs")
    assert (slurm.state, slurm.fix) == (PartState.ABSENT, "apt-get install slurm-client")
    assert slurm.detail == "no command 'scontrol'; only needed to run beside Slurm"
    assert (pbs.state, pbs.fix) == (PartState.ABSENT, "run this where the scheduler's commands are installed")


@pytest.mark.parametrize(
    ("script", "state", "detail"),
    [
        ('echo "Slurmctld(primary) at $1 is UP"; echo more', PartState.OK, "Slurmctld(primary) at ping is UP"),
        ("exit 0", PartState.OK, "exit code 0"),
        ("echo no such host >&2; exit 1", PartState.BROKEN, "'scontrol ping': no such host"),
        ("echo is DOWN; exit 1", PartState.BROKEN, "'scontrol ping': is DOWN"),
        ("exit 7", PartState.BROKEN, "'scontrol ping': exit code 7"),
        ("printf 'caf\\351\\n'", PartState.OK, "caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_schedulers_command_is_asked_and_quoted(
    no_programs: Path, script: str, state: PartState, detail: str
) -> None:
    program(no_programs, "scontrol", script)
    finding = found("scheduler", "slurm")
    assert (finding.state, finding.detail) == (state, detail)
    assert ("SLURM_CONF" in finding.fix) is (state is PartState.BROKEN)


@pytest.mark.parametrize(("name", "command"), [("slurm", "scontrol ping"), ("pbs", "qstat -B")])
def test_a_command_that_hangs_is_given_up(
    no_programs: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    program(no_programs, command.split(maxsplit=1)[0], "read forever < /dev/zero")
    monkeypatch.setattr(doctor, "_COMMAND_TIMEOUT_S", 0.2)
    finding = found("scheduler", name)
    assert finding.state is PartState.BROKEN
    assert finding.detail == f"'{command}' did not answer within 0.2 s"


def test_a_command_that_cannot_be_run_is_broken(no_programs: Path) -> None:
    (no_programs / "scontrol").write_bytes(b"\x7fELF nonsense")
    (no_programs / "scontrol").chmod(0o755)
    finding = found("scheduler", "slurm")
    assert finding.state is PartState.BROKEN
    assert finding.detail == "'scontrol ping' cannot be run: Exec format error"
