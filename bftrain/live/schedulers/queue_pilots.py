"""Pilots in a preemptible queue, submitted one at a time, as under PBS."""

from __future__ import annotations

from bftrain.errors import NotAvailable
from bftrain.live.schedulers.pilot_backend import Command, CommandBackend, PilotOrder, Run
from bftrain.live.schedulers.pilot_manager import PilotSettings
from bftrain.values import checks


class QueueSettings(PilotSettings, frozen=True, kw_only=True):
    """Settings of pilots in a queue."""

    queue: str
    options: tuple[str, ...] = ()  # more words for the command that submits

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text(self, "queue")
        checks.texts(self, "options")
        if any(word.startswith("-q") for word in self.options):  # one of which was not checked that pilots give way
            checks.reject(self, "options", "must not name a queue", "use queue")


class QueueBackend(CommandBackend):
    """A scheduler whose pilots are jobs of one queue."""

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot; the script is passed by stdin."""
        raise NotImplementedError

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit one pilot."""
        await run(self.submission(order))
        return min(count, 1)


def unknown_queue(product: str, queue: str, see: str) -> NotAvailable:
    """Return the error for a queue that does not exist; ``see`` is the command that lists queues."""
    return NotAvailable(f"{product} has no such queue", where=f"queue '{queue}'", fix=f"see {see}")


def queue_remarks(queue: str, *, starts: bool, takes: bool, preempts: bool) -> list[str]:
    """Return remarks on a queue that starts or takes no jobs now, or whose jobs preempt others'."""
    remarks = {
        f"queue '{queue}' starts no jobs now": not starts,
        f"queue '{queue}' takes no jobs now": not takes,
        f"jobs of queue '{queue}' preempt others'": preempts,
    }
    return [text for text, holds in remarks.items() if holds]
