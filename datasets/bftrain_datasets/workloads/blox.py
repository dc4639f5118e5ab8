"""Job lists of Blox: ``job_id,arrival_s,duration_s,gpus``, times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_datasets.workloads import arrivals_csv

if TYPE_CHECKING:
    from collections.abc import Generator

    from bftrain_datasets.importing.raw_file import RawFile
    from bftrain_datasets.workloads.job import TrainingJob
    from bftrain_datasets.workloads.row_counts import WorkloadRowCounts
    from bftrain_datasets.workloads.workload_options import WorkloadOptions

name: Final = "blox"
about: Final = "job lists of Blox"

HEADER: Final = ("job_id", "arrival_s", "duration_s", "gpus")


def recognises(head: bytes) -> bool:
    """Say whether the header is the one of these lists."""
    return tuple(cell.strip() for cell in arrivals_csv.header_of(head)) == HEADER


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    yield from arrivals_csv.read(file, books, options)
