"""SecondsOrWord: the type of options that take a number of seconds or one word, such as ``auto``."""

from __future__ import annotations

import click

from bftrain.errors import near


class SecondsOrWord(click.ParamType["float | str"]):
    """Accepts a number of seconds, or ``word`` in large or small letters."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.name = f"SECONDS|{word}"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Return the number, or the word in small letters."""
        if str(value).lower() == self._word:
            return self._word
        try:
            return float(str(value))
        except ValueError:
            meant = near(str(value).lower(), (self._word,))
            more = f" ({meant})" if meant else ""
            self.fail(f"{value!r} is neither a number of seconds nor '{self._word}'{more}", param, ctx)
