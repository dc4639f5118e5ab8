"""``bftrain completion``: print the script for completion by the Tab key."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.errors import Fault

_WHERE = {
    "bash": 'eval "$(bftrain completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(bftrain completion zsh)" in ~/.zshrc',
    "fish": "bftrain completion fish > ~/.config/fish/completions/bftrain.fish",
}


@click.command(
    cls=DocumentedCommand,
    example="bftrain completion bash > ~/.local/share/bash-completion/completions/bftrain",
    epilog="To keep it: " + "; ".join(_WHERE.values()) + ".",
)
@click.argument("shell", type=click.Choice(list(_WHERE)))
@prints_results
def command(shell: str, out: Output) -> None:
    """Print the completion script for SHELL."""
    from bftrain.cli.main import main

    kind = get_completion_class(shell)
    if kind is None:
        raise Fault(f"click has no completion for {shell}")
    script = kind(main, {}, "bftrain", "_BFTRAIN_COMPLETE").source()
    out.result({"shell": shell, "script": script}, lambda: script)
