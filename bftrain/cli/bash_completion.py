"""Bash completion of values with a colon: bash splits ``FILE.py:NAME`` into three words and expects the third."""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class ColonBashComplete(BashComplete):
    """Completion that joins the words around a colon, and offers the part after it."""

    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the preceding words, and the word to complete."""
        args, incomplete = super().get_completion_args()
        if incomplete == ":":
            args, incomplete = [*args, ":"], ""
        if len(args) > 1 and args[-1] == ":":
            self._before = f"{args[-2]}:"
            args, incomplete = args[:-2], f"{self._before}{incomplete}"
        return args, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return a completion as a line for the shell."""
        return super().format_completion(CompletionItem(item.value.removeprefix(self._before), type=item.type))
