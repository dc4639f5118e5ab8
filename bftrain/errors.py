"""The tree of errors: each says what is wrong, where, and what to do about it.

Every class knows the exit code that the command line ends with, so no command maps errors by hand.
"""

from __future__ import annotations

import linecache
import sys
from difflib import get_close_matches
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


class BftrainError(Exception):
    """Root of the tree. ``what`` is wrong, ``where`` it was found, and the ``fix``: what the reader can do."""

    exit_code: ClassVar[int] = 5

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.fix})" if self.fix else ""
        return f"{place}{self.what}{advice}"

    def __reduce__(self) -> tuple[object, ...]:
        """Keyword-only arguments do not survive the default pickling, which worker processes rely on."""
        return (partial(type(self), self.what, where=self.where, fix=self.fix), ())


class UsageError(BftrainError):
    """The command was called in a way it does not understand."""

    exit_code = 2


class BadInput(BftrainError):
    """A file or a value that came from outside is not what it should be."""

    exit_code = 3


class BadValue(BadInput, ValueError):
    """A field of a value breaks its rule; ``where`` names the field.

    It is a ``ValueError`` too, so that a decoder reports it together with the path inside the document.
    """


class BadObjective(BadInput):
    """A metric raised or gave what is no value; the fault is its own, so no other solver can help."""


class BadConfig(BadInput):
    """A configuration file cannot be read, or has an unknown key or a wrong value."""


class UnknownName(BadInput):
    """No solver, objective, admission, placement, ... of that name; the nearest known names are suggested."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], *, where: str | None = None) -> UnknownName:
        """Build the message for ``name`` that is none of ``known``."""
        return cls(f"no {kind} is called '{name}'", where=where, fix=suggestion(name, known))


class NotAvailable(BftrainError):
    """Something the request needs is not installed, not licensed or not running here."""

    exit_code = 4


class BrokenPlugin(NotAvailable):
    """Code of one's own, or a plug-in, cannot be loaded or does not behave as its port demands."""

    exit_code = BadInput.exit_code  # as for objectives of one's own: the code is what has to be repaired


class ResultWarning(UserWarning):
    """A warning in words for people: the command line prints it without the place in the source."""


class PartlyFailed(BftrainError):
    """Some of the work failed; the rest is done and stands."""

    exit_code = 1


class Interrupted(BftrainError):
    """The user interrupted the command; ``what`` says which part of its work is kept."""

    exit_code = 130


class Fault(BftrainError):
    """Our own mistake: an invariant does not hold. Please report it."""


def fold(name: str) -> str:
    """Return ``name`` without case, and with ``-`` for ``_``: no two parts have names that differ in these only."""
    return name.lower().replace("_", "-")


def near(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant; nothing if none is like it."""
    names = sorted(known)
    alike = [each for each in names if fold(each) == fold(name)] or get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{alike[0]}'?" if alike else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and else list them all."""
    names = sorted(known)
    return near(name, names) or f"known: {', '.join(names) or 'none'}"


OWN_FILE: Final = "bftrain_own_file_"  # how modules begin that are loaded from FILE.py:NAME
_ROOMS: Final = frozenset({"bftrain", "bftrain_solvers", "bftrain_replay", "bftrain_datasets", "bftrain_elastic"})
_LONGEST_LINE: Final = 120


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


def source_line(error: BaseException) -> str | None:
    """Return the innermost line that is neither of bftrain nor of a library; else that of an installed package."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        file, line = error.filename, error.lineno
    else:
        frames = [(frame, frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        foreign = [(file, line) for frame, file, line in frames if _is_foreign(frame)]
        own = [(file, line) for file, line in foreign if not _is_installed(file)]
        if not foreign:
            return None
        file, line = (own or foreign)[-1]
    linecache.checkcache(file)  # it may have been changed since it was read first
    text = linecache.getline(file, line).strip()
    text = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 3]}..."
    return f"{file}:{line}: {text}" if text else f"{file}:{line}"


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
