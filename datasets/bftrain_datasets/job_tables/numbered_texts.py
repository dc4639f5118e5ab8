"""Numbers for the texts of a column, the same in all batches of a table."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_LETTERS: Final = 1 << 25  # of the texts kept, to bound memory


class NumberedTexts:
    """Numbers texts in the order of their first use; -1 stands for the words for nothing, such as ``None``.

    ``texts`` grows, until it is so long that a new list replaces it.
    """

    def __init__(self, nothing: Container[str]) -> None:
        self._nothing = nothing
        self._numbers = _Numbers(nothing)

    @property
    def texts(self) -> list[str]:
        """All numbered texts."""
        return self._numbers.texts

    def of(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of each text, a new one for those not seen before."""
        if self._numbers.letters > MOST_LETTERS:
            self._numbers = _Numbers(self._nothing)
        return np.fromiter(map(self._numbers.__getitem__, texts), dtype=np.int32, count=len(texts))


class _Numbers(dict[str, int]):
    """Adds missing texts; a loop over millions of known ones calls no Python."""

    def __init__(self, nothing: Container[str]) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.letters = 0
        self._nothing = nothing

    def __missing__(self, text: str) -> int:
        number = self[text] = -1 if text.strip().lower() in self._nothing else len(self.texts)
        if number >= 0:
            self.texts.append(text)
            self.letters += len(text)
        return number
