"""What readers of text share: the lines that a format is recognised by, cells in quotes, numbers of nodes."""

from __future__ import annotations

import csv
from typing import Final

from bftrain.nodesets import MOST_NODES

LOOKED_AT: Final = 1000  # lines in which a format is looked for
MOST_DIGITS: Final = 9  # of a number of nodes or jobs; Python refuses to read thousands of them


def first_lines(head: bytes) -> list[str]:
    """Lines at the beginning of a file; the last one may be cut."""
    return head.decode(errors="replace").splitlines()[:LOOKED_AT]


def unquoted(line: str) -> list[str]:
    """Split a line of a table with commas into its cells; give none if no table can have such quotes."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a carriage return in the middle, or too many letters between two quotes
        return []


def whole_number(text: str) -> int | None:
    """Read a whole number of a length that makes sense, or give None."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def count_of(text: str) -> int:
    """Read how many nodes a job held: 0 if it is missing, and more than any machine has if the cell says so."""
    number = whole_number(text)
    if number is None:
        return MOST_NODES + 1 if text.isdecimal() else 0
    return number
