"""Executors: where the passes of a sweep are done. Each does them all, in any order, and loses none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bftrain_replay.sweeping.run_outcomes import PassOutcome
    from bftrain_replay.sweeping.sweep_runs import SweepPass


class AtWork(NamedTuple):
    """What a worker is doing: the pass in its hands, none while it waits or once it is gone, and how much is done."""

    worker: str
    job: SweepPass | None
    share: float = 0.0


if TYPE_CHECKING:
    Tell = Callable[[AtWork], None]
    Stopping = Callable[[], bool]


class PassExecutor(Protocol):
    """One way to do passes."""

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Do all passes, tell of progress, and give each outcome as it comes; end early once ``stopping()``.

        Workers that are busy then are stopped. A worker that dies costs the pass in its hands, which fails.
        """
        ...
