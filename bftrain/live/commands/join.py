"""``bftrain live join``: run tasks on a site's nodes under one's own account."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.interruption import blocked_signals
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import BadConfig, NotAvailable, UsageError
from bftrain.live.commands.tasks import talks
from bftrain.text_formats import counted

if TYPE_CHECKING:
    from bftrain.live.client.client import Client
    from bftrain.live.run.live_log import LogFormat

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(
    cls=DocumentedCommand,
    example="bftrain live join /run/bftrain/api.sock --account climate",
    epilog="Its settings are the site's, kept as site.toml in the state. docs/live.md says which trust it takes.",
)
@click.argument("site", metavar="SOCKET")
@heading("Your own")
@click.option("--account", default="", help="The account that the scheduler is to charge [your own].")
@click.option("--option", "options", multiple=True, metavar="WORD", help="One more word for sbatch or qsub; several.")
@click.option("--folder", type=_FOLDER, help="For commits and logs, seen by all nodes [as the state].")
@click.option("--state", type=_FOLDER, help="For the journal, on a disk of this machine [~/.local/state/bftrain/live].")
@click.option("--python", default="", help="The Python of the agents on nodes [this one].")
@heading("Start")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="As of bftrain live.")
@click.option("--show", is_flag=True, help="Print the settings, for a file of your own, and start nothing.")
@prints_results
def join(  # noqa: PLR0913 - one parameter an option
    site: str,
    account: str,
    options: tuple[str, ...],
    folder: Path | None,
    state: Path | None,
    python: str,
    log_format: LogFormat,
    out: Output,
    *,
    show: bool,
) -> None:
    """Run your tasks under your own account, on your share of the nodes of a site.

    This is a live run of your own: your pilots, files, quotas and accounting. The site's live run, at SOCKET, says how
    many nodes it may hold. Submit to it as ever.
    """
    from bftrain import config, toml_io
    from bftrain.live.client.client import Client
    from bftrain.live.commands.run_site import run_site
    from bftrain.live.model.site_config import SiteSettings, default_state, load

    if "://" in site:
        what = f"{site} is an address, and no socket of this machine: only on a socket the kernel says who asks"
        raise UsageError(what, where="SOCKET", fix="join where the site's live run runs")
    socket = str(Path(site.removeprefix("unix:")).absolute())
    state = (state or default_state()).absolute()
    kept = state / "site.toml"
    try:
        with closing(Client(socket)) as client:
            found, user = client.site(), client.status().user
    except NotAvailable as error:
        if show or not kept.is_file():
            raise
        out.warn(f"{error}; the settings that it gave before hold: {kept}")
        settings = load(kept)
        if settings.join != socket:
            raise BadConfig(f"is a member of {settings.join}", where=str(kept), fix="name another --state") from error
    else:
        own: dict[str, Any] = {"folder": str(folder.absolute()) if folder else "", "state": str(state)}
        given = _with_own(found, account, options, python) | own | {"join": socket}
        text = toml_io.table(given)
        settings = config.from_mapping(given, SiteSettings, where=f"settings of {socket}")
        if show:
            out.result({"site.toml": text}, lambda: text)
            return
        _keep(kept, text)
        out.say(f"a member of site '{settings.name}', whose live run {user} runs; its settings: {kept}")
    with blocked_signals():
        run_site(settings, log_format, out)


def _with_own(found: dict[str, Any], account: str, options: tuple[str, ...], python: str) -> dict[str, Any]:
    """Return the settings of a site with what is our own."""
    charged = {"account": account} if account else {}
    tables = [one | charged for one in found["scheduler"]]
    if options:
        tables = [one | {"options": [*one.get("options", ()), *options]} for one in tables]
    agents = found["agents"] | ({"python": python} if python else {})
    return found | {"scheduler": tables[0] if len(tables) == 1 else tables, "agents": agents}


def _keep(path: Path, text: str) -> None:
    from bftrain.files import write_text

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise BadConfig(f"cannot be written: {error.strerror}", where=str(path), fix="name another --state") from error


@click.command(cls=DocumentedCommand, example="bftrain live members --live /run/bftrain/api.sock")
@talks
def members(client: Client, out: Output) -> None:
    """List the live runs of users that share a site's nodes, what they hold and may hold."""
    found = client.members()
    rows = [
        (
            one.user,
            one.held,
            one.nodes,
            one.wanted,
            f"{one.node_s / 3600:.1f}",
            "takes no idle node" if one.stuck else f"{one.silent_s:.0f} s ago",
        )
        for one in found
    ]
    heads = ("user", "nodes", "may hold", "could use", "node-hours", "reported")
    out.result(found, lambda: table(counted(len(found), "member"), heads, rows, left=(0, 5)))
