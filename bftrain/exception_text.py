"""Exceptions raised by other people's code, as one line that names the line of their file."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

OWN_FILE: Final = "bftrain_own_file_"  # how modules begin that are loaded from FILE.py:NAME
_ROOMS: Final = frozenset({"bftrain", "bftrain_solvers", "bftrain_replay", "bftrain_datasets", "bftrain_elastic"})
_LONGEST_LINE: Final = 120


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file, and its text if it can be read."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.text else f"{self.file}:{self.line}"


def raised(error: BaseException) -> str:
    """Return what was raised, and where in code that is not of bftrain, if it passed through any."""
    return f"raised {described(error)}"


def described(error: BaseException) -> str:
    """Return the type and the message of an exception, and where it came from."""
    return f"{type(error).__name__}: {error}{place(error)}"


def place(error: BaseException) -> str:
    """Return ``, at FILE:LINE: SOURCE``, or nothing if the exception passed through code of bftrain only."""
    found = source_line(error)
    return "" if found is None else f", at {found}"


def source_line(error: BaseException) -> SourceLine | None:
    """Return the innermost line that is neither of bftrain nor of a library; else that of an installed package."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _line(error.filename, error.lineno)
    foreign = [(frame, line) for frame, line in walk_tb(error.__traceback__) if _is_foreign(frame)]
    own = [(frame, line) for frame, line in foreign if not _is_installed(frame.f_code.co_filename)]
    for frame, line in reversed(own or foreign):
        return _line(frame.f_code.co_filename, line)
    return None


def is_from_own_file(error: BaseException) -> bool:
    """Say whether an exception passed through a file that was named as ``FILE.py:NAME``."""
    return any(_module(frame).startswith(OWN_FILE) for frame, _ in walk_tb(error.__traceback__))


def _is_foreign(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    standard = file.startswith(("<frozen ", f"{sys.base_prefix}/lib/python")) and not _is_installed(file)
    return _module(frame) not in _ROOMS and not standard


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file


def _line(file: str, line: int) -> SourceLine:
    linecache.checkcache(file)  # it may have been changed since it was read first
    text = linecache.getline(file, line).strip()
    return SourceLine(file, line, text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 3]}...")
