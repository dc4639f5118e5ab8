"""The meaning of a table's columns: from options, from a public set, or from names and first rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from bftrain.errors import BadInput, suggestion
from bftrain.node_units import CORE, GPU, NODE, in_words_of
from bftrain.text_formats import counted
from bftrain_datasets.job_tables import cell_values
from bftrain_datasets.job_tables.public_sets import PUBLIC_SETS, PublicSet
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock

TIMES: Final = ("submit", "start", "end")
SPANS: Final = ("elapsed", "wait", "limit")
SIZES: Final = ("nodes", "count", "cores", "gpus")
WORDS: Final = ("state", "user", "cluster", "job", "partition")
MEANINGS: Final = (*TIMES, *SPANS, *SIZES, *WORDS)

# Column names, in lower-case letters and digits only; the first of these that the table has is used
NAMES: Final[Mapping[str, str]] = {
    "submit": "submit submittime timesubmit submissiontime submittedtime timesubmission queuedtimestamp jobsubmittime "
    "submittimestamp submittedat submitted ctime qtime tsubmit",
    "start": "start starttime timestart starttimestamp begin begintime timebegin startingtime startedat started "
    "startdate jobstart trun",
    "end": "end endtime timeend endtimestamp finish finishtime timefinish completiontime endedat ended enddate jobend "
    "stoptime finishedat tinactive tcleanup",
    "elapsed": "elapsedraw elapsed timeelapsed elapsedtime elapsedseconds runtime runtimeseconds runtimes duration "
    "durationseconds executiontime usedtime walltimeused usedwalltime wallclockused resourcesusedwalltime",
    "wait": "wait waittime waitingtime queuedtime queuetime planned",
    "limit": "timelimitraw timelimit limit requestedtime reqtime wallclockreq wallclocklimit walltimereq "
    "requestedwalltime walltimeseconds resourcewalltime resourcelistwalltime",
    "nodes": "nodelist nodes allocatednodes allocatedresources allocatedprocessors hosts hostlist hostnames exechost "
    "exechosts nodenames xnames allochosts machine machines host node hostname",
    "count": "nnodes allocnodes nodesalloc numnodesalloc nodecount numnodes nodenum nodesused usednodes numhosts "
    "allocationnodes nodect nodesallocated numnodesallocated nodesrequired nodes reqnodes nodesreq numnodesreq "
    "nodesrequested requestednodes requestednumberofresources",
    "cores": "ncpus alloccpus cpusalloc numcoresalloc coresused usedcores numcores cores cpus numcpus cpunum numproc "
    "procs processors ncores requiredcpus processorsreq reqcpus cpusreq numcoresreq coresrequested cpucount",
    "gpus": "ngpus allocgpus numgpusalloc gpunum numgpus gpus gpusalloc gpusreq numgpusreq gpucount numgpu",
    "state": "state jobstate statecurrent status finalstate jobstatus",
    "user": "user username userid owner uid usr usernamegenid iduser login",
    "cluster": "cluster clustername machinename",
    "job": "jobid idjob jobidraw job jid cobaltjobid jobnumber allocationid id jobname",
    "partition": "partition queue queuename class vc",
}
RESERVATION_COLUMNS: Final = frozenset({"name", "nodenames", "flags"})  # Slurm's reservations are not jobs
PER_NODE: Final = ("cores", "gpus")  # meanings whose unit is the number per node
MEANING_OF_UNIT: Final = {GPU: "gpus", CORE: "cores"}
_BY_NAME: Final = "by its name"
_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TIMES, (cell_values.ISO, *cell_values.EPOCHS)),
    **dict.fromkeys(SPANS, (cell_values.TEXT, *cell_values.SPANS)),
    "nodes": tuple(cell_values.EXPAND),
}
SAMPLE_ROWS: Final = 200
_PLAIN: Final = re.compile(r"[^a-z0-9]+")
SCHEDULE_COLUMNS: Final = "--map submit=COL,elapsed=COL,count=COL"
FIX: Final = "--map start=COL,end=COL|elapsed=COL,nodes=COL|count=COL; --explain shows the meaning of each column"


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """A column and its meaning; ``unit`` is its unit or notation, ``why`` the reason for this choice."""

    meaning: str
    column: str
    unit: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """The meanings of a table's columns.

    With ``relative``, times count from zero instead of 1970. ``unit_counted`` is what is idle: a node, GPU or core. If
    jobs will be rescheduled, their starts are not required, and ``to_schedule`` is the meaning of their size: ``count``
    or ``cores``.
    """

    uses: Mapping[str, ColumnUse]
    names: tuple[str, ...]
    public_set: PublicSet | None = None
    relative: bool = False
    unit_counted: str = NODE
    to_schedule: str = ""

    def __contains__(self, meaning: str) -> bool:
        return meaning in self.uses

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys(use.column for use in self.uses.values()))

    @property
    def by_count(self) -> bool:
        """Whether the table has no node names."""
        return "nodes" not in self

    def unit(self, meaning: str) -> str:
        """Return the unit of a meaning, or an empty text."""
        return self.uses[meaning].unit if meaning in self.uses else ""

    def per_node(self) -> tuple[str, int] | None:
        """Return the meaning that determines the node count, and its number per node, or ``None``."""
        known = (each for each in PER_NODE if each in self and self.unit(each).isdecimal())
        return next(((each, int(self.unit(each))) for each in known), None)

    def missing(self) -> list[str]:
        """Return descriptions of the missing required data."""
        known, units = self.uses.keys(), MEANING_OF_UNIT.get(self.unit_counted)
        is_sized = bool({"nodes", "count"} & known) or self.per_node() is not None
        if self.to_schedule:
            lasts = "elapsed" in self or ("end" in self and bool({"start", "wait"} & known))
            required = [("submit" in self, "the submission of a job (submit)"), (lasts, "its run time (elapsed)")]
            by_cores = self.to_schedule == "cores"
            required.append(
                ("cores" in self, "its cores (cores)") if by_cores else (is_sized, "its number of nodes (count)")
            )
        else:
            starts = "start" in self or {"submit", "wait"} <= known or {"end", "elapsed"} <= known
            ends = bool({"end", "elapsed"} & known)
            required = [(starts, "the start of a job (start)"), (ends, "its end (end), or run time (elapsed)")]
            if units is None:
                required.append((is_sized, "its nodes (nodes), or their number (count)"))
            else:
                required.append((units in self, f"its {in_words_of(self.unit_counted, 'nodes')} ({units})"))
        return [what for is_known, what in required if not is_known]


def columns_named(names: Sequence[str]) -> TableMap:
    """Return the meanings guessed from names alone."""
    known = public_set_of(names)
    uses = _of_entries(_present(known.columns, names), names, f"column of {known.name}") if known else _by_name(names)
    return TableMap(uses=uses, names=tuple(names), public_set=known)


def recognised(names: Sequence[str]) -> bool:
    """Return whether these are columns of a table of jobs, and not of Slurm's reservations."""
    return not {name.lower() for name in names} >= RESERVATION_COLUMNS and not columns_named(names).missing()


def public_set_of(names: Sequence[str]) -> PublicSet | None:
    """Return the public set with these columns; of several, the one that matches the most columns."""
    fits = [each for each in PUBLIC_SETS if each.fits(names)]
    return max(fits, key=lambda each: len(each.known_by.split()), default=None)


def choose(
    names: Sequence[str],
    sample: Mapping[str, Sequence[Any]],
    public_set: PublicSet | None,
    wanted: Sequence[str],
    where: str,
    unit: str,
    to_schedule: str,
) -> TableMap:
    """Return the meaning of each column: from options, from a public set, or from its name and first rows."""
    if public_set is None:
        uses = _by_name(names)
    else:
        columns = _present(public_set.columns, names) if public_set.fits(names) else public_set.columns
        uses = _of_entries(columns, names, f"column of {public_set.name}", where)
    given = _entries(wanted)
    uses = {**uses, **_of_entries(given, names, "--map", where)}
    if "count" in given and "nodes" not in given:
        uses.pop("nodes", None)
    twice = next((use.column for use in uses.values() if names.count(use.column) > 1), None)
    if twice is not None:
        raise BadInput(f"two columns have the name '{twice}'", where=where, fix="rename one in the header")
    uses = _by_values(uses, sample)
    made = TableMap(
        uses=uses,
        names=tuple(names),
        public_set=public_set,
        relative=_relative(uses, sample),
        unit_counted=unit,
        to_schedule=to_schedule,
    )
    missing = made.missing()
    if missing:
        raise BadInput(
            miss_text(made), where=where, fix=f"set the column by {SCHEDULE_COLUMNS if to_schedule else FIX}"
        )
    return made


def miss_text(found: TableMap) -> str:
    """Return a message with the recognised, the missing and the other columns of a table."""
    known = ", ".join(f"{use.column} = {meaning}" for meaning, use in found.uses.items()) or "no column"
    others = [name for name in found.names if name not in found.columns]
    rest = f"; other columns: {', '.join(others[:12])}" if others else ""
    missing = " and ".join(found.missing())
    return f"{counted(len(found.names), 'column')}, recognised: {known}; missing: {missing}{rest}"


def named_set(name: str) -> PublicSet:
    """Return the public set of this name."""
    known = {each.name: each for each in PUBLIC_SETS}
    if name not in known:
        raise BadInput(f"unknown public set '{name}'", where="--preset", fix=suggestion(name, known))
    return known[name]


def _present(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the columns that the table has; a field of a nested record only needs the record."""
    plain = {name.lower() for name in names}
    roots = {name.partition(".")[0] for name in plain}
    return {
        meaning: text
        for meaning, text in columns.items()
        if text.partition(":")[0].lower() in plain or ("." in text and text.partition(".")[0].lower() in roots)
    }


def _entries(wanted: Sequence[str]) -> dict[str, str]:
    """Parse ``--map`` into columns by meaning, each with its unit as written."""
    found: dict[str, str] = {}
    for entry in wanted:
        meaning, equals, column = entry.partition("=")
        if not equals or not column or meaning.strip() not in MEANINGS:
            what = f"{entry!r} is not a meaning of a column"
            raise BadInput(
                what, where="--map", fix=f"write MEANING=COLUMN or MEANING=COLUMN:UNIT, of {', '.join(MEANINGS)}"
            )
        found[meaning.strip()] = column.strip()
    return found


def _of_entries(columns: Mapping[str, str], names: Sequence[str], why: str, where: str = "") -> dict[str, ColumnUse]:
    exact, plain = set(names), {name.lower(): name for name in reversed(names)}
    uses = {}
    for meaning, text in columns.items():
        column, colon, unit = text.rpartition(":")
        if text in exact or not colon:
            column, unit = text, ""
        real = column if column in exact else plain.get(column.lower())
        if real is None and "." in column:
            real = column  # a field of records in a list, which ``names`` omits
        if real is None:
            raise BadInput(f"no column '{column}'", where=where, fix=suggestion(column, names))
        _check_unit(meaning, unit, text)
        uses[meaning] = ColumnUse(meaning, real, unit, f"{why}, with its unit" if unit else why)
    return uses


def _check_unit(meaning: str, unit: str, text: str) -> None:
    if meaning in PER_NODE:
        if unit and not (unit.isdecimal() and 0 < int(unit[:9]) <= 1 << 20):
            fix = f"write {meaning}=COLUMN:N, N being the number per node"
            raise BadInput(f"the unit in {text!r} is not a valid number", where="--map", fix=fix)
        return
    known = _UNITS.get(meaning, ())
    if unit and unit not in known and meaning != "cluster":  # its unit is the selected cluster
        fix = f"{meaning} may be in {', '.join(known)}" if known else f"{meaning} has no unit"
        raise BadInput(f"{text!r} has an unknown unit", where="--map", fix=fix)


def _by_name(names: Sequence[str]) -> dict[str, ColumnUse]:
    plain = {_PLAIN.sub("", name.lower()): name for name in reversed(names)}
    for name in sorted(names, key=lambda each: each.count(".")):  # nested records: time.start before steps.time.start
        plain.setdefault(_PLAIN.sub("", name.lower().rpartition(".")[2]), name)
    uses: dict[str, ColumnUse] = {}
    for meaning, known in NAMES.items():
        column = next((plain[each] for each in known.split() if each in plain), None)
        if column is not None:
            uses[meaning] = ColumnUse(meaning, column, "", _BY_NAME)
    return uses


def _by_values(uses: Mapping[str, ColumnUse], sample: Mapping[str, Sequence[Any]]) -> dict[str, ColumnUse]:
    """Refine the meanings by the first rows: units, and whether a column of nodes has names or counts."""
    found = dict(uses)
    nodes = found.get("nodes")
    if nodes is not None and not nodes.unit:
        form = cell_values.node_form(sample.get(nodes.column, ()))
        if form is None and nodes.why == _BY_NAME:
            del found["nodes"]
            if "count" not in found and cell_values.only_numbers(sample.get(nodes.column, ())):
                found["count"] = replace(nodes, meaning="count", why="by its name, and its numbers")
        else:
            found["nodes"] = replace(nodes, unit=form or cell_values.NODE_SET)
            if "count" in found and found["count"].column == nodes.column:
                del found["count"]
    for meaning, use in tuple(found.items()):
        if meaning == "partition" and use.why == _BY_NAME and use.column.lower() == "queue":
            if cell_values.only_numbers(sample.get(use.column, ())):
                del found[meaning]  # a waiting time
        elif not use.unit and meaning in (*TIMES, *SPANS):
            unit, why = _guessed(use, found, sample)
            found[meaning] = replace(use, unit=unit, why=f"{use.why}; {why}")
    return found


def _guessed(use: ColumnUse, uses: Mapping[str, ColumnUse], sample: Mapping[str, Sequence[Any]]) -> tuple[str, str]:
    """Return the unit of times or durations, and the reason for it."""
    cells = sample.get(use.column, ())
    if use.meaning in TIMES:
        unit = cell_values.time_unit(cells)
        content = "ISO times" if unit == cell_values.ISO else "epochs" if unit else "empty"
        return unit or "s", f"its first rows are {content}"
    unit = cell_values.span_unit(cells)
    plain = _PLAIN.sub("", use.column.lower())
    if unit != "s":
        return unit or "s", "its first rows are spans" if unit else "its first rows are empty"
    if plain.endswith(("timelimitraw", "minutes", "min", "mins")):
        return "min", _BY_NAME
    if use.meaning == "elapsed" and {"start", "end"} <= uses.keys():
        return _by_difference(cells, uses, sample)
    return "s", "numbers"


def _by_difference(
    cells: Sequence[Any], uses: Mapping[str, ColumnUse], sample: Mapping[str, Sequence[Any]]
) -> tuple[str, str]:
    """Return the unit for which a duration equals end minus start."""
    ends = []
    for meaning in ("start", "end"):
        column = sample.get(uses[meaning].column, ())
        unit = uses[meaning].unit or cell_values.time_unit(column) or "s"
        ends.append(cell_values.read_times(cell_values.column_of(column), unit, RecordClock(), zero_is_none=False))
    ratios = []
    for cell, held_s in zip(cells, (ends[1] - ends[0]).tolist(), strict=False):
        number = cell_values.number_of(cell)
        if number and held_s > 0 and number > 0:
            ratios.append(held_s / number)
    if not ratios:
        return "s", "numbers"
    ratio = median(ratios)
    unit = next((unit for unit, factor in cell_values.SPANS.items() if abs(ratio / factor - 1) < 0.05), "")  # noqa: PLR2004
    return (unit, "equals end minus start") if unit else ("s", "numbers, not end minus start")


def _relative(uses: Mapping[str, ColumnUse], sample: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether starts and ends are too small for seconds since 1970."""
    times_s: list[float] = []
    for meaning in ("start", "end"):
        factor = cell_values.EPOCHS.get(uses[meaning].unit) if meaning in uses else None
        if factor is not None:
            numbers = cell_values.only_numbers(sample.get(uses[meaning].column, ()))
            times_s += [number * factor for number in numbers if number > 0]
    return bool(times_s) and median(times_s) < SMALLEST_EPOCH_S
