"""``bftrain page``: where the status page of a live run is, with the token in its address, for its owner alone."""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.errors import BadInput, NotAvailable
from bftrain.live.commands.connection import Live, talks

if TYPE_CHECKING:
    from bftrain.live.model.schemas import PageView


@click.command(
    cls=DocumentedCommand,
    example="bftrain page --open",
    epilog="The address grants your rights: it is for your browser alone. "
    "On another machine: ssh -L 8765:127.0.0.1:8765 THIS_MACHINE, and open the address there.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in a browser; the token is in no argument then.")
@talks
@prints_results
def command(live: Live, out: Output, *, opens: bool) -> None:
    """Print the address of the status page of a live run, with the token that it needs."""
    with live.call() as client:
        page = client.page()
    address = address_of(page)
    if opens:
        _open(address)
        out.say(f"opened {page.address}")
    else:
        out.result({"address": address}, lambda: address)


def address_of(page: PageView) -> str:
    """Give the address with the token, which stands in a file that only its owner can read."""
    if not page.address:
        raise NotAvailable(
            "the live run answers on its socket alone", where="[api] tcp", fix='tcp = "127.0.0.1:8765" in its settings'
        )
    try:
        token = Path(page.token_file).read_text(encoding="ascii").strip()
    except OSError as error:
        fix = "ask the user who runs it, or call this where it runs"
        raise BadInput(f"the token cannot be read: {error.strerror}", where=page.token_file, fix=fix) from error
    return f"{page.address}#token={token}"


def _open(address: str) -> None:
    """Open an address in a browser, by way of a private file: programs' arguments are visible to all users."""
    file, name = tempfile.mkstemp(prefix="bftrain-page-", suffix=".html")  # for us alone
    with os.fdopen(file, "w", encoding="utf-8") as page:
        page.write(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}"><p>Opening.</p>\n'
        )
    if not webbrowser.open(Path(name).as_uri()):
        Path(name).unlink()
        raise NotAvailable("no browser was found", where="--open", fix="bftrain page prints the address")
