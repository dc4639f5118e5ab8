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

from bftrain import __version__, registry
from bftrain.errors import BftrainError
from bftrain.ports import Availability

_COMMAND_TIMEOUT_S: Final = 5.0

# package to import -> (its distribution, the extra that brings it, what it is for)
_EXTRAS: Final = {
    "pyarrow": ("pyarrow", "parquet", "Parquet files"),
    "distributed": ("distributed", "dask", "sweeps on a Dask cluster"),
    "torch": ("torch", "torch", "training"),
    "horovod": ("horovod", "horovod", "Elastic Horovod training"),
}
# command -> (what answers when it works, Debian package, what it is for)
_SCHEDULERS: Final = {
    "slurm": (("scontrol", "ping"), "slurm-client", "Slurm"),
    "pbs": (("qstat", "-B"), "", "PBS"),
}


class State(StrEnum):
    """How a thing stands."""

    OK = "ok"
    ABSENT = "absent"  # not here, and nothing needs it unless asked for
    BROKEN = "broken"  # here, but it does not work


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    kind: str
    name: str
    state: State
    detail: str = ""
    fix: str = ""
    needed: bool = False  # bftrain cannot do its basic work without it


def examine() -> Iterator[Finding]:
    """Look at everything, one after the other."""
    yield Finding(kind="base", name="bftrain", state=State.OK, detail=__version__, needed=True)
    yield Finding(kind="base", name="python", state=State.OK, detail=platform.python_version(), needed=True)
    for port in registry.PORTS:
        for part in registry.parts(port).values():
            yield _part(part)
    for module, (distribution, extra, purpose) in _EXTRAS.items():
        yield _extra(module, distribution, extra, purpose)
    for name, (probe, package, purpose) in _SCHEDULERS.items():
        yield _scheduler(name, probe, package, purpose)


def _part(part: registry.Part) -> Finding:
    kind, name = part.port, part.name if part.origin == "bftrain" else f"{part.name} ({part.origin})"
    needed = (part.port, part.name) in {("solver", "exact"), ("solver", "highs")}
    if part.problem:
        return Finding(
            kind=kind, name=name, state=State.BROKEN, detail=part.problem, fix=f"pip uninstall {part.origin}"
        )
    try:
        loaded = part.load()
        state = loaded.available() if hasattr(loaded, "available") else Availability(ok=True)
        usable = state.ok
    except BftrainError as error:
        return Finding(kind=kind, name=name, state=State.BROKEN, detail=error.what, fix=error.fix or "", needed=needed)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the doctor must get through all of them
        detail = f"raised {type(error).__name__}: {error}"
        return Finding(kind=kind, name=name, state=State.BROKEN, detail=detail, needed=needed)
    if not usable:
        return Finding(kind=kind, name=name, state=State.ABSENT, detail=state.reason, fix=state.fix, needed=needed)
    return Finding(kind=kind, name=name, state=State.OK, detail=state.version, needed=needed)


def _extra(module: str, distribution: str, extra: str, purpose: str) -> Finding:
    # Found, not imported: importing torch takes seconds, and the doctor should answer at once
    if find_spec(module) is None:
        fix = f"pip install 'bftrain[{extra}]'"
        return Finding(kind="extra", name=module, state=State.ABSENT, detail=f"for {purpose}", fix=fix)
    try:
        found = version(distribution)
    except PackageNotFoundError:
        found = "version unknown"
    return Finding(kind="extra", name=module, state=State.OK, detail=f"{found}, for {purpose}")


def _scheduler(name: str, probe: tuple[str, ...], package: str, purpose: str) -> Finding:
    program = shutil.which(probe[0])
    if program is None:
        fix = f"apt-get install {package}" if package else "run this where the scheduler's commands are installed"
        detail = f"no command '{probe[0]}'; only needed to run beside {purpose}"
        return Finding(kind="scheduler", name=name, state=State.ABSENT, detail=detail, fix=fix)
    words = " ".join(probe)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, found on PATH, without a shell
            [program, *probe[1:]],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        detail = f"'{words}' cannot be run: {error.strerror}"
        return Finding(kind="scheduler", name=name, state=State.BROKEN, detail=detail, fix=f"repair {program}")
    except subprocess.TimeoutExpired:
        detail = f"'{words}' did not answer within {_COMMAND_TIMEOUT_S:g} s"
        return Finding(kind="scheduler", name=name, state=State.BROKEN, detail=detail, fix=f"{words}: see why it hangs")
    said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    first = said[0] if said else f"exit code {done.returncode}"
    if done.returncode != 0:
        return Finding(kind="scheduler", name=name, state=State.BROKEN, detail=f"'{words}': {first}", fix=words)
    return Finding(kind="scheduler", name=name, state=State.OK, detail=first)
