"""``bftrain elastic``: is a training script ready to be resized?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput, Interrupted
from bftrain.live.commands.trials import takes_a_script, tell_last_words, trial


@click.group()
def command() -> None:
    """Look at training scripts before they are submitted."""


@command.command(
    cls=DocumentedCommand,
    example="bftrain elastic check cnn.py -- --steps 500",
    epilog="What follows -- goes to the script.",
)
@takes_a_script
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Steps to watch at each size.")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds to wait for them.",
)
@prints_results
def check(script: Path, words: tuple[str, ...], backend: str, steps: int, patience_s: float, out: Output) -> None:
    """Run SCRIPT on one node of this machine, on two, and on the second alone, and say what it lacks to be elastic."""
    from bftrain_elastic.tryout.readiness_check import NODES, findings, watch

    with trial(script, words, backend, max(map(max, NODES)), out) as (trying, stopped):
        out.say("running it on one node, on two, and on the second of them alone ...")
        seen = watch(trying, steps=steps, patience_s=patience_s, stopped=stopped)
        interrupted = stopped()
        message, failure = list(trying.messages), trying.failure
    if interrupted:
        raise Interrupted("interrupted before all was seen")
    found = list(findings(message, seen, script))
    tell_last_words(failure, out)
    rows = [("ok" if one.ok else "no", one.name, one.detail, one.fix) for one in found]
    out.result(
        [asdict(one) for one in found], lambda: table(str(script), ("", "", "seen", "what helps"), rows, left=range(4))
    )
    missing = [one.name for one in found if not one.ok]
    if missing:
        raise BadInput(
            f"not ready to be resized: {', '.join(missing)}", where=str(script), fix="docs/elastic.md shows how"
        )
