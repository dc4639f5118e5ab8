"""``bftrain train`` and ``bftrain check``: try a training script on this machine, and report problems."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.interruption import interruption
from bftrain.cli.output import LITERAL, Output, prints_results, table
from bftrain.cli.settings import DurationType, SizeRange
from bftrain.errors import BadInput, Interrupted, NotAvailable, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

    from bftrain_elastic.tryout.try_script import ScriptTrial, SizeChange

_EVERY_S: Final = 2.0  # interval of progress lines
_POLL_S: Final = 0.1
_CHANGING: Final = {"start": "starting", "grow": "growing", "shrink": "shrinking"}
_REST_S: Final = 5.0  # time between the changes of the default schedule
_LARGEST: Final = 4  # default maximum size
_WARMING_S: Final = 180.0
_RESTART: Final = "process"  # launcher that starts a script again at each size
_RENAMED: Final = {"--backend": "--launcher"}
_TAIL_BYTES: Final = 65536  # chunk of a log shown at a time

F = TypeVar("F", bound=Callable[..., Any])


def takes_a_script(function: F) -> F:
    """Add the arguments of a script and a launcher to a command."""
    for decorate in (
        click.option(
            "--launcher",
            "backend",
            metavar="NAME",
            default="native",
            show_default=True,
            help="The launcher: native (plain PyTorch), horovod, process (any program, from its checkpoint), or "
            "a plug-in's.",
        ),
        click.option(
            "--preload",
            metavar="MODULE,...",
            default="",
            help="Further modules, such as transformers, to import once with PyTorch before workers start.",
        ),
        click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED),
        click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False)),
    ):
        function = decorate(function)
    return function


@click.command(
    cls=DocumentedCommand,
    example="bftrain train cnn.py --nodes 1:4 --for 2min\n"
    "bftrain train cnn.py --nodes 1:4 --script 1@0,3@5,2@10 -- --steps 500",
    epilog="Arguments after -- are passed to the script.",
    renamed=_RENAMED,
)
@heading("How it is tried")
@rare("preload")
@takes_a_script
@click.option("--nodes", type=SizeRange(), default=f"1:{_LARGEST}", show_default=True, help="Minimum and maximum size.")
@click.option(
    "--script",
    "changes",
    metavar="SIZE@SECONDS,...",
    help="Sizes and their start in seconds [MIN, after 5 s MAX, after 10 s MIN].",
)
@click.option(
    "--for", "limit_s", type=DurationType(min=0, min_open=True), help="Stop after this time [when the script exits]."
)
@heading("Result")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep commits and logs there; existing commits are continued.",
)
@click.option(
    "--save-profile",
    "profile_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the measurements as a profile (.toml), for generated tasks of replays.",
)
@prints_results
def command(  # noqa: PLR0913 - one parameter an option
    script: Path,
    words: tuple[str, ...],
    *,
    nodes: tuple[int | None, int | None],
    backend: str,
    preload: str,
    changes: str | None,
    limit_s: float | None,
    folder: Path | None,
    profile_file: Path | None,
    out: Output,
) -> None:
    """Train SCRIPT on this machine as on several nodes, resize it, and measure the costs.

    With -v, also show the script's output.
    """
    from bftrain.taskfiles.profile_files import check_profiles_name
    from bftrain_elastic.tryout.readiness_check import COMMIT, REPORT

    smallest, largest = nodes[0] or 1, nodes[1] or max(nodes[0] or 1, _LARGEST)
    plan = _plan(changes, smallest, largest)
    if profile_file is not None:
        check_profiles_name(profile_file)
    with trial(script, words, backend, largest, out, folder, preload) as (trying, stopped), out.progress() as bars:
        watch = _Watch(trying, out, bars, limit_s)
        asked = _follow(trying, plan, limit_s, watch, stopped)
        interrupted = stopped()
        if folder is not None:
            trying.pause()
        watch.tell()
        result = _result(trying)
    if trying.failure:
        raise failed(trying, script, out)
    if not result["steps"]:
        if interrupted:
            raise Interrupted("interrupted before a step was reported")
        raise BadInput("no step was reported", where=str(script), fix=f"{REPORT}; or look at its output: -v")
    committed = any(one["type"] in {"in_memory", "on_disk"} for one in trying.messages)
    why = "" if committed else f", because no state was committed: {COMMIT}"
    trained = {one["size"] for one in trying.lines()}
    for size in (size for size in asked if size not in trained):
        out.warn(f"no step was done on {size} nodes{why}")
    result["state"] = trying.state_costs()
    if profile_file is not None:
        _save_profile(profile_file, script.stem, result, out)
    out.result(result, lambda: result_words(result))
    if interrupted:
        raise Interrupted("interrupted; the figures cover the completed part")


def _plan(text: str | None, smallest: int, largest: int) -> tuple[SizeChange, ...]:
    from bftrain_elastic.errors import ElasticError
    from bftrain_elastic.tryout.try_script import SizeChange, schedule

    if text is None:
        if smallest == largest:
            return (SizeChange(largest, 0.0),)
        return (SizeChange(smallest, 0.0), SizeChange(largest, _REST_S), SizeChange(smallest, 2 * _REST_S))
    try:
        plan = schedule(text)
    except ElasticError as error:
        raise UsageError(error.what, where="--script", fix=error.fix) from error
    for change in plan:
        if change.size and not smallest <= change.size <= largest:
            raise UsageError(f"{change.size} is outside --nodes {smallest}:{largest}", where="--script")
    return plan


class _Watch:
    """Shows the progress of a trial: a bar on a terminal, and lines in a pipe or with ``-v``."""

    def __init__(self, trying: ScriptTrial, out: Output, bars: Progress, limit_s: float | None) -> None:
        self._trying = trying
        self._out = out
        self._bars = bars
        shown = not bars.disable and out.level == 0
        self._bar = bars.add_task("starting", total=limit_s and math.ceil(limit_s)) if shown else None
        self._nodes = ""
        self._logs = TrialLogs(trying.folder)
        self._begun = time.time()
        self._next = 0.0
        self._changes = 0  # up to and including the last change with a printed cost
        self._since: dict[str, Any] | None = None  # the first step after the last line
        self._samples = 0

    def warn(self, text: str) -> None:
        if self._bar is None:
            self._out.warn(text)
        else:
            self._bars.console.print(f"warning: {text}", **LITERAL)

    def tell(self) -> None:
        for message in self._trying.news():
            self._hear(message)
        measuring = self._trying.measuring
        if measuring.crossed != self._changes and (latest := measuring.latest) is not None:
            self._changes = measuring.crossed
            self._say(time.time() - self._begun, f"{_CHANGING[latest[0]]} cost {latest[1]:.3f} s")
        if self._bar is not None:
            self._bars.update(self._bar, completed=int(time.time() - self._begun))
        if self._out.level > 0:
            for line in self._logs.new_lines():
                self._out.detail(f"          {line}")

    def _hear(self, message: dict[str, Any]) -> None:
        at_s = message["t"] - self._begun
        match message["type"]:
            case "confirmed":
                nodes = "1 node" if message["size"] == 1 else f"{message['size']} nodes"
                self._say(at_s, f"{nodes}, from step {message['step']} on")
                self._next, self._since, self._nodes = 0.0, None, nodes
            case "report":
                self._report(message, at_s)
            case "note":
                self._say(at_s, message["text"])
            case "paused" | "done" as what:
                self._say(at_s, f"{what} at step {message['step']}")

    def _report(self, message: dict[str, Any], at_s: float) -> None:
        self._samples += message["samples"]
        if message["t"] < self._next:
            return
        speed = ""
        if self._since is not None and message["t"] > self._since["t"]:
            speed = f", {self._samples / (message['t'] - self._since['t']):,.0f} samples/s"
        loss = "" if message["loss"] is None else f", loss {message['loss']:.4g}"
        if self._bar is None:
            self._say(at_s, f"step {message['step']}{speed}{loss}")
        else:
            self._bars.update(self._bar, description=f"step {message['step']:,}{loss}{speed}, {self._nodes}")
        self._next, self._since, self._samples = message["t"] + _EVERY_S, message, 0

    def _say(self, at_s: float, text: str) -> None:
        line = f"{at_s:6.2f} s  {text}"
        if self._bar is None:
            self._out.say(line)
        else:
            self._bars.console.print(line, **LITERAL)


def _follow(
    trying: ScriptTrial, plan: tuple[SizeChange, ...], limit_s: float | None, watch: _Watch, stopped: Callable[[], bool]
) -> list[int]:
    """Change sizes as planned, until the script exits, time is up, or the user stops it; return the requested sizes."""
    from bftrain_elastic.tryout.readiness_check import SILENCE, SILENCE_S

    begun, ahead, asked, silent_s = time.monotonic(), list(plan), list[int](), SILENCE_S
    while not trying.ended and not stopped():
        now_s = time.monotonic() - begun
        if now_s > silent_s:
            silent_s = inf
            if trying.is_silent:
                watch.warn(SILENCE)
        if limit_s is not None and now_s >= limit_s:
            break
        if ahead and now_s >= ahead[0].at_s:
            asked.append(ahead[0].size)
            trying.resize(ahead.pop(0).size)
        watch.tell()
        until_s = [one - now_s for one in (limit_s, ahead[0].at_s if ahead else None) if one is not None]
        trying.until(lambda: False, max(0.0, min(_POLL_S, *until_s)) if until_s else _POLL_S)
    return [size for size in dict.fromkeys(asked) if size]


def _result(trying: ScriptTrial) -> dict[str, Any]:
    measuring, lines = trying.measuring, trying.lines()
    losses = [one["loss"] for one in lines if one["loss"] is not None]
    return {
        "ended": trying.ended or "stopped",
        "steps": max((one["step"] for one in lines), default=0),
        "loss": {"first": losses[0], "last": losses[-1]} if losses else None,
        "speed": {str(size): rate for size, rate in measuring.speeds().items()},
        "step_s": {str(size): measuring.step_s(size) for size in measuring.speeds()},
        "cost_s": measuring.changes(),
    }


@contextmanager
def trial(
    script: Path,
    words: tuple[str, ...],
    backend: str,
    nodes: int,
    out: Output,
    folder: Path | None = None,
    preload: str = "",
    *,
    records_steps: bool = False,
) -> Iterator[tuple[ScriptTrial, Callable[[], bool]]]:
    """Run a script on that many local agents; yield it and a function that tells whether the user asked to stop."""
    from bftrain.registry import load
    from bftrain_elastic.agent.prefork_server import PRELOADED
    from bftrain_elastic.errors import ElasticError
    from bftrain_elastic.tryout.try_script import ScriptTrial

    modules = (*PRELOADED, *filter(None, map(str.strip, preload.split(","))))
    make = load("launcher", backend)
    found = make.available() if hasattr(make, "available") else None
    if found is not None and not found.ok:
        raise NotAvailable(found.reason, where=f"--launcher {backend}", fix=found.fix)
    try:
        with (
            interruption(message=False) as stopped,
            ScriptTrial(
                make,
                [str(script), *words],
                nodes=nodes,
                folder=folder and folder.resolve(),
                preload=modules,
                records_steps=records_steps,
            ) as trying,
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
    """Print the last output of a failed script; return the error that names the reason."""
    from bftrain_elastic.tryout.readiness_check import explain

    what, fix, output = explain(trying.failure, script)
    if output:
        out.say("\n    ".join(["its last output:", *output]))
    return BadInput(what, where=str(script), fix=fix)


class TrialLogs:
    """Follows the log files of workers, without the lines that exist already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "logs"
        self._read = {path: path.stat().st_size for path in self._folder.glob("*.log")}

    def new_lines(self) -> Iterator[str]:
        """Yield the new lines, each with its worker's place."""
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:  # a file that lost its middle continues at its end
                file.seek(min(self._read.get(path, 0), path.stat().st_size))
                self._read[path] = file.tell()
                data = file.read(_TAIL_BYTES)
            whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == _TAIL_BYTES else b"")
            self._read[path] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield f"{path.stem}: {line}"


@click.command(
    cls=DocumentedCommand,
    example="bftrain check cnn.py\nbftrain check cnn.py -- --epochs 1",
    epilog="Arguments after -- are passed to the script.",
    renamed=_RENAMED,
)
@rare("preload", "patience_s")
@takes_a_script
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Steps to watch at each size.")
@click.option(
    "--patience",
    "patience_s",
    type=DurationType(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds to wait for these steps.",
)
@prints_results
def check(
    script: Path, words: tuple[str, ...], *, backend: str, preload: str, steps: int, patience_s: float, out: Output
) -> None:
    """Run SCRIPT on one node of this machine, on two, and on the second alone, and list its elastic gaps."""
    from bftrain_elastic.tryout.readiness_check import NODES, explain, findings, watch

    with trial(script, words, backend, max(map(max, NODES)), out, preload=preload, records_steps=True) as (
        trying,
        stopped,
    ):
        out.say("running it on one node, on two, and on the second of them alone ...")
        seen = watch(trying, steps=steps, patience_s=patience_s, stopped=stopped, warn=out.warn)
        interrupted = stopped()
        message, failure = list(trying.messages), trying.failure
    if interrupted:
        raise Interrupted("interrupted before all was seen")
    found = list(findings(message, seen, script, restarts=backend == _RESTART))
    if failure and (output := explain(failure, script).output):
        out.say("\n    ".join(["its last output:", *output]))
    rows = [(one.name, "ok" if one.ok else "problem", one.detail, one.fix) for one in found]
    columns = ("", "state", "detail", "what to change")
    out.result([asdict(one) for one in found], lambda: table("", columns, rows, left=range(4), compact=True))
    if failed_count := sum(not one.ok for one in found):
        what = f"not ready to be resized: {failed_count} of {len(found)} checks failed"
        raise BadInput(what, where=script.name, fix="docs/how-to/elastic.md shows how")


def result_words(result: Mapping[str, Any]) -> RenderableType:
    """Return speeds, costs of changes and the size of the state, as the terminal shows them."""
    from rich.console import Group

    loss = result["loss"]
    fallen = f", loss {loss['first']:.4g} -> {loss['last']:.4g}" if loss else ""
    title = f"{result['ended']} after {result['steps']:,} steps{fallen}"
    speeds = [(size, f"{rate:,.0f}", f"{1e3 * result['step_s'][size]:.1f}") for size, rate in result["speed"].items()]
    costs = [
        (change, len(found), f"{sorted(found)[len(found) // 2]:.3f}", f"{max(found):.3f}")
        for change, found in result["cost_s"].items()
    ]
    parts: list[RenderableType] = [table(title, ("nodes", "samples/s", "step, ms"), speeds)] if speeds else [title, ""]
    if costs:
        parts.append(table("Costs of changing the size", ("change", "times", "median, s", "worst, s"), costs))
    if state := result["state"]:
        cost = "" if state["grow_s"] is None else f" Growing cost {state['grow_s']:.3f} s (median)."
        parts.append(f"The state has {state['bytes'] / 1e6:,.1f} MB.{cost}")
    return Group(*parts)


def _save_profile(path: Path, name: str, result: Mapping[str, Any], out: Output) -> None:
    """Save the profile of a trial: the median speed of each size and the median cost of each change."""
    if not result["speed"]:
        fix = "train longer, or at fewer sizes: --for, --script"
        raise BadInput("no profile, because no speed was measured", where=name, fix=fix)
    from bftrain.taskfiles.profile_files import save_profiles
    from bftrain.taskfiles.records import Profile
    from bftrain.values.curve import SpeedCurve

    curve = SpeedCurve(nodes=tuple(map(int, result["speed"])), rate=tuple(result["speed"].values()))
    costs = {f"{change}_cost_s": median(found) for change, found in result["cost_s"].items() if found}
    measured = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0, **costs}
    save_profiles([Profile(name=name, curve=curve, source="bftrain train, on one machine", **measured)], path)
    out.say(f"profile: {path} (bftrain generate tasks -o tasks.toml --kind trials --profiles {path})")
