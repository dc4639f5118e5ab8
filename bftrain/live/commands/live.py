"""``bftrain live``: start a live run alongside a batch scheduler, check its settings, pause it, and find its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand, DocumentedGroup, rare
from bftrain.cli.interruption import blocked_signals
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import DurationType, shares_option, with_shares
from bftrain.errors import NotAvailable, UsageError
from bftrain.live.client import page_address
from bftrain.live.commands.tasks import clock, drain, talks

if TYPE_CHECKING:
    from bftrain.live.client import Client
    from bftrain.live.log import LogFormat

_DEMO_S = 600.0  # two minutes are enough on an idle machine


@click.group(
    cls=DocumentedGroup,
    example="bftrain live --example slurm > site.toml\nbftrain live --config site.toml",
    epilog="docs/how-to/live.md shows the first steps. On Ctrl-C or SIGTERM tasks save their state; a second one stops "
    "immediately. The next start continues from the same state. With --json the log on stderr is JSON.",
)
@rare("log_format", hint="--json")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings of the site.")
@click.option("--demo", is_flag=True, help="Try it: train three small tasks on this machine.")
@click.option("--for", "limit_s", type=DurationType(), help=f"Time limit of the demo [{_DEMO_S:g}].")
@shares_option
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--example",
    metavar="NAME",
    help="Print an example: slurm, pbs, cluster, ..., systemd-user, slurm-hook; or grafana, alerts, openapi.",
)
@prints_results
def command(
    config: Path | None,
    limit_s: float | None,
    shares: Path | None,
    log_format: LogFormat,
    example: str | None,
    out: Output,
    *,
    demo: bool,
) -> None:
    """Train elastic tasks on the idle nodes of a running batch scheduler, at no cost to it."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    if example is not None:
        text = _example(example)
        if out.json:
            out.result({"example": text}, str)
        else:
            click.echo(text, nl=False)
        return
    if demo and config is not None:
        raise UsageError("the demo has settings of its own", where="--config", fix="omit --demo or --config")
    if demo and shares is not None:
        raise UsageError("cannot be used with --demo", where="--shares", fix="omit --demo or --shares")
    if limit_s is not None and not demo:
        raise UsageError("is for the demo only", where="--for", fix="bftrain live --demo --for 60")
    if config is None and not demo:
        fix = "bftrain live --example slurm > site.toml creates one; bftrain live --demo shows a live run"
        raise UsageError("a live run needs the settings of a site", where="--config", fix=fix)
    with blocked_signals():
        if config is None:
            from bftrain.live.commands.demo_site import run_demo

            run_demo(_DEMO_S if limit_s is None else limit_s, out)
            return
        from msgspec.structs import replace

        from bftrain.live.commands.demo_site import run_site
        from bftrain.live.model.site_config import load

        site = load(config, to_run=True)
        site = replace(site, deciding=replace(site.deciding, **with_shares({"shares": shares})))
        run_site(site, "json" if out.json else log_format, out)


def _example(name: str) -> str:
    if name != "openapi":
        from bftrain.live import examples

        return examples.for_us(name)
    from bftrain.live.api.routes import description

    return f"{json.dumps(description(), indent=2)}\n"


@command.command(
    cls=DocumentedCommand, example="bftrain live check --config site.toml\nbftrain live check --config site.toml --json"
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Settings of the site.",
)
@prints_results
def check(config: Path, out: Output) -> None:
    """Verify the settings of a site before the first start, without starting, submitting or writing anything.

    Checks folders, reachability, the scheduler's partition, preemption, priorities and limits, and hooks. Exit 4 if a
    live run cannot work with these settings.
    """
    import asyncio

    from bftrain.live.daemon.startup import examine
    from bftrain.live.model.site_config import load
    from bftrain.live.schedulers.base import FindingState

    found = asyncio.run(examine(load(config, to_run=True)))
    rows = [(one.topic, str(one.state), one.detail, one.fix) for one in found]
    out.result(found, lambda: table("", ("", "state", "detail", "what to change"), rows, left=range(4), compact=True))
    problems = sum(one.state is FindingState.PROBLEM for one in found)
    if problems:
        what = f"{problems} of {len(found)} checks failed: change the settings or the scheduler as listed"
        raise NotAvailable(what, where=str(config))
    out.say(f"ready: bftrain live --config {config}")


@command.command(cls=DocumentedCommand, example="bftrain live pause --for 2h\nbftrain live pause")
@click.option(
    "--for",
    "for_s",
    type=DurationType(0.0, min_open=True),
    help="Resume automatically after this time [with bftrain live resume].",
)
@talks
def pause(client: Client, for_s: float | None, out: Output) -> None:
    """Return all nodes: tasks save and wait, and pilots are cancelled."""
    view = client.pause_harvesting(for_s)
    until = "until bftrain live resume" if view.until_s is None else f"until {clock(view.until_s)}"
    out.result(view, lambda: f"harvesting is paused {until}")


@command.command(cls=DocumentedCommand, example="bftrain live resume\nbftrain live resume --live /scratch/ada/api.sock")
@talks
def resume(client: Client, out: Output) -> None:
    """Use nodes again after bftrain live pause."""
    out.result(client.resume_harvesting(), lambda: "harvesting continues")


@command.command(
    cls=DocumentedCommand,
    example="bftrain live page\nbftrain live page --live http://login1:8471",
    epilog="The address grants your rights, so use it only in your browser. "
    "On another machine: ssh -L PORT:127.0.0.1:PORT THIS_MACHINE with its port, and open it there.",
)
@talks
def page(client: Client, out: Output) -> None:
    """Print the address of the status page of a live run, with its token."""
    address = page_address(client.status())
    out.result({"address": address}, lambda: address)


command.add_command(drain)
