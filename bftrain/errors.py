"""The tree of errors: each says what is wrong, where, and what to do about it.

Every class knows the exit code that the command line ends with, so no command maps errors by hand.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(kind: type[BftrainError], what: str, where: str | None, fix: str | None) -> BftrainError:
    return kind(what, where=where, fix=fix)


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
