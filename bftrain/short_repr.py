"""Short representations of large values, for the prompt and notebooks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final

_LONGEST: Final = 240  # characters per value
_MOST_NAMED: Final = 4


class ShortRepr:
    """A value represented by a title and a few figures; its dataclasses use ``repr=False``."""

    __slots__ = ()

    @abstractmethod
    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title, and figures by name."""

    def __repr__(self) -> str:
        title, figures = self.shown()
        words = "; ".join(f"{name} {_cut(value)}" for name, value in figures.items())
        return f"<{_cut(title)}: {words}>"

    def _repr_html_(self) -> str:
        from html import escape  # noqa: PLC0415 - only notebooks need it, and all commands import this module

        title, figures = self.shown()
        left = "style='text-align:left'"
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(value))}</td></tr>"
            for name, value in figures.items()
        )
        return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def some(names: Iterable[str]) -> str:
    """Return the first few names, and the number of further ones."""
    found = list(names)
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def _cut(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
