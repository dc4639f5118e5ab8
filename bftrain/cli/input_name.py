"""What to call the file that a command reads."""

from __future__ import annotations

from typing import IO


def name_of(file: IO[bytes]) -> str:
    """Give the file's name; standard input has none of its own."""
    return "stdin" if file.name in {"-", "<stdin>"} else file.name
