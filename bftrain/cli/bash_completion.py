"""Completion in bash of values with a colon: it makes three words of ``FILE.py:NAME``, and wants the last one back."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Join the words around a colon, and offer what comes after it."""

    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before, and the one to complete."""
        args, incomplete = super().get_completion_args()
        if incomplete == ":":
            args, incomplete = [*args, ":"], ""
        if len(args) > 1 and args[-1] == ":":
            self._before = f"{args[-2]}:"
            args, incomplete = args[:-2], f"{self._before}{incomplete}"
        return args, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return a line for the shell."""
        return super().format_completion(CompletionItem(item.value.removeprefix(self._before), type=item.type))
