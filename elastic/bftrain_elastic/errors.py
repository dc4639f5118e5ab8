"""Errors of the training side: each says what is wrong, where, and how to fix it."""

from __future__ import annotations

from functools import partial
from typing import Final

OWN_ERROR: Final = f"{__name__}."  # how the last line of a traceback begins for the errors of this file


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of bftrain, which is on no package index."""
    return f"pip install '.[{extra}]' in the checkout, or with the path of a wheel for '.'"


class ElasticError(Exception):
    """Base class. ``what`` is wrong, ``where`` it was found, and ``fix`` is what the reader can do."""

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
        """Pickle the keyword-only arguments too; the default passes all of them by position."""
        return (partial(type(self), self.what, where=self.where, fix=self.fix), ())


class BadMessage(ElasticError):
    """A message is too long, has a wrong MAC, or is malformed."""


class BadSecret(ElasticError):
    """The file with the secret of a run is missing, damaged, or readable by others."""


class NoInterface(ElasticError):
    """An address belongs to no network interface of this machine."""


class BadJob(ElasticError):
    """The job of a task is not valid."""


class BadCommit(ElasticError):
    """A saved state cannot be read."""


class Superseded(ElasticError):
    """A worker that its manager has given up tries to write after others have gone on without it."""


class BadScript(ElasticError):
    """The training script does not do what elastic training needs."""
