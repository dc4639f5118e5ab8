"""Completion of option values: names of parts; the shell completes files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from bftrain.errors import fold

if TYPE_CHECKING:
    from bftrain.registry import Port

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_parts(*ports: Port, words: tuple[str, ...] = ()) -> Completer:
    """Return a completer for some ``words`` and the parts of these ports, or for files if none begins so."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from bftrain.registry import parts

        known = [*words, *(name for port in ports for name, part in parts(port).items() if not part.problem)]
        found = [CompletionItem(name) for name in known if fold(name).startswith(fold(incomplete))]
        return found or [CompletionItem(incomplete, type="file")]

    return complete


# Settings with completion, except policies: their ports depend on the command
OF_SETTING: Final[Mapping[str, Completer]] = {
    "solver": complete_parts("solver"),
    "fallback": complete_parts("solver"),
    "objective": complete_parts("objective"),
    "admission": complete_parts("admission"),
    "placement": complete_parts("placement", words=("auto",)),
    "metrics": complete_parts("metric"),
}
