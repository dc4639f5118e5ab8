"""``bftrain train``: try a training script elastically on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput, Interrupted, UsageError
from bftrain.live.commands.trials import TrialLogs, failed, takes_a_script, trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from bftrain_elastic.tryout.try_script import ScriptTrial, SizeChange

_EVERY_S: Final = 2.0  # how often progress is printed
_POLL_S: Final = 0.1
_CHANGING: Final = {"start": "starting", "grow": "growing", "shrink": "shrinking"}
_REST_S: Final = 5.0  # how long the default schedule stays at each size


@click.command(
    cls=DocumentedCommand,
    example="bftrain train cnn.py --nodes 1:4 --script 1@0,3@5,2@10 -- --steps 500",
    epilog="What follows -- goes to the script.",
)
@takes_a_script
@click.option("--nodes", metavar="MIN:MAX", default="1:4", show_default=True, help="Sizes the script may get.")
@click.option(
    "--script",
    "changes",
    metavar="SIZE@SECONDS,...",
    help="Sizes, and from when on; otherwise MIN, then MAX, then MIN, 5 seconds each.",
)
@click.option(
    "--for",
    "limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop then; otherwise when the script ends.",
)
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep commits and logs there; go on from them."
)
@prints_results
def command(
    script: Path,
    words: tuple[str, ...],
    nodes: str,
    backend: str,
    changes: str | None,
    limit_s: float | None,
    folder: Path | None,
    out: Output,
) -> None:
    """Train SCRIPT on this machine as on several nodes, change their number, and measure what that costs.

    With -v the script's own output is shown too.
    """
    smallest, largest = _range(nodes)
    plan = _plan(changes, smallest, largest)
    with trial(script, words, backend, largest, out, folder) as (trying, stopped):
        watch = _Watch(trying, out)
        asked = _follow(trying, plan, limit_s, watch, stopped)
        interrupted = stopped()
        if folder is not None:
            trying.pause()
        watch.tell()
        result = _result(trying)
    if trying.failure:
        raise failed(trying, script, out)
    if not result["steps"]:
        raise _nothing_reported(script, interrupted=interrupted)
    for size in asked:
        if not any(one["size"] == size for one in trying.lines()):
            out.warn(f"no step was done on {size} nodes{_why(trying)}")
    out.result(result, lambda: _words(result))
    if interrupted:
        raise Interrupted("interrupted; the figures are of what was done until then")


def _nothing_reported(script: Path, *, interrupted: bool) -> Exception:
    from bftrain_elastic.tryout.readiness_check import REPORT

    if interrupted:
        return Interrupted("interrupted before a step was reported")
    return BadInput("no step was reported", where=str(script), fix=f"{REPORT}; or look at its output: -v")


def _why(trying: ScriptTrial) -> str:
    from bftrain_elastic.tryout.readiness_check import COMMIT

    committed = any(one["type"] in {"in_memory", "on_disk"} for one in trying.messages)
    return "" if committed else f", because nothing was committed: {COMMIT}"


def _range(text: str) -> tuple[int, int]:
    smallest, _, largest = text.partition(":")
    if (
        not smallest.isdigit()
        or not (largest or smallest).isdigit()
        or not 1 <= int(smallest) <= int(largest or smallest)
    ):
        raise UsageError(f"'{text}' is not MIN:MAX", where="--nodes", fix="such as 1:4")
    return int(smallest), int(largest or smallest)


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
    """Says what goes on while a script trains."""

    def __init__(self, trying: ScriptTrial, out: Output) -> None:
        self._trying = trying
        self._out = out
        self._logs = TrialLogs(trying.folder)
        self._logs.skip()
        self._begun = time.time()
        self._next = 0.0
        self._change: tuple[str, float] | None = None  # the last that was printed
        self._since: dict[str, Any] | None = None  # the first step after the last line
        self._samples = 0

    def tell(self) -> None:
        """Say what is new."""
        for message in self._trying.news():
            self._hear(message)
        latest = self._trying.measuring.latest
        if latest is not None and latest is not self._change:
            self._change = latest
            self._say(time.time() - self._begun, f"{_CHANGING[latest[0]]} cost {latest[1]:.3f} s")
        if self._out.level > 0:
            for line in self._logs.new_lines():
                self._out.detail(f"          {line}")

    def _hear(self, message: dict[str, Any]) -> None:
        at_s = message["t"] - self._begun
        match message["type"]:
            case "confirmed":
                nodes = "1 node" if message["size"] == 1 else f"{message['size']} nodes"
                self._say(at_s, f"{nodes}, from step {message['step']} on")
                self._next, self._since = 0.0, None
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
        self._say(at_s, f"step {message['step']}{speed}{loss}")
        self._next, self._since, self._samples = message["t"] + _EVERY_S, message, 0

    def _say(self, at_s: float, text: str) -> None:
        self._out.say(f"{at_s:6.2f} s  {text}")


def _follow(
    trying: ScriptTrial, plan: tuple[SizeChange, ...], limit_s: float | None, watch: _Watch, stopped: Callable[[], bool]
) -> list[int]:
    """Change sizes as planned, until the script or the time ends, or the user stops it; returns the requested sizes."""
    begun, ahead, asked = time.monotonic(), list(plan), list[int]()
    while not trying.ended and not stopped():
        now_s = time.monotonic() - begun
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


def _words(result: dict[str, Any]) -> RenderableType:
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
    return Group(*parts)
