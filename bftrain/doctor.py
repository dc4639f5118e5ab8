"""Doctor: looks at everything bftrain can use here and says what is available, what is not, why, and what helps."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

import msgspec

from bftrain import registry
from bftrain.errors import BftrainError
from bftrain.ports import Availability
from bftrain.version import __version__

_COMMAND_TIMEOUT_S: Final = 5.0

# Without these there is no basic work: the default solver, and one that ties tasks together
_NEEDED: Final = {("solver", "exact"), ("solver", "highs")}

# module -> (package that it is of, what it is for, what brings it)
_EXTRAS: Final = {
    "vl_convert": ("vl-convert-python", "pages and pictures of replays", "pip install vl-convert-python"),
    "pyarrow": ("pyarrow", "Parquet files", "pip install 'bftrain[parquet]'"),
    "distributed": ("distributed", "sweeps on a Dask cluster", "pip install 'bftrain[dask]'"),
    "torch": ("torch", "training", "pip install 'bftrain[torch]'"),
}
# scheduler -> (what answers when it works, what brings the command, what helps if it does not answer, full name)
_SCHEDULERS: Final = {
    "slurm": (
        ("scontrol", "ping"),
        "apt-get install slurm-client",
        "see that slurmctld runs and that SLURM_CONF names its slurm.conf",
        "Slurm",
    ),
    "pbs": (
        ("qstat", "-B"),
        "run this where the scheduler's commands are installed",
        "see that the PBS server runs and that PBS_DEFAULT names its host",
        "PBS",
    ),
}


class PartState(StrEnum):
    """How a thing stands."""

    OK = "ok"
    ABSENT = "absent"  # not here, and nothing needs it unless asked for
    BROKEN = "broken"  # here, but it does not work


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    kind: str
    name: str
    state: PartState
    detail: str = ""
    fix: str = ""
    needed: bool = False  # bftrain cannot do its basic work without it


def examine() -> Iterator[DoctorFinding]:
    """Look at everything, one after the other."""
    yield DoctorFinding(kind="base", name="bftrain", state=PartState.OK, detail=__version__, needed=True)
    yield DoctorFinding(kind="base", name="python", state=PartState.OK, detail=platform.python_version(), needed=True)
    for port in registry.PORTS:
        for part in registry.parts(port).values():
            if port != "scheduler" or part.name not in _SCHEDULERS or part.origin != "bftrain":  # these are asked below
                yield _part(part)
    for module, (package, purpose, fix) in _EXTRAS.items():
        yield _extra(module, package, purpose, fix)
    for name, (probe, source, mending, purpose) in _SCHEDULERS.items():
        yield _scheduler(name, probe, source, mending, purpose)


def _part(part: registry.RegisteredPart) -> DoctorFinding:
    state, detail, fix = _tried(part)
    return DoctorFinding(
        kind=part.port,
        name=part.name if part.origin == "bftrain" else f"{part.name} ({part.origin})",
        state=state,
        detail=detail,
        fix=fix,
        needed=part.origin == "bftrain" and (part.port, part.name) in _NEEDED,
    )


def _tried(part: registry.RegisteredPart) -> tuple[PartState, str, str]:
    """Load a part and ask it; gives its state, details and what helps."""
    if part.problem:
        return PartState.BROKEN, part.problem, f"pip uninstall {part.origin}"
    try:
        loaded = part.load()
        found = loaded.available() if hasattr(loaded, "available") else Availability(ok=True)
        said = (PartState.OK, found.version, "") if found.ok else (PartState.ABSENT, found.reason, found.fix)
    except BftrainError as error:
        return PartState.BROKEN, error.what, error.fix or ""
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the doctor must get through all of them
        return PartState.BROKEN, f"raised {type(error).__name__}: {error}", ""
    return said


def _extra(module: str, package: str, purpose: str, fix: str) -> DoctorFinding:
    # Found, not imported: importing torch takes seconds, and the doctor should answer at once
    if find_spec(module) is None:
        return DoctorFinding(kind="extra", name=package, state=PartState.ABSENT, detail=f"for {purpose}", fix=fix)
    try:
        found = version(package)
    except PackageNotFoundError:
        found = "version unknown"
    return DoctorFinding(kind="extra", name=package, state=PartState.OK, detail=f"{found}, for {purpose}")


def _scheduler(name: str, probe: tuple[str, ...], source: str, mending: str, purpose: str) -> DoctorFinding:
    program, words = shutil.which(probe[0]), " ".join(probe)
    if program is None:
        detail = f"no command '{probe[0]}'; only needed to run beside {purpose}"
        return DoctorFinding(kind="scheduler", name=name, state=PartState.ABSENT, detail=detail, fix=source)
    state, detail = _asked(program, probe[1:], words)
    fix = mending if state is PartState.BROKEN else ""
    return DoctorFinding(kind="scheduler", name=name, state=state, detail=detail, fix=fix)


def _asked(program: str, arguments: tuple[str, ...], words: str) -> tuple[PartState, str]:
    """Run a scheduler's command; gives its state and the first line it said."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, found on PATH, without a shell
            [program, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return PartState.BROKEN, f"'{words}' cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return PartState.BROKEN, f"'{words}' did not answer within {_COMMAND_TIMEOUT_S:g} s"
    said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    first = said[0] if said else f"exit code {done.returncode}"
    if done.returncode != 0:
        return PartState.BROKEN, f"'{words}': {first}"
    return PartState.OK, first
