"""``bftrain elastic``: is a training script ready to be resized?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadInput


@click.group()
def command() -> None:
    """Look at training scripts before they are submitted."""


@command.command(epilog="What follows -- goes to the script: bftrain elastic check cnn.py -- --steps 500")
@click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--backend", default="native", show_default=True, help="The launcher: native, process, torchrun, ...")
@click.option("--steps", default=20, show_default=True, help="Steps to watch at each size.")
@click.option("--patience", "patience_s", default=60.0, show_default=True, help="Seconds to wait for them.")
@prints_results
def check(script: Path, words: tuple[str, ...], backend: str, steps: int, patience_s: float, out: Output) -> None:
    """Run SCRIPT on 1, 2 and 1 nodes of this machine, and say what it lacks to be elastic."""
    from bftrain.registry import load
    from bftrain_elastic.errors import ElasticError
    from bftrain_elastic.readiness import SIZES, findings
    from bftrain_elastic.trying import Trying

    out.say("running it on 1, 2 and 1 nodes of this machine ...")
    try:
        with Trying(load("launcher", backend), [str(script), *words], nodes=max(SIZES)) as trying:
            found = list(findings(trying, steps=steps, patience_s=patience_s))
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    rows = [("ok" if one.ok else "no", one.name, one.detail, one.fix) for one in found]
    out.result(
        [asdict(one) for one in found], lambda: table(str(script), ("", "", "seen", "what helps"), rows, left=range(4))
    )
    missing = [one.name for one in found if not one.ok]
    if missing:
        raise BadInput(
            f"not ready to be resized: {', '.join(missing)}", where=str(script), fix="docs/elastic.md shows how"
        )
