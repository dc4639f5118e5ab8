"""``bftrain doctor``: check every part and dependency, and show fixes; print the completion script of a shell."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BftrainError, Fault, NotAvailable
from bftrain.version import __version__
from bftrain_elastic.errors import install_hint

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.registry import RegisteredPart

_COMMAND_TIMEOUT_S: Final = 5.0

# Solvers required for basic work: the default one, and one for objectives that tie tasks together
_NEEDED: Final = {("solver", "exact"), ("solver", "highs")}

# module -> (its package, its purpose, the command that installs it)
_EXTRAS: Final = {
    "vl_convert": ("vl-convert-python", "pages and pictures of replays", "pip install vl-convert-python"),
    "distributed": ("distributed", "sweeps on a Dask cluster", install_hint("dask")),
    "torch": ("torch", "training", install_hint("torch")),
}
# scheduler -> (test command, how to install it, advice if it does not answer, full name)
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
    "flux": (
        ("flux", "uptime"),
        "run this where the scheduler's commands are installed",
        "see that Flux runs and that FLUX_URI names its instance, if it is not the system's",
        "Flux",
    ),
}


class PartState(StrEnum):
    """Result of a check."""

    OK = "ok"
    ABSENT = "absent"  # not usable here, and optional
    BROKEN = "broken"  # installed, but it does not work


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Result of checking one item."""

    kind: str
    name: str
    state: PartState
    detail: str = ""
    fix: str = ""
    needed: bool = False  # required for basic work


_SHELLS: Final = {
    "bash": 'eval "$(bftrain doctor --completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(bftrain doctor --completion zsh)" in ~/.zshrc',
    "fish": "bftrain doctor --completion fish > ~/.config/fish/completions/bftrain.fish",
}


@click.command(
    cls=DocumentedCommand,
    example="bftrain doctor\nbftrain doctor --completion bash > bftrain-completion.sh",
    epilog="\b\n" + "\n".join(["To complete commands and options by the Tab key:", *_SHELLS.values()]),
)
@click.option(
    "--completion", "shell", type=click.Choice(tuple(_SHELLS)), help="Print the completion script of a shell."
)
@prints_results
def command(shell: str | None, out: Output) -> None:
    """Find missing or broken parts and dependencies, with the fix; -v lists all.

    Exit 0 if all requirements of basic work are met, else 4.
    """
    if shell is not None:
        _print_completion(shell, out)
        return
    findings = list(examine())
    out.result(findings, lambda: _in_words(findings, whole=out.level > 0))
    lacking = [item.name for item in findings if item.needed and item.state is not PartState.OK]
    if lacking:
        raise NotAvailable(f"required for basic work, but not usable: {', '.join(lacking)}")


def _in_words(findings: Sequence[DoctorFinding], *, whole: bool) -> RenderableType:
    from rich.console import Group

    counts = Counter(item.state for item in findings)
    summary = (
        f"bftrain {__version__}, Python {platform.python_version()}: {counts[PartState.OK]} parts work, "
        f"{counts[PartState.BROKEN]} broken, {counts[PartState.ABSENT]} optional ones unavailable"
    )
    rows = [
        (item.kind, item.name, str(item.state), item.detail, item.fix)
        for item in findings
        if whole or item.state is not PartState.OK
    ]
    if not rows:
        return summary
    return Group(summary, table("", ("", "name", "state", "detail", "what to do"), rows, left=range(5), compact=True))


def _print_completion(shell: str, out: Output) -> None:
    from click.shell_completion import get_completion_class

    from bftrain.cli.main import main

    kind = get_completion_class(shell)
    if kind is None:
        raise Fault(f"click has no completion for {shell}")
    script = kind(main, {}, "bftrain", "_BFTRAIN_COMPLETE").source()
    out.result({"shell": shell, "script": script}, lambda: script)


def examine() -> Iterator[DoctorFinding]:
    """Yield the result of every check in sequence."""
    from importlib.metadata import PackageNotFoundError, version

    from bftrain import registry

    yield DoctorFinding("base", "bftrain", PartState.OK, __version__, needed=True)
    yield DoctorFinding("base", "python", PartState.OK, platform.python_version(), needed=True)
    for port in registry.PORTS:
        for part in registry.parts(port).values():
            own = part.origin == "bftrain"
            if port != "scheduler" or part.name not in _SCHEDULERS or not own:  # these are checked below
                name = part.name if own else f"{part.name} ({part.origin})"
                yield DoctorFinding(port, name, *_check_part(part), needed=own and (port, part.name) in _NEEDED)
    for module, (package, purpose, fix) in _EXTRAS.items():
        # Only located, not imported: importing torch takes seconds
        if find_spec(module) is None:
            yield DoctorFinding("extra", package, PartState.ABSENT, f"for {purpose}", fix)
            continue
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "version unknown"
        yield DoctorFinding("extra", package, PartState.OK, f"{found}, for {purpose}")
    for name, (probe, install, advice, full_name) in _SCHEDULERS.items():
        program = shutil.which(probe[0])
        if program is None:
            detail = f"no command '{probe[0]}'; only needed with {full_name}"
            yield DoctorFinding("scheduler", name, PartState.ABSENT, detail, install)
            continue
        state, detail = _run_probe(program, probe[1:], " ".join(probe))
        yield DoctorFinding("scheduler", name, state, detail, advice if state is PartState.BROKEN else "")


def _check_part(part: RegisteredPart) -> tuple[PartState, str, str]:
    if part.problem:
        return PartState.BROKEN, part.problem, f"pip uninstall {part.origin}"
    try:
        loaded = part.load()
        if not hasattr(loaded, "available"):
            return PartState.OK, "", ""
        found = loaded.available()
        detail = ", ".join(filter(None, (found.version, found.reason))) if found.ok else found.reason
        row = (PartState.OK if found.ok else PartState.ABSENT, detail, found.fix)
    except BftrainError as error:
        return PartState.BROKEN, error.what, error.fix or ""
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; all must be checked
        return PartState.BROKEN, f"raised {type(error).__name__}: {error}", ""
    return row


def _run_probe(program: str, arguments: tuple[str, ...], words: str) -> tuple[PartState, str]:
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, found on PATH, not run by a shell
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
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    first = lines[0] if lines else f"exit code {done.returncode}"
    return (PartState.OK, first) if done.returncode == 0 else (PartState.BROKEN, f"'{words}': {first}")
