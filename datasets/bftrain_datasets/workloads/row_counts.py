"""Row counts of a workload: every row becomes a task or is refused for a reason that is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.hazard_kinds import HAZARDS
from bftrain_datasets.workloads.job import UnusableJob

if TYPE_CHECKING:
    from bftrain_datasets.importing.findings import FindingsTally
    from bftrain_datasets.log.time_formats import RecordClock

MOST_KEPT: Final = 1000  # refusals whose words are kept; all of them are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that became no task: the ``reason`` is the name of a hazard; ``where`` it stands, ``what`` is wrong."""

    reason: str
    where: str
    what: str


class WorkloadRowCounts:
    """The tally of one file, with the words of what was refused; the tally alone counts what is refused after those."""

    def __init__(self, tally: FindingsTally, *, strict: bool) -> None:
        self.tally = tally
        self.strict = strict
        self.refused: list[RefusedRow] = []

    def row(self, line: int) -> None:
        """Begin a row."""
        self.tally.row(line)

    def use(self) -> None:
        """Use the row."""
        self.tally.use()

    def note(self, name: str, *, count: int = 1, where: str | None = None) -> None:
        """Count something about rows that are used; the first place is the one being read, if none is given."""
        self.tally.note(name, count=count, where=where)

    def note_clock(self, clock: RecordClock) -> None:
        """Count what was assumed of times."""
        for count, name, what in (
            (clock.without_zone, "local_times", "without_zone"),
            (clock.in_ms, "epoch_ms", "in_ms"),
            (clock.twice, "twice_times", "twice"),
        ):
            if count:
                self.note(name, count=count, where=clock.first[what])

    def set_aside(self, reason: str) -> None:
        """Leave the row unused, without further words."""
        self.refuse(UnusableJob(reason, HAZARDS[reason].says))

    def refuse(self, why: UnusableJob) -> None:
        """Leave the row unused; a strict import ends here if that is doubtful."""
        where = self.tally.where
        self.tally.set_aside(why.reason)
        if self.strict and HAZARDS[why.reason].doubt:
            raise BadInput(why.what, where=where, fix=why.fix)
        if len(self.refused) < MOST_KEPT:
            self.refused.append(RefusedRow(reason=why.reason, where=where, what=why.what))
