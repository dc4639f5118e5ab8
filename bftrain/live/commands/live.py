"""Commands that start a live run alongside a batch scheduler, and that print how other programs can reach it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import CommandGroup, DocumentedCommand, DocumentedGroup, rare
from bftrain.cli.interruption import blocked_signals
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import DurationType, shares_option, with_shares
from bftrain.errors import NotAvailable, UsageError
from bftrain.live.client import page_address
from bftrain.live.commands.tasks import clock, drain, hooks_in_words, talks

if TYPE_CHECKING:
    from bftrain.live.client import Client
    from bftrain.live.log import LogFormat

_CHECK_S = 5.0  # maximum delay of a test message
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
@click.option("--example", metavar="NAME", help="Print an example: slurm, pbs, local, ..., systemd-user, slurm-hook.")
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
        from bftrain.live import examples

        text = examples.for_us(example)
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
    example="bftrain live api --alerts > bftrain.rules.yml\nbftrain live api --grafana > dashboard.json",
    epilog="docs/reference/programs.md shows requests. A live run serves the description at /v1/openapi.json.",
)
@click.option("--openapi", is_flag=True, help="Print the OpenAPI 3.1 description.")
@click.option("--grafana", is_flag=True, help="Print a Grafana dashboard for the metrics.")
@click.option("--alerts", is_flag=True, help="Print alert rules for Prometheus.")
@prints_results
def api(out: Output, *, openapi: bool, grafana: bool, alerts: bool) -> None:
    """List the endpoints of the HTTP API; needs no live run."""
    from importlib import resources

    if openapi + grafana + alerts > 1:
        raise UsageError("each prints a whole document", fix="request one at a time")
    if grafana:
        board = resources.files("bftrain.live").joinpath("grafana.json").read_text(encoding="utf-8")
        out.result(json.loads(board), lambda: board)
        return
    if alerts:
        rules = resources.files("bftrain.live").joinpath("alerts.yml").read_text(encoding="utf-8")
        out.result({"alerts.yml": rules}, lambda: rules)
        return
    from bftrain.live.api.routes import described, description

    if openapi:
        document = description()
        out.result(document, lambda: json.dumps(document, indent=2))
        return
    routes = described()
    rows = [{"method": one.method, "path": one.path, "about": one.about, "operators": one.operators} for one in routes]
    lines = [(one.method, one.path, one.about + (" For operators." if one.operators else "")) for one in routes]
    out.result(rows, lambda: table("", ("", "address", ""), lines, left=(0, 1, 2)))


@command.command(
    cls=DocumentedCommand,
    example="bftrain live page\nbftrain live page --live http://login1:8471",
    epilog="The address grants your rights, so use it only in your browser. "
    "On another machine: ssh -L 8765:127.0.0.1:8765 THIS_MACHINE, and open the address there.",
)
@talks
def page(client: Client, out: Output) -> None:
    """Print the address of the status page of a live run, with its token."""
    address = page_address(client.page())
    out.result({"address": address}, lambda: address)


@command.group(cls=CommandGroup)
def hooks() -> None:
    """Report starts and ends of jobs from a batch scheduler to a live run immediately."""


@hooks.command(
    "check",
    cls=DocumentedCommand,
    example="bftrain live hooks check\nbftrain live hooks check --json",
    epilog="It fails until hooks have reported a job: run one first, such as srun true.",
)
@talks
def check_hooks(client: Client, out: Output) -> None:
    """Send a test message through the spool of a live run, and print the reports of hooks."""
    import time

    from bftrain.live.schedulers.hooks import send_check

    found = client.status().hooks
    if found is None:
        fix = "set it as docs/how-to/hooks.md shows"
        raise NotAvailable("the live run reads no spool", where="[scheduler] spool", fix=fix)
    before, began = found.messages.get("check", 0), time.monotonic()
    send_check(Path(found.spool))
    while True:
        status = client.status()
        took_s = time.monotonic() - began
        if status.hooks is not None and status.hooks.messages.get("check", 0) > before:
            break
        if took_s > _CHECK_S:
            what = f"no test message arrived within {_CHECK_S:g} s"
            raise NotAvailable(what, where=found.spool, fix="see the remarks in bftrain status")
        time.sleep(0.02)
    lines = f"a test message arrived after {took_s:.2f} s\nreceived: {hooks_in_words(status)}"
    out.result({"took_s": took_s, "hooks": status.hooks}, lambda: lines)
    if status.hooks.silent:
        raise NotAvailable(
            f"no hook has reported the {' or the '.join(status.hooks.silent)} of a job since the start of the live run",
            where=found.spool,
            fix="run a job and check again; then see that slurm.conf or PBS has both hooks, and restart slurmctld",
        )


command.add_command(drain)
