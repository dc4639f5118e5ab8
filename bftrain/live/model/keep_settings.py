"""KeepSettings: what a live run keeps on the disk, and for how long; 0 means without a limit."""

from __future__ import annotations

import msgspec

from bftrain.live import timeouts
from bftrain.values import checks


class KeepSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on the journal, and on what tasks that are over leave behind."""

    journal_steps: int = 1_000_000  # in live.db; older ones are then removed, after a copy of it to the folder archive
    archive_days: float = 365.0  # for which these copies are kept
    commit_days: float = 90.0  # after a task's end, for which its folder is kept; logs stay
    task_days: float = 365.0  # after its end, for which its folder with logs, and its record, are kept; its hours stay
    folders_gb: float = 100.0  # that folders of tasks which are over may take together; the oldest go first

    def __post_init__(self) -> None:
        if 0 < checks.integer(self, "journal_steps", at_least=0) < timeouts.LIMITS.fewest_journal_steps:
            checks.reject(self, "journal_steps", f"must be 0, or at least {timeouts.LIMITS.fewest_journal_steps}")
        for name in ("archive_days", "commit_days", "task_days", "folders_gb"):
            checks.number(self, name, at_least=0.0)
