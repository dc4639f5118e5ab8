"""Ranges as people write them: ``MIN:MAX`` of sizes, positions and times; either end may be omitted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

from bftrain.errors import FormerSpelling


def split_range(text: str, is_end: Callable[[str], bool] = str.isdecimal) -> tuple[str, str] | None:
    """Return both ends of ``MIN:MAX``, empty if omitted; ``None`` for other texts.

    Ends such as times may contain colons: the separator is the first colon between two ends for which ``is_end`` is
    true. ``MIN..MAX`` is accepted with a warning.

    >>> split_range("1:8"), split_range("4:"), split_range("four")
    (('1', '8'), ('4', ''), None)
    """
    written = text.replace("..", ":", 1)
    for place, letter in enumerate(written):
        ends = written[:place].strip(), written[place + 1 :].strip()
        if letter == ":" and all(not end or is_end(end) for end in ends):
            if written != text:
                hint = f"{text} is now {written}; the old spelling will be removed"
                warnings.warn(hint, FormerSpelling, stacklevel=2)
            return ends
    return None


def size_range(text: str) -> tuple[int | None, int | None]:
    """Return the bounds in ``MIN:MAX``, one of which may be omitted, or in a single size.

    Raises:
        ValueError: The text has another form, or MIN is below 1 or above MAX.

    """
    ends = split_range(text) or (text, text)
    if any(ends) and all(not end or end.isdecimal() for end in ends):
        low, high = (int(end) if end else None for end in ends)
        if 1 <= (1 if low is None else low) <= (math.inf if high is None else high):
            return low, high
    raise ValueError(f"{text!r} is not MIN:MAX with 1 <= MIN <= MAX")
