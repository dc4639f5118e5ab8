"""What the commands that write task files share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)

task_output = click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write; its name ends in .toml or .csv.",
)


def kinds_of(text: str | None) -> tuple[str, ...]:
    """Read the names of kinds of nodes in ``v100,p100,k80``; none if nothing is given."""
    names = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    if "" in names:
        raise click.UsageError(f"--kinds: {text!r} names no kind; write v100,p100,k80")
    return names
