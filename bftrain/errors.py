"""The class hierarchy of errors: each error has a problem, a location and a fix.

Every class has the exit code of the command line, so no command maps errors by hand.
"""

from __future__ import annotations

import linecache
import sys
import warnings
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, ClassVar, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType


P = ParamSpec("P")
R = TypeVar("R")


class BftrainError(Exception):
    """Base class. ``what`` is wrong, ``where`` it was found, and the ``fix``."""

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
    """The command line is invalid."""

    exit_code = 2


class BadInput(BftrainError):
    """A file or a value from outside is invalid."""

    exit_code = 3


class BadValue(BadInput, ValueError):
    """A field of a value is invalid; ``where`` names the field.

    Also a ``ValueError``, which lets a decoder report it with the path inside the document.
    """


class BadObjective(BadInput):
    """An objective raised an error or returned an invalid value; no other solver can help."""


class BadConfig(BadInput):
    """A configuration file cannot be read, or has an unknown key or a wrong value."""


class UnknownName(BadInput):
    """No solver, objective, admission, placement, ... of that name; the message suggests the nearest known names."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], *, where: str | None = None) -> UnknownName:
        """Return the error for a ``name`` of this ``kind`` that is missing in ``known``; ``where`` is its location."""
        return cls(f"no {kind.replace('_', ' ')} is called '{name}'", where=where, fix=suggestion(name, known))


class NotAvailable(BftrainError):
    """A requirement of the request is not installed, not licensed or not running here."""

    exit_code = 4


class BrokenPlugin(NotAvailable):
    """A plug-in or a user's own code cannot be loaded or does not behave as its port requires."""

    exit_code = BadInput.exit_code  # the user's code needs a fix, as for objectives


class ResultWarning(UserWarning):
    """A warning for people: the command line prints it without the source location."""


class FormerSpelling(FutureWarning):
    """A warning about a spelling that works for one release: the command line prints it as a hint."""


def former_name(method: Callable[P, R]) -> Callable[P, R]:
    """Return the method for its former name, which warns."""

    def former(*args: P.args, **given: P.kwargs) -> R:
        warnings.warn(f"this method is now {method.__name__}()", DeprecationWarning, stacklevel=2)
        return method(*args, **given)

    return former


class PartlyFailed(BftrainError):
    """Some of the work failed; the rest is done and valid."""

    exit_code = 1


class Interrupted(BftrainError):
    """The user interrupted the command; ``what`` names the work that is kept."""

    exit_code = 130


class Fault(BftrainError):
    """A bug in bftrain: an invariant does not hold. Please report it."""


def fold(name: str) -> str:
    """Return ``name`` in lower case with ``-`` for ``_``, the form used to compare part names."""
    return name.lower().replace("_", "-")


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name most similar to ``name``, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    names = sorted(known)
    alike = [each for each in names if fold(each) == fold(name)] or get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{alike[0]}'?" if alike else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or with all known names."""
    names = sorted(known)
    return near(name, names) or f"known: {', '.join(names) or 'none'}"


OWN_FILE: Final = "bftrain_own_file_"  # prefix of modules loaded from FILE.py:NAME
_PACKAGES: Final = frozenset({"bftrain", "bftrain_solvers", "bftrain_replay", "bftrain_datasets", "bftrain_elastic"})
_LONGEST_LINE: Final = 120


def raised(error: BaseException) -> str:
    """Return ``raised TYPE: MESSAGE``, with the place of the exception in code outside bftrain, if any."""
    return f"raised {described(error)}"


def described(error: BaseException) -> str:
    """Return the type, message and place of an exception; without the place if it passed only through bftrain code."""
    place = source_line(error)
    return f"{type(error).__name__}: {error}{f', at {place}' if place else ''}"


def source_line(error: BaseException) -> str | None:
    """Return the innermost line outside bftrain and libraries; fall back to a line of an installed package."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        file, line = error.filename, error.lineno
    else:
        frames = [(frame, frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        foreign = [(file, line) for frame, file, line in frames if _is_foreign(frame)]
        own = [(file, line) for file, line in foreign if not _is_installed(file)]
        if not foreign:
            return None
        file, line = (own or foreign)[-1]
    linecache.checkcache(file)  # the file may have changed since the first read
    text = linecache.getline(file, line).strip()
    text = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 3]}..."
    return f"{file}:{line}: {text}" if text else f"{file}:{line}"


def is_from_own_file(error: BaseException) -> bool:
    """Return whether an exception passed through a file loaded as ``FILE.py:NAME``."""
    return any(_module(frame).startswith(OWN_FILE) for frame, _ in walk_tb(error.__traceback__))


def _is_foreign(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    standard = file.startswith(("<frozen ", f"{sys.base_prefix}/lib/python")) and not _is_installed(file)
    return _module(frame) not in _PACKAGES and not standard


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file
