"""The tables in docs/readers.md on what each reader reads, made from the readers.

``python tools/reader_columns.py`` writes them again; a test compares them with the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bftrain_datasets.job_tables.column_choice import NAMES
from bftrain_datasets.log import table_log
from bftrain_datasets.readers import (
    counts,
    flux,
    htcondor,
    kubernetes,
    lsf,
    oar,
    pbs_events,
    sacct,
    sge,
    sinfo,
    slurm_events,
    slurm_reservations,
    swf,
)

PAGE: Final = Path(__file__).parents[1] / "docs" / "readers.md"
HEADING: Final = "## Columns and fields that are read"
SITES, PAGES, DOCUMENTS = "rows of sites", "rows on public pages", "documentation"


def _names(columns: Sequence[str], aliases: Mapping[str, str] | None = None) -> list[str]:
    """Write columns or keys, each with its other names."""
    known = {
        column: [f"`{alias}`" for alias, name in (aliases or {}).items() if name == column != alias]
        for column in columns
    }
    return [f"`{column}`" + (f" (also {', '.join(also)})" if also else "") for column, also in known.items()]


def _either(*groups: Sequence[str]) -> list[str]:
    """Write groups of keys, of each of which the first that is there counts."""
    return [" or ".join(f"`{key}`" for key in group) for group in groups]


def _places(**fields: int) -> list[str]:
    """Write fields by their place, the first of which is 1."""
    return [f"{name.replace('_', ' ')} {place + 1}" for name, place in fields.items()]


# For each reader what it reads, and with what it was tried
READ: Final[Mapping[str, tuple[list[str], str]]] = {
    "sacct": (_names(sacct.JOB_COLUMNS, sacct.ALIASES), SITES),
    "slurm-events": (
        _names([slurm_events.NODE, slurm_events.START, slurm_events.END, slurm_events.STATE, slurm_events.CLUSTER]),
        DOCUMENTS,
    ),
    "slurm-reservations": (
        _names(
            [
                slurm_reservations.NODES, slurm_reservations.START, slurm_reservations.END,
                slurm_reservations.FLAGS, slurm_reservations.CLUSTER,
            ],
            slurm_reservations.ALIASES,
        ),
        DOCUMENTS,
    ),
    "sinfo": (_names([*sinfo.NEEDED, "partition"], sinfo.ALIASES), SITES),
    "pbs": (
        _either(["start"], ["end"], ["exec_host", "resources_used.location"], ["exec_vnode"], ["queue"]),
        f"{SITES}; Cobalt: {PAGES}",
    ),
    "pbs-events": (_names([pbs_events.CHANGED, "state"]), DOCUMENTS),
    "lsf": (
        _places(time=lsf.EVENT_TIME, job=lsf.JOB, start=lsf.START, queue=lsf.QUEUE, hosts_from=lsf.ASKED_HOSTS),
        f"{SITES}; events: {PAGES}",
    ),
    "sge": (
        [
            f"`{key}` (in JSON `{json}`, in a line {place + 1})"
            for key, json, place in zip(sge.LISTED, sge.JSON_KEYS, sge.PLACES, strict=True)
        ],
        f"{SITES}; `qacct -j`: {PAGES}; JSON: {DOCUMENTS}",
    ),
    "flux": (
        _either(["id"], [flux.START], flux.ENDS, ["state"], ["nodelist"], ["nnodes"], ["queue"], ["ncores"]),
        f"{PAGES}; eventlogs: {DOCUMENTS}",
    ),
    "htcondor": (
        _either(
            *([key] for key in htcondor.ID), htcondor.START, htcondor.HOSTS, [htcondor.STATUS], [htcondor.COMPLETED_AT],
            [htcondor.LAST_RUN], [htcondor.VACATED_AT], [htcondor.STATUS_AT], [htcondor.WRITTEN_AT],
            [htcondor.ALL_RUNS], [htcondor.UNIVERSE], *htcondor.UNITS.values(),
        ),
        PAGES,
    ),
    "kubernetes": (
        _either(
            ["spec.nodeName"], ["status.startTime", "lastTransitionTime"], ["status.phase"],
            [*kubernetes.CONTAINERS, "metadata.deletionTimestamp"], ["metadata.namespace"],
            *([each] for each in kubernetes.RESOURCES),
            kubernetes.OBJECT, kubernetes.MESSAGE, kubernetes.TIMES,
        ),
        DOCUMENTS,
    ),
    "oar": (_either(oar.START, oar.STOP, oar.QUEUE, [oar.HOSTS, oar.RESOURCES], [oar.TYPES], [oar.STATE]), SITES),
    "jobs": (["the columns below"], "see the [public sets](#tables-of-jobs)"),
    "swf": (
        _places(
            job=swf.JOB, submitted=swf.SUBMIT, waited=swf.WAIT, ran=swf.RUN, processors=swf.PROCS,
            asked_for=swf.PROCS_ASKED, status=swf.STATUS, queue=swf.QUEUE, hosts=swf.FIELDS,
        ),
        "logs of the archive",
    ),
    "counts": (_names([counts.TIME, counts.ACTIVE, counts.IDLE, counts.TOTAL], counts.ALIASES), SITES),
    "ndstat": (["a column for each node"], "the published log of Summit"),
    "csv": (_names(table_log.COLUMNS), "what bftrain writes"),
}  # fmt: skip


WORDS: Final = """\
These tables are made from the code by `tools/reader_columns.py`. In names of columns capitals do not matter, in keys
they do; numbers are places of fields. *Tried with* says what a reader was tried with besides records of our own making.
"""
ABOUT_TABLES: Final = """\
Columns of [tables of jobs](#tables-of-jobs) are known by these names, compared without capitals and signs, so that
`Start_Time` is `starttime`. Of several in a table the first of a row counts.
"""


def section() -> str:
    """Give the whole section of the page."""
    lines = [HEADING, "", WORDS, "| format | what is read | tried with |", "|---|---|---|"]
    lines += [f"| `{name}` | {', '.join(items)} | {tried} |" for name, (items, tried) in READ.items()]
    lines += ["", ABOUT_TABLES, "| meaning | names of columns |", "|---|---|"]
    lines += [f"| `{what}` | {' '.join(f'`{name}`' for name in names.split())} |" for what, names in NAMES.items()]
    return "\n".join(lines) + "\n\n"


def with_section(page: str) -> str:
    """Put the section into a page in place of the one that it has."""
    before, _, after = page.partition(HEADING)
    end = after.find("\n## ")
    return before + section() + (after[end + 1 :] if end >= 0 else "")


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
