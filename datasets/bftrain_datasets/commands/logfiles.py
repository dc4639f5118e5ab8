"""Shared code of the commands on logs and task files: file arguments, options and figures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.errors import BadInput

if TYPE_CHECKING:
    from bftrain_datasets.log.eventlog import EventLog

P = ParamSpec("P")
R = TypeVar("R")

SCHEDULED_LOG: Final = "idle.npz"  # written by bftrain schedule into its folder


class InputFile(click.Path):
    """An existing file. For a folder written by ``bftrain schedule``, the log in it is used."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        """Return the path."""
        scheduled = Path(value, SCHEDULED_LOG)
        is_folder = False
        # click reports the permission error itself
        with suppress(PermissionError):
            is_folder = Path(value).is_dir()
        if is_folder and not scheduled.is_file():
            wanted = f"files in it, such as {value}/*" if self.allow_dash else "log in it"
            self.fail(f"'{value}' is a folder: name the {wanted}", param, ctx)
        return super().convert(scheduled if is_folder else value, param, ctx)


FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
log_argument = click.argument("log", type=InputFile())


def log_output(*, required: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the option for the written log to a command."""
    return _output("The log to write: .npz, .csv or .parquet.", required=required)


def _output(words: str, *, required: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", "path", type=kind, required=required, help=words)


kinds_option = click.option(
    "--kinds",
    type=FILE,
    default=None,
    metavar="FILE",
    help='Kinds of the nodes: kind = "node set" in a .toml, or columns nodes and kind in a .csv.',
)


def figures_of(log: EventLog, path: Path | None) -> dict[str, Any]:
    """Return figures about the written file, for JSON output."""
    return {
        "file": str(path) if path else None,
        "nodes": len(log.node_names),
        "events": len(log),
        "start_s": log.start_s,
        "end_s": log.end_s,
        "idle_share": log.idle_share,
        "idle_node_hours": log.idle_node_s / 3600,
        "sha256": log.sha256,
    }


def nodes_in_file(file: Path) -> tuple[str, ...]:
    """Return the node names in a file of node sets with ``#`` comments."""
    from bftrain.files import text_lines

    names: list[str] = []
    for number, line in text_lines(file):
        content = line.partition("#")[0].strip()
        if content:
            names += [name for part in content.split() for name in nodes_in(part, f"{file}:{number}")]
    if not names:
        raise BadInput("has no node", where=str(file), fix="write one node set per line")
    return tuple(dict.fromkeys(names))


def nodes_in(text: str, where: str) -> tuple[str, ...]:
    """Return the node names in a node set; ``where`` is its location, such as ``--nodes``."""
    from bftrain.nodesets import REMEDY, expand

    try:
        return tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise BadInput(f"not a node set: {error}", where=where, fix=REMEDY) from error


task_output = _output("The file to write: .toml or .csv.")


def kinds_of(text: str | None) -> tuple[str, ...]:
    """Return the node kinds in ``v100,p100,k80``; empty for ``None``."""
    names = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    if "" in names:
        raise click.UsageError(f"--kinds: {text!r} has an empty kind; write v100,p100,k80")
    return names
