"""Lines of comma-separated tables in which quotes hold some cells together."""

from __future__ import annotations

import csv


def unquoted(line: str) -> list[str]:
    """Split a line into its cells; give none if no table can have such quotes."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a carriage return in the middle, or too many letters between two quotes
        return []
