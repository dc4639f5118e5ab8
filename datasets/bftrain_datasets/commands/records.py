"""Options of the commands that read scheduler records, and their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import heading
from bftrain.cli.output import Output, table
from bftrain.cli.settings import DurationType
from bftrain.cli.value_completion import complete_parts
from bftrain.errors import BadInput
from bftrain.node_units import CORE, GPU, NODE, UNITS, words_of
from bftrain.text_formats import counted
from bftrain_datasets.commands.logfiles import InputFile, nodes_in, nodes_in_file

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_datasets.importing.pipeline import Imported, NoUsableRecords
    from bftrain_datasets.log.provenance import LogFinding

P = ParamSpec("P")
R = TypeVar("R")

SUSPECTED: Final = "suspected"
_MOST_DIGITS: Final = 6  # maximum number of digits in a number of GPUs or cores
# Findings about the log's idle time; all other findings describe nodes in the records
_ABOUT_THE_LOG: Final = frozenset(
    {"censored_end", "suspected_downtime", "always_idle", "over_capacity", "which_unknown", "shared", "held_twice"}
)
ROOM_FOR_TABLE: Final = 100  # columns of a terminal

records_argument = click.argument("files", nargs=-1, required=True, type=InputFile(allow_dash=True))

_READING: Final = (
    click.option(
        "--format",
        "format",
        default=None,
        help="Format, if not recognised; bftrain doctor -v lists all.",
        shell_complete=complete_parts("reader"),
    ),
    click.option(
        "--cluster",
        default=None,
        metavar="NAME",
        help="Cluster to read from records of several; all or '*' merges all.",
    ),
    click.option(
        "--columns", default=None, metavar="NAME,..", help="Columns of a file without header: sacct, sinfo or a table."
    ),
    click.option(
        "--map",
        "map",
        default=None,
        metavar="WHAT=COL,..",
        help="Meanings of columns in a table of jobs, with optional units: start=began:ms,elapsed=run:min,count=n.",
    ),
    click.option(
        "--preset", default=None, metavar="NAME", help="The table is of this public set: pm100, alcf, helios ..."
    ),
    click.option(
        "--timezone",
        default=None,
        help="Time zone of weekdays, and of times that name none, such as Europe/Berlin [UTC].",
    ),
    click.option("--counts", is_flag=True, help="Use numbers of busy nodes only: for records without node names."),
    click.option(
        "--sharing",
        type=click.Choice(("none", "cores")),
        default="none",
        help="With --counts: none: each job has whole nodes; cores: jobs share nodes [none].",
    ),
    click.option("--strict", is_flag=True, help="Reject records with any doubt."),
)
_COUNTING: Final = (
    click.option(
        "--unit",
        type=click.Choice(UNITS),
        default=NODE,
        help="Unit of idle resources: whole nodes, or single GPUs or cores of partly used nodes [node].",
    ),
    click.option(
        "--node-gpus",
        default=None,
        metavar="N|FILE",
        help='With --unit gpu: the number per node, or a file: 8 = "node set" in a .toml, or columns nodes and gpus '
        "in a .csv [largest number in use].",
    ),
    click.option("--node-cores", default=None, metavar="N|FILE", help="The same with --unit core."),
    click.option(
        "--nodes",
        default=None,
        metavar="NODESET|FILE|N",
        help="All nodes, in order: a node set such as nid[0001-0064], or its file; with --counts their number.",
    ),
    click.option(
        "--window",
        default=None,
        metavar="A:B",
        help="Only this time: seconds UTC or ISO in --timezone; an end may be empty.",
    ),
    click.option(
        "--down",
        multiple=True,
        metavar="[NODES@]A:B",
        help="Downtime of these nodes, or of the whole machine; may be repeated. 'suspected': when suspected.",
    ),
    click.option(
        "--downtime-after",
        "downtime_after_s",
        type=DurationType(min=0, min_open=True),
        default=3600.0,
        show_default=True,
        help="Suspect downtime when all nodes are idle for longer than these seconds.",
    ),
    click.option(
        "--preemptible",
        default=None,
        metavar="PART,..",
        help="Partitions or queues of preemptible jobs; their nodes count as idle.",
    ),
    click.option(
        "--min-gap",
        "min_gap_s",
        type=DurationType(min=0),
        default=0.0,
        show_default=True,
        help="Shorter idle gaps (s) count as busy.",
    ),
    click.option("--keep-end", is_flag=True, help="Keep the time after the last job start in a dump of finished jobs."),
)


def reads_records(function: Callable[P, R]) -> Callable[P, R]:
    """Add the import options to a command."""
    for title, options in (
        ("What counts as idle", _COUNTING),
        ("How files are read", _READING),
    ):  # decorators apply in reverse order
        for option in reversed(options):
            function = option(function)
        function = heading(title)(function)
    return function


NODE_UNITS_OPTIONS: Final = ("node_gpus", "node_cores")  # set ImportOptions.node_units or node_units_of


def options_of(given: dict[str, Any]) -> ImportOptions:
    """Return the import options in ``given``, the values of the options of ``reads_records`` except ``--strict``."""
    from datetime import UTC
    from functools import partial

    from bftrain_datasets.importing.import_options import ImportOptions, listed
    from bftrain_datasets.log import time_formats

    downs = given.pop("down")
    table = given["format"] == "jobs" or given["map"] or given["preset"]
    nodes, node_count = _nodes(given.pop("nodes"), counts=given["counts"] or bool(table))
    for name in ("preemptible", "columns", "map"):
        text = given.pop(name)
        if text is not None:
            given[name] = listed(text)
    node_units = _node_units(given["unit"], {GPU: given.pop("node_gpus"), CORE: given.pop("node_cores")})
    wanted = given.pop("window")
    zone = time_formats.zone(given["timezone"]) if given["timezone"] else UTC
    window = partial(time_formats.window, zone=zone)
    return ImportOptions(
        nodes=nodes,
        node_count=node_count,
        window=window(wanted) if wanted is not None else (None, None),
        down=tuple(window(text, where="--down") for text in downs if text != SUSPECTED and "@" not in text),
        down_nodes=tuple(
            (nodes_in(nodes, "--down"), *window(text, where="--down"))
            for nodes, at, text in (each.partition("@") for each in downs)
            if at
        ),
        down_suspected=SUSPECTED in downs,
        **node_units,
        **given,
    )


def _node_units(unit: str, given: dict[str, str | None]) -> dict[str, Any]:
    """Return the GPUs or cores per node: a number, or a file with a number per node set."""
    from bftrain_datasets.log.edits import named_sets

    other = next((each for each, text in given.items() if text is not None and each != unit), None)
    if other is not None:
        raise click.UsageError(f"--node-{other}s requires --unit {other}")
    text = given.get(unit)
    if text is None:
        return {}
    if text.isdecimal() and text.strip("0") and len(text) <= _MOST_DIGITS:
        return {"node_units": int(text)}
    if not Path(text).is_file():
        raise click.UsageError(f"--node-{unit}s {text}: neither a number from 1 to 999,999 nor a file")
    remedy = f'write 8 = "n[001-036]" in a .toml, or the columns nodes and {unit}s in a .csv'
    found = []
    for count, nodes, where in named_sets(Path(text), f"{unit}s", remedy):
        if not count.isdecimal() or len(count) > _MOST_DIGITS:
            raise BadInput(f"{count!r:.40} is not a number of {unit}s", where=where, fix=remedy)
        nodes_in(nodes, where)
        found.append((nodes, int(count)))
    return {"node_units_of": tuple(found)}


def _nodes(text: str | None, *, counts: bool) -> tuple[tuple[str, ...] | None, int | None]:
    """Return the node names of ``--nodes``, or their number if ``counts`` allows that."""
    if text is None:
        return None, None
    if Path(text).is_file():
        return nodes_in_file(Path(text)), None
    if text.isdecimal():
        if not counts:
            raise click.UsageError(f"--nodes {text} is only a number, which requires --counts or --format jobs")
        if not text.strip("0"):
            raise click.UsageError(f"--nodes {text}: must be at least 1")
        return None, int(text)
    return nodes_in(text, "--nodes"), None


def read_records(files: Sequence[Path], options: ImportOptions, out: Output) -> Imported:
    """Import the files, with a progress bar."""
    from bftrain_datasets.importing.pipeline import import_files

    size = sum(path.stat().st_size for path in files if path.is_file())
    with out.progress() as progress:
        bar = progress.add_task("reading, kB", total=size / 1000 or None)
        return import_files(files, options, tell=lambda count: progress.advance(bar, count / 1000))


def row_totals(made: Imported | NoUsableRecords) -> str:
    """Return the sum over all rows, as text."""
    rows = made.rows
    aside = sum(rows.aside.values())
    return f"{made.format}: {counted(rows.read, 'row')} read = {rows.used:,} used + {aside:,} skipped"


def refusal(made: Imported) -> Exception:
    """Return the error of ``--strict``."""
    names = ", ".join(each.name for each in made.doubts)
    return BadInput(
        f"--strict: {counted(len(made.doubts), 'kind')} of doubt: {names}", fix="see the options in the report above"
    )


class FindingsTable:
    """Findings with their treatment and option: as a table, or as a list on narrow terminals."""

    def __init__(self, title: str, findings: Sequence[LogFinding], unit: str = NODE) -> None:
        self._title = title
        self._findings = findings
        self._words = words_of(unit)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= ROOM_FOR_TABLE:
            columns = ("kind", "count", "node-hours", "meaning, treatment, and first location")
            rows = ((each.name, f"{each.count:,}", _hours(each), self._text(each)) for each in self._findings)
            yield table(self._title, tuple(map(self._words, columns)), rows, left=(0, 3))
            return
        from rich.padding import Padding
        from rich.text import Text

        yield Text(f"{self._title}\n")
        for each in self._findings:
            hours = self._words(f" ({_hours(each)} node-hours)") if each.node_s else ""
            yield Text(f"{each.name}: {each.count:,}{hours}")
            yield Padding(Text(self._text(each), overflow="fold"), (0, 0, 0, 2), expand=False)
        yield ""

    def _text(self, each: LogFinding) -> str:
        from bftrain_datasets.importing.findings import HAZARDS

        known = HAZARDS.get(each.name)
        lines = [known.says if known else each.name, done_about(each)]
        if each.name in _ABOUT_THE_LOG:
            lines = list(map(self._words, lines))
        return "\n".join(filter(None, (*lines, each.first)))


def _hours(each: LogFinding) -> str:
    return f"{each.node_s / 3600:,.1f}" if each.node_s else ""


def done_about(each: LogFinding) -> str:
    """Return the treatment of a finding, and the option that changes it."""
    from bftrain_datasets.importing.findings import option_for

    option = option_for(each.name)
    return f"{each.done}; change it with {option}" if option else each.done


def findings_data(findings: Sequence[LogFinding]) -> list[dict[str, Any]]:
    """Return findings for JSON output, each with the option that changes its treatment."""
    from bftrain.values import wire
    from bftrain_datasets.importing.findings import option_for

    return [{**wire.plain(each), "option": option_for(each.name) or None} for each in findings]


def report(findings: Sequence[LogFinding], unit: str = NODE) -> RenderableType:
    """Return all findings in two tables, doubtful and ordinary, with idle time in hours of this unit."""
    from rich.console import Group

    from bftrain_datasets.importing.findings import is_doubt

    titles = {True: "Doubtful: look at these", False: "Ordinary: counted and harmless"}
    groups = {title: [each for each in findings if is_doubt(each) is doubt] for doubt, title in titles.items()}
    parts = [FindingsTable(title, found, unit) for title, found in groups.items() if found]
    return Group(*parts) if parts else "No doubtful data found."
