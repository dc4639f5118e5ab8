"""What ``train`` and ``elastic check`` share: a script tried on this machine, until it is done or the user stops it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bftrain.cli.interruption import interruption
from bftrain.cli.output import Output
from bftrain.errors import BadInput, Interrupted, NotAvailable

if TYPE_CHECKING:
    from bftrain_elastic.tryout.try_script import ScriptTrial

F = TypeVar("F", bound=Callable[..., Any])

_WARMING_S: Final = 180.0
_POLL_S: Final = 0.1
_TAIL_BYTES: Final = 65536  # of a log that are shown at a time


def takes_a_script(function: F) -> F:
    """Give a command a script, its words, and a launcher."""
    for decorate in (
        click.option(
            "--backend",
            metavar="NAME",
            default="native",
            show_default=True,
            help="The launcher: native (plain PyTorch), horovod, process (any program, from its checkpoint), torchrun, "
            "or a plug-in's.",
        ),
        click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED),
        click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False)),
    ):
        function = decorate(function)
    return function


@contextmanager
def trial(
    script: Path, words: tuple[str, ...], backend: str, nodes: int, out: Output, folder: Path | None = None
) -> Iterator[tuple[ScriptTrial, Callable[[], bool]]]:
    """Run a script on so many agents of this machine; yields it, and whether the user asked to stop."""
    from bftrain.registry import load
    from bftrain_elastic.errors import ElasticError
    from bftrain_elastic.tryout.try_script import ScriptTrial

    make = load("launcher", backend)
    found = make.available() if hasattr(make, "available") else None
    if found is not None and not found.ok:
        raise NotAvailable(found.reason, where=f"--backend {backend}", fix=found.fix)
    try:
        with (
            _hangup_stops(),
            interruption() as stopped,
            ScriptTrial(make, [str(script), *words], nodes=nodes, folder=folder and folder.resolve()) as trying,
        ):
            out.say(f"starting {nodes} agents on this machine ..." if nodes > 1 else "starting an agent ...")
            deadline = time.monotonic() + _WARMING_S
            while not trying.is_warm() and time.monotonic() < deadline:
                trying.until(trying.is_warm, _POLL_S)
                if stopped():
                    raise Interrupted("interrupted before the script was started")
            yield trying, stopped
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error


def failed(trying: ScriptTrial, script: Path, out: Output) -> BadInput:
    """Give the error that says why a script failed; its last output is printed before."""
    from bftrain_elastic.tryout.readiness_check import advice, last_line

    reason = trying.failure
    first = reason.partition("\n")[0]
    tell_last_words(reason, out)
    what = first if "never called" in first else f"it failed: {last_line(reason)}"
    return BadInput(what, where=str(script), fix=advice(reason, script))


def tell_last_words(reason: str, out: Output) -> None:
    """Tell what a script that failed wrote at its end."""
    lines = [line for line in reason.splitlines()[1:] if line.strip() and not line.startswith("Traceback (most recent")]
    if lines:
        out.say("\n    ".join(["its last words:", *lines]))


class TrialLogs:
    """What workers write, as it comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "logs"
        self._read: dict[Path, int] = {}

    def skip(self) -> None:
        """Leave out what is there already."""
        for path in self._folder.glob("*.log"):
            self._read[path] = path.stat().st_size

    def new_lines(self) -> Iterator[str]:
        """Give the lines that have come since, each with its worker's place."""
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read(_TAIL_BYTES)
            whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == _TAIL_BYTES else b"")
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield f"{path.stem}: {line}"


@contextmanager
def _hangup_stops() -> Iterator[None]:
    """Let a terminal that is closed stop us as SIGTERM does, unless we are to outlive it (nohup)."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
