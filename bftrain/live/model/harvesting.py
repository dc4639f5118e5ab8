"""Forms on the harvesting as a whole: whether it is paused, and how fast nodes were handed back."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from bftrain.live.model.task_record import said
from bftrain.values import checks

_LONGEST_S: Final = 3.2e9  # a hundred years: no clock is driven beyond its end


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pause in which no node is used."""

    for_s: Annotated[
        float | None, said("Seconds; null: until it is resumed.", exclusiveMinimum=0, maximum=_LONGEST_S)
    ] = None

    def __post_init__(self) -> None:
        """Check the time."""
        if self.for_s is not None and checks.number(self, "for_s", above=0.0) > _LONGEST_S:
            checks.reject(self, "for_s", f"must be at most {_LONGEST_S:g}")


class HandBack(msgspec.Struct, frozen=True, kw_only=True):
    """The hand-back of a node that the scheduler wanted, by the clock of the live run."""

    node: str
    time_s: Annotated[float, said("When its agent, which got the signal, had killed its workers; seconds since 1970.")]
    kill_s: Annotated[float, said("Seconds that it took to kill them.")]
    exit_s: Annotated[float, said("Seconds from then until nothing of ours was left there.")]


class HarvestingView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether nodes are used at all, and how the last ones were handed back."""

    paused: bool
    until_s: Annotated[float | None, said("When it goes on; seconds since 1970. Null: when it is resumed.")] = None
    waiting_pilots: Annotated[int, said("Pilots of ours in the scheduler's queue, as far as known.")] = 0
    partitions: Annotated[
        tuple[str, ...], said("To which pilots are submitted without a QOS, where the scheduler has such.")
    ] = ()
    handbacks: Annotated[tuple[HandBack, ...], said("The latest last.")] = ()
