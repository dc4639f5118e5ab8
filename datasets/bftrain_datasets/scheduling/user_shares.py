"""Shares: how large a part of the machine each user should have, out of a file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain.files import text_lines

if TYPE_CHECKING:
    from pathlib import Path

COMMENT: Final = "#"
FIX: Final = "write a user and a number above 0 on each line, such as: 17 2.5"


def load_shares(path: Path) -> dict[str, float]:
    """Read lines of a user, as the log names it, and a share; who is not named has a share of 1."""
    shares: dict[str, float] = {}
    for number, line in text_lines(path):
        where = f"{path}:{number}"
        words = line.partition(COMMENT)[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != 2:  # noqa: PLR2004 - a user and a number
            raise BadInput(f"{len(words)} words", where=where, fix=FIX)
        user, text = words
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not 0 < share < math.inf:  # NaN too
            raise BadInput(f"{text!r} is no share", where=where, fix=FIX)
        if user in shares:
            raise BadInput(f"names user '{user}' twice", where=where, fix="leave one of the lines out")
        shares[user] = share
    return shares
