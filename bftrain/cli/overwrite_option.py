"""``--overwrite``: the option of commands that write a folder with a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def overwrite_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--overwrite`` to a command."""
    text = "Replace the finished result in DIR; it stays until the new one is complete."
    return click.option("--overwrite", is_flag=True, help=text)(function)
