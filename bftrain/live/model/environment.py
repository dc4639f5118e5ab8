"""Environments: what a site or a task sets up before a program runs."""

from __future__ import annotations

from typing import Final

import msgspec

from bftrain.errors import UnknownName
from bftrain.live.model.task_record import Run
from bftrain.values import checks

FIELDS: Final = ("setup", "prefix", "python")


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment that tasks name."""

    setup: tuple[str, ...] = ()  # lines of bash that run before, such as module load cuda
    prefix: tuple[str, ...] = ()  # words in front of the command, such as apptainer exec --nv IMAGE
    python: str = ""  # that runs scripts; "": python3 of PATH then

    def __post_init__(self) -> None:
        """Check the words."""
        checks.texts(self, "setup")
        checks.texts(self, "prefix")


def environment_of(run: Run, known: dict[str, Environment], default: str) -> Environment:
    """Return the environment of a task: the site's that it names, or else the default, and what it says itself.

    Its lines run after those of the site; a prefix and a Python of its own take the place of the site's.
    """
    name = run.environment or default
    if name and name not in known:
        raise UnknownName.among("environment", name, known, where="environment")
    site = known[name] if name else Environment()
    return Environment(
        setup=(*site.setup, *run.setup), prefix=run.prefix or site.prefix, python=run.python or site.python
    )
