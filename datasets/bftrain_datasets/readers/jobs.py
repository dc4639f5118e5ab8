"""Any table of jobs: text with any separator, JSON, Parquet or ``sacct --json``.

Columns with usual names need no option. ``bftrain import --explain FILE`` shows the meaning and unit of each column,
and ``--map MEANING=COLUMN:UNIT`` changes it. Fields inside others have dots: ``time.start``.

| meaning | required | values |
|---|---|---|
| ``start`` | yes | times: ``iso``, or ``s``, ``ms``, ``us``, ``ns`` since 1970; or ``submit`` and ``wait`` |
| ``end`` | yes | or ``elapsed``; one of ``start`` and ``end`` is enough with ``elapsed`` |
| ``elapsed``, ``wait``, ``limit`` | | durations in ``s``, ``ms``, ``min``, ``h``, ``d``, or ``d-hh:mm:ss`` |
| ``nodes`` | yes | node set or list; ``intervals`` are numbers such as ``0-3 7`` |
| ``count`` | | number of nodes, instead of ``nodes`` |
| ``cores``, ``gpus`` | | over all nodes of the job |
| ``job`` | | without it, equal rows are different jobs |
| ``state``, ``user``, ``partition``, ``cluster``, ``submit`` | | text, and the submission time |
"""

from __future__ import annotations

from typing import Final

import msgspec

from bftrain.node_units import CORE, GPU, NODE
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.machine_nodes import nodes_in
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables.cell_values import EXPAND
from bftrain_datasets.job_tables.column_choice import MEANING_OF_UNIT, recognised
from bftrain_datasets.job_tables.near_misses import near_miss
from bftrain_datasets.job_tables.table_reading import JobTableReader, read_table
from bftrain_datasets.job_tables.tables import PARQUET_MARK, find_header, format_of, is_json, keys_in

name: Final = "jobs"
about: Final = "any table of jobs: CSV, JSON or Parquet; --map sets the meaning of columns"

tells_units: Final = (GPU, CORE)  # the resources in the records
why_not: Final = near_miss


def recognises(head: bytes) -> bool:
    """Return whether this is Parquet, JSON with job fields, or text with a header of job columns."""
    if head.startswith(PARQUET_MARK):
        return True
    if is_json(head):
        return not format_of(head) and recognised(keys_in(head))
    return find_header(head) is not None


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    table = read_table(file, intake, intake.options, intake.clock)
    apply_table_properties(table, intake)
    expand = EXPAND.get(table.map.unit("nodes"), nodes_in)
    for _, batch in table.batches():
        intake.take(batch, expand)
    for cluster in sorted(table.clusters if intake.options.cluster else ()):
        intake.is_other_cluster(cluster)
    whole = table.map.per_node()
    if intake.options.counts and "count" not in table.map and whole is not None and intake.options.unit == NODE:
        intake.note("procs_as_nodes", where=f"{file.name}, {whole[1]} {whole[0]} a node")


def apply_table_properties(table: JobTableReader, intake: RecordIntake) -> None:
    """Apply the table's properties to the whole import: counts only, time zone, machine size."""
    known, options = table.map.public_set, intake.options
    each = table.map.unit(MEANING_OF_UNIT.get(options.unit, ""))
    intake.options = msgspec.structs.replace(
        options,
        counts=options.counts or table.map.by_count,
        node_units=int(each) if each.isdecimal() and options.node_units is None else options.node_units,
        timezone=options.timezone or (known.zone if known is not None else None),
    )
    if known is not None and known.nodes:
        intake.capacity = known.nodes
    if known is not None and known.name == "sacct-json":
        intake.reports_outages = bool(intake.reports_outages)
