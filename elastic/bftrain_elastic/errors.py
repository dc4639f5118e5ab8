"""What can go wrong on the training side: each says what is wrong, where, and what to do about it."""

from __future__ import annotations


class ElasticError(Exception):
    """Root of the tree. ``what`` is wrong, ``where`` it was found, and the ``fix``: what the reader can do."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.fix})" if self.fix else ""
        return f"{place}{self.what}{advice}"


class BadMessage(ElasticError):
    """A message from the other side is too long, not sealed as agreed, or not what it should be."""


class BadSecret(ElasticError):
    """The file with the secret of a run is missing, damaged, or can be read by others."""


class NoInterface(ElasticError):
    """An address is none of this machine, so that it is not known where to listen."""


class BadJob(ElasticError):
    """What to run for a task is not what it should be."""


class BadCommit(ElasticError):
    """A saved state cannot be read."""


class Superseded(ElasticError):
    """A worker that its manager has given up wants to write, but others have gone on without it."""


class BadScript(ElasticError):
    """The training script does not do what elastic training needs."""
