"""Members: the workers of one task as its course knows them, and where each is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NOTHING: Final = -1  # the step of a worker without a state


class Phase(StrEnum):
    """Where a worker is."""

    COMING = "coming"
    READY = "ready"
    IN = "in"
    GOING = "going"


@dataclass(eq=False)
class Member:
    """One worker."""

    name: str
    node: str
    slot: int
    number: int  # counts up: the smaller, the older
    since: float
    phase: Phase = Phase.COMING
    step: int = NOTHING
    store: tuple[str, int] = ("", 0)
    astray: int = 0  # steps that it reported in no group

    @property
    def stays(self) -> bool:
        """Whether it has not been told to go."""
        return self.phase is not Phase.GOING
