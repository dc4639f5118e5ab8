"""``bftrain hooks``: scripts by which a scheduler tells a live run of jobs that start and end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.schedulers.hook_install import InstalledHooks

_KIND = click.argument("kind", metavar="slurm|pbs", type=click.Choice(["slurm", "pbs"]))
_SPOOL = click.option(
    "--spool", required=True, type=click.Path(path_type=Path), help="The folder into which the hook writes."
)


@click.group()
def command() -> None:
    """Let a batch scheduler tell a live run at once of jobs that start and end."""


@command.command(
    cls=DocumentedCommand, example="bftrain hooks install slurm --spool /run/bftrain --to /etc/slurm/bftrain.sh"
)
@_KIND
@_SPOOL
@click.option(
    "--to", "hook", required=True, type=click.Path(path_type=Path), help="Where the scheduler finds the hook."
)
@click.option("--owner", default="", help="The user who runs bftrain live, if it is another one.")
@click.option("--writer", default="root", show_default=True, help="The user who runs the hook, such as SlurmUser.")
@prints_results
def install(kind: Literal["slurm", "pbs"], spool: Path, hook: Path, owner: str, writer: str, out: Output) -> None:
    """Write the hook, make the spool, and say what else is to be done."""
    from bftrain.live.schedulers.hook_install import install

    done = install(kind, spool=spool, hook=hook, owner=owner, writer=writer)
    out.result(done, lambda: _words(kind, done))


@command.command(cls=DocumentedCommand, example="bftrain hooks show slurm --spool /run/bftrain")
@_KIND
@_SPOOL
@prints_results
def show(kind: Literal["slurm", "pbs"], spool: Path, out: Output) -> None:
    """Print the hook, to be read before it is used."""
    from bftrain.live.schedulers.hook_install import hook_text

    text = hook_text(kind, spool)
    if out.json:
        out.result({"hook": text}, str)
        return
    click.echo(text, nl=False)


def _words(kind: str, done: InstalledHooks) -> RenderableType:
    from rich.text import Text

    place = "slurm.conf, and then run scontrol reconfigure" if kind == "slurm" else "a shell, as a manager of PBS"
    lines = [f"wrote {done.hook}, which writes into {done.spool}", "", f"In {place}:", "", done.for_scheduler, ""]
    return Text("\n".join([*lines, "In [scheduler] of the site's settings:", "", done.for_site]))
