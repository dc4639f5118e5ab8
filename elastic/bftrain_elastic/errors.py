"""Errors of the training side; each has a problem, a place and a fix."""

from __future__ import annotations

from typing import Final

OWN_ERROR: Final = f"{__name__}."  # start of a traceback's last line for the errors of this file


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of bftrain, which is not on a package index."""
    return f"pip install '.[{extra}]' in the checkout, or with the path of a wheel for '.'"


class ElasticError(Exception):
    """Base class. ``what`` is the problem, ``where`` its place, and ``fix`` the remedy for the reader."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.fix})" if self.fix else ""
        return f"{place}{self.what}{advice}"


class BadMessage(ElasticError):
    """A message exceeds the size limit, has a wrong MAC, or is malformed."""


class BadSecret(ElasticError):
    """The file with the secret of a run is missing, damaged, or readable by other users."""


class NoInterface(ElasticError):
    """An address is on no network interface of this machine, or cannot be reached from it."""


class BadJob(ElasticError):
    """The job of a task is not valid."""


class BadCommit(ElasticError):
    """A saved state cannot be read."""


class Superseded(ElasticError):
    """A worker that its manager gave up tries to write after the rest continued."""


class BadScript(ElasticError):
    """The training script does not meet the requirements of elastic training."""
