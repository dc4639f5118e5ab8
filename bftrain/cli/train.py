"""``bftrain train``: try a training script elastically on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain_elastic.trying import Change, Trying

_EVERY_S: Final = 2.0  # how often progress is told
_WAITING_S: Final = 0.2
_REST_S: Final = 5.0  # how long the default schedule stays at each size


@click.command(epilog="What follows -- goes to the script: bftrain train cnn.py --nodes 1:4 -- --steps 500")
@click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--nodes", metavar="MIN:MAX", default="1:4", show_default=True, help="Sizes the script may get.")
@click.option("--backend", default="native", show_default=True, help="The launcher: native, process, torchrun, ...")
@click.option(
    "--script",
    "changes",
    metavar="SIZE@SECONDS,...",
    help="Sizes, and from when on; otherwise MIN, then MAX, then MIN, 5 seconds each.",
)
@click.option("--for", "limit_s", metavar="SECONDS", type=float, help="Stop then; otherwise when the script ends.")
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
    """Train SCRIPT on this machine as on several nodes, change their number, and measure what that costs."""
    from bftrain.registry import load
    from bftrain_elastic.errors import ElasticError
    from bftrain_elastic.trying import Trying

    smallest, largest = _range(nodes)
    watch = _Watch(out)
    try:
        plan = _plan(changes, smallest, largest)
        make = load("launcher", backend)
        argv = [str(script), *words]
        with Trying(make, argv, nodes=largest, folder=folder and folder.resolve(), watch=watch.hear) as trying:
            out.say(f"starting {largest} agents on this machine ...")
            trying.warm_up()
            _follow(trying, plan, limit_s, watch)
            result = _result(trying)
            failed = next((one["reason"] for one in trying.told if one["told"] == "failed"), "")
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    if failed:
        raise BadInput(failed, where=str(script), fix="see what it needs: bftrain elastic check")
    out.result(result, lambda: _words(result))


def _range(text: str) -> tuple[int, int]:
    smallest, _, largest = text.partition(":")
    if (
        not smallest.isdigit()
        or not (largest or smallest).isdigit()
        or not 1 <= int(smallest) <= int(largest or smallest)
    ):
        raise UsageError(f"'{text}' is not MIN:MAX", where="--nodes", fix="such as 1:4")
    return int(smallest), int(largest or smallest)


def _plan(text: str | None, smallest: int, largest: int) -> tuple[Change, ...]:
    from bftrain_elastic.trying import Change, schedule

    if text is None:
        if smallest == largest:
            return (Change(largest, 0.0),)
        return (Change(smallest, 0.0), Change(largest, _REST_S), Change(smallest, 2 * _REST_S))
    plan = schedule(text)
    for change in plan:
        if change.size and not smallest <= change.size <= largest:
            raise UsageError(f"{change.size} is outside --nodes {smallest}:{largest}", where="--script")
    return plan


class _Watch:
    """Says what goes on while a script trains."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._begun = time.time()
        self._next = 0.0

    def begin(self) -> None:
        self._begun = time.time()

    def hear(self, told: dict[str, Any]) -> None:
        at_s = told["t"] - self._begun
        match told["told"]:
            case "confirmed":
                nodes = "1 node" if told["size"] == 1 else f"{told['size']} nodes"
                self._out.say(f"{at_s:6.2f} s  {nodes}, from step {told['step']} on")
                self._next = 0.0
            case "report" if told["t"] >= self._next:
                self._next = told["t"] + _EVERY_S
                loss = "" if told["loss"] is None else f", loss {told['loss']:.4g}"
                self._out.say(f"{at_s:6.2f} s  step {told['step']}{loss}")
            case "note":
                self._out.say(f"{at_s:6.2f} s  {told['text']}")
            case "paused" | "done" as what:
                self._out.say(f"{at_s:6.2f} s  {what} at step {told['step']}")


def _follow(trying: Trying, plan: tuple[Change, ...], limit_s: float | None, watch: _Watch) -> None:
    """Change sizes as planned, until the script or the time ends."""
    begun = time.monotonic()
    watch.begin()
    for change in plan:
        if limit_s is not None and change.at_s >= limit_s:
            break
        if trying.until(lambda: False, max(0.0, begun + change.at_s - time.monotonic())):
            return
        trying.resize(change.size)
    while not trying.until(lambda: False, _WAITING_S):
        if limit_s is not None and time.monotonic() - begun >= limit_s:
            return


def _result(trying: Trying) -> dict[str, Any]:
    measuring, lines = trying.measuring, trying.lines()
    losses = [one["loss"] for one in lines if one["loss"] is not None]
    return {
        "ended": trying.ended or "stopped",
        "steps": lines[-1]["step"] if lines else 0,
        "loss": {"first": losses[0], "last": losses[-1]} if losses else None,
        "speed": {str(size): rate for size, rate in measuring.speeds().items()},
        "step_s": {str(size): measuring.step_s(size) for size in measuring.speeds()},
        "cost_s": measuring.changes(),
    }


def _words(result: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    loss = result["loss"]
    fallen = f", loss {loss['first']:.4g} -> {loss['last']:.4g}" if loss else ""
    speeds = [(size, f"{rate:,.0f}", f"{1e3 * result['step_s'][size]:.1f}") for size, rate in result["speed"].items()]
    costs = [
        (change, len(found), f"{sorted(found)[len(found) // 2]:.3f}", f"{max(found):.3f}")
        for change, found in result["cost_s"].items()
    ]
    return Group(
        table(f"{result['ended']} after {result['steps']} steps{fallen}", ("nodes", "samples/s", "step, ms"), speeds),
        table("Costs of changing the size", ("change", "times", "median, s", "worst, s"), costs),
    )
