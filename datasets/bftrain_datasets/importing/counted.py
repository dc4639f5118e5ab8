"""From counts to a log: how many nodes are busy is known, which is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain.errors import BadInput

if TYPE_CHECKING:
    from bftrain_datasets.eventlog import EventLog
    from bftrain_datasets.importing.intake import Intake


def log_from_counts(intake: Intake) -> EventLog:
    """Build the log of numbered nodes whose first ``active`` are busy."""
    raise BadInput("reading counts is not there yet", where=intake.file_names[0])
