"""``bftrain api``: what programs can ask a live run, and what describes that to other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command(
    cls=DocumentedCommand,
    example="bftrain api --alerts > bftrain.rules.yml",
    epilog="docs/api.md shows how to ask. A live run tells its own description at /v1/openapi.json.",
)
@click.option("--openapi", is_flag=True, help="Print the description for programs: OpenAPI 3.1.")
@click.option("--grafana", is_flag=True, help="Print a dashboard for Grafana, over what /metrics tells Prometheus.")
@click.option("--alerts", is_flag=True, help="Print rules by which Prometheus tells when something is wrong.")
@prints_results
def command(out: Output, *, openapi: bool, grafana: bool, alerts: bool) -> None:
    """List what a live run can be asked over its socket or over HTTP; needs no live run."""
    if openapi + grafana + alerts > 1:
        raise UsageError("each prints a whole document", fix="ask for one after the other")
    if openapi:
        from bftrain.live.api.routes import description

        document = description()
        out.result(document, lambda: json.dumps(document, indent=2))
    elif grafana:
        board = _kept("grafana.json")
        out.result(json.loads(board), lambda: board)
    elif alerts:
        rules = _kept("alerts.yml")
        out.result({"alerts.yml": rules}, lambda: rules)
    else:
        _list(out)


def _kept(name: str) -> str:
    return resources.files("bftrain.live").joinpath(name).read_text(encoding="utf-8")


def _list(out: Output) -> None:
    from bftrain.live.api.openapi import described
    from bftrain.live.api.routes import ROUTES

    rows = [
        {"method": route.method, "path": route.path, "about": route.about, "operators": route.operators}
        for route in described(ROUTES)
    ]
    out.result(rows, lambda: _words(rows))


def _words(rows: Iterable[Mapping[str, object]]) -> RenderableType:
    lines = [
        (row["method"], row["path"], f"{row['about']} For operators." if row["operators"] else row["about"])
        for row in rows
    ]
    return table("", ("", "address", ""), lines, left=(0, 1, 2))
