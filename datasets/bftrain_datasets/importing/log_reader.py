"""Port of log readers: what a module that reads one format must have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile


@runtime_checkable
class LogReader(Protocol):
    """Reads one format of what schedulers write. A module with these names will do."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    @property
    def about(self) -> str:
        """Which scheduler, and what of it: one line."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Say whether a file that begins with ``head`` is of this format."""
        ...

    def read(self, file: RawFile, intake: RecordIntake) -> None:
        """Tell the intake of every row in the file."""
        ...
