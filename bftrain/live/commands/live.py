"""``bftrain live``: train on idle nodes beside a running batch scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.interruption import held_back
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import shares_option, with_shares
from bftrain.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.api.server import ApiServer
    from bftrain.live.api.service import LiveService
    from bftrain.live.model.schemas import TaskView
    from bftrain.live.run.daemon import LiveDaemon

_DEMO_S = 600.0  # two minutes are enough on a machine with nothing else to do


@click.command(
    cls=DocumentedCommand,
    example="bftrain live --example slurm > site.toml\nbftrain live --config site.toml",
    epilog="docs/live.md shows how to begin. Ctrl-C or SIGTERM end it in order: "
    "tasks save where they are. A second one ends it at once. After any end it goes on where it was.",
)
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The site's settings.")
@click.option("--demo", is_flag=True, help="Train three small tasks on this machine, to see how it goes.")
@click.option(
    "--for",
    "limit_s",
    metavar="SECONDS",
    type=float,
    help=f"End the demo after so long, even if tasks are left [{_DEMO_S:g}].",
)
@shares_option
@click.option(
    "--example", metavar="NAME", help="Print settings to begin with: slurm, pbs, local, ...; or systemd-user."
)
@prints_results
def command(
    config: Path | None, limit_s: float | None, shares: Path | None, example: str | None, out: Output, *, demo: bool
) -> None:
    """Train elastic tasks on the idle nodes of a running batch scheduler, at no cost to it."""
    if example is not None:
        _show(example, out)
        return
    if demo and config is not None:
        raise UsageError("the demo has settings of its own", where="--config", fix="leave out --demo or --config")
    if demo and shares is not None:
        raise UsageError("cannot be used with --demo", where="--shares", fix="leave out --demo or --shares")
    if limit_s is not None and not demo:
        raise UsageError("is for the demo only", where="--for", fix="bftrain live --demo --for 60")
    with held_back():
        if demo:
            _demo(_DEMO_S if limit_s is None else limit_s, out)
        else:
            _run(config, shares, out)


def _run(config: Path | None, shares: Path | None, out: Output) -> None:
    from msgspec.structs import replace

    from bftrain.live.commands.event_text import EventNarrator
    from bftrain.live.model.site_config import SiteSettings, load
    from bftrain.live.process import run

    site = load(config) if config is not None else SiteSettings()
    site = replace(site, deciding=replace(site.deciding, **with_shares({"shares": shares})))
    narrator = EventNarrator(out.say if out.level > 0 else None)
    run(site, out.say, narrator.begin)


def _show(example: str, out: Output) -> None:
    from bftrain.live import examples

    text = examples.for_us(example)
    if out.json:
        out.result({"example": text}, str)
        return
    click.echo(text, nl=False)


def _demo(limit_s: float, out: Output) -> None:
    import tempfile

    from bftrain.live.commands import demo_site
    from bftrain.live.commands.event_text import EventNarrator
    from bftrain.live.commands.page import address_of
    from bftrain.live.process import run

    demo_site.insist_on_torch()
    offices: list[LiveService] = []
    narrator = EventNarrator(out.say)

    async def beside(daemon: LiveDaemon, api: ApiServer, office: LiveService) -> None:
        offices.append(office)
        await narrator.begin(daemon, api, office)
        out.say("four slots of this machine become idle and busy; look at it from another terminal: bftrain top")
        out.say(f"or in a browser: {address_of(office.page())}")  # its token is worth nothing once the demo is over
        await demo_site.warm_up(daemon, office, narrator.tell)
        if not await demo_site.until_done(daemon, limit_s):
            narrator.tell(f"{limit_s:g} s are over: it ends, and what is not done yet would go on from here")

    with tempfile.TemporaryDirectory(prefix="bftrain-demo-") as folder:
        site = demo_site.demo_site(Path(folder))
        run(site, out.say, beside, ends_with_it=True)
        seen = [
            task for office in offices for task in narrator.tasks(office)
        ]  # after tasks have put themselves in order
    out.result({"tasks": seen, "nodes": narrator.idle_s}, lambda: _harvested(seen, narrator))


def _harvested(tasks: list[TaskView], narrator: Any) -> RenderableType:  # noqa: ANN401 - a Narrator, imported late
    from bftrain.live.commands.connection import done

    rows = [
        (
            task.name,
            task.state,
            done(task),
            f"{task.samples:,.0f}",
            f"{task.node_s:,.0f}",
            task.rescales,
            task.preemptions,
            narrator.losses(task.name),
        )
        for task in tasks
    ]
    used, idle = sum(task.node_s for task in tasks), narrator.idle_s
    share = f", {used / idle:.0%} of the {idle:,.0f} idle ones" if idle else ""
    columns = ("task", "state", "done", "samples", "node-s", "resized", "preempted", "loss")
    title = f"harvested: {sum(task.samples for task in tasks):,.0f} samples in {used:,.0f} node-seconds{share}"
    return table(title, columns, rows, left=(0, 1, 7))
