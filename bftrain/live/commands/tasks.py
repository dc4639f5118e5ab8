"""Commands that query or change tasks and nodes of a live run, and their common parts."""

from __future__ import annotations

import csv
import functools
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.command_table import CommandEntry, LazyGroup
from bftrain.cli.output import LITERAL, Output, prints_results, table
from bftrain.cli.settings import TimeType
from bftrain.errors import BadInput, Interrupted, NotAvailable, PartlyFailed, UsageError
from bftrain.node_units import NODE, node_of, words_of
from bftrain.text_formats import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.client import Client
    from bftrain.live.model.schemas import StatusView, TaskView, UsageRow

P = ParamSpec("P")
R = TypeVar("R")

_REMARKS: Final = 5
_LOG_EVERY_S: Final = 0.5
_WATCH_S: Final = 2.0
OVER: Final = frozenset({"done", "failed", "cancelled"})
_LINES_BYTES: Final = 64 * 1024  # size of the final part of a log that is searched for its last lines
_LAST_BYTES: Final = 1024 * 1024  # default size of the shown part of a log


def talks(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--live``, ``--token-file`` and result printing to a command, and pass it a ``client``."""

    @heading("Live run")
    @click.option(
        "--live",
        "address",
        metavar="ADDRESS",
        default="",
        help="Socket, or http://HOST:PORT with --token-file FILE or BFTRAIN_TOKEN=FILE [$BFTRAIN_LIVE, yours, or this "
        "machine's].",
    )
    @click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), default=None, hidden=True)
    @prints_results
    @functools.wraps(function)
    def wrapped(*args: Any, address: str, token_file: Path | None, **kwargs: Any) -> R:  # noqa: ANN401 - handed through
        from bftrain.live.client import Client

        client = Client(address, token_file)
        return function(*args, client=client, **kwargs)  # type: ignore[arg-type]  # the decorator adds client

    return wrapped  # type: ignore[return-value]  # the two options are consumed by click


def _change(how: str, about: str, example: str) -> click.Command:
    """Build a command that changes tasks one by one; a failure does not stop the remaining changes."""

    @click.command(cls=DocumentedCommand, help=about, example=example)
    @click.argument("tasks", metavar="TASK...", nargs=-1, required=True)
    @talks
    def command(tasks: tuple[str, ...], client: Client, out: Output) -> None:
        done: list[TaskView] = []
        problems: list[BadInput] = []
        for name in tasks:
            try:
                done.append(client.change(name, how))
            except BadInput as error:
                if len(tasks) == 1:
                    raise
                problems.append(error)
        out.result(done, lambda: "\n".join(f"{task.name}: {task.state}" for task in done))
        for problem in problems:
            out.warn(str(problem))
        if problems:
            raise PartlyFailed(f"{len(problems)} of {len(tasks)} tasks could not be changed")

    return command


cancel = _change(
    "cancel",
    "Cancel a task; its saved state in its folder stays.",
    "bftrain task cancel resnet vgg\nbftrain task cancel resnet --json",
)
pause = _change(
    "pause",
    "Pause a task: it saves its state and waits without nodes until resumed.",
    "bftrain task pause resnet\nbftrain task pause resnet vgg",
)
resume = _change(
    "resume",
    "Resume a paused task, in its old place in the queue.",
    "bftrain task resume resnet\nbftrain task resume resnet vgg",
)


@click.command(
    cls=DocumentedCommand, example="bftrain live drain 'node[01-04]'\nbftrain live drain 'node[01-04]' --end"
)
@click.argument("nodes", metavar="[NODESET]...", nargs=-1)
@click.option("--end", is_flag=True, help="Use the nodes again.")
@talks
def drain(nodes: tuple[str, ...], client: Client, out: Output, *, end: bool) -> None:
    """Stop using nodes, such as nid[0001-0004]: their tasks save and move first.

    Without NODESET, lists all nodes that the live run knows.
    """
    if nodes:
        from ClusterShell.NodeSet import NodeSet, NodeSetException

        try:
            names = tuple(NodeSet(",".join(nodes)))
        except NodeSetException as error:
            raise BadInput(str(error), where=",".join(nodes), fix="such as nid[0001-0004,7]") from error
        known = {name for view in client.nodes() for name in (view.name, node_of(view.name))}
        if unknown := [name for name in names if name not in known]:
            out.warn(f"the live run does not know {', '.join(unknown)} yet; bftrain live drain lists its nodes")
        found = client.drain(names, end=end)
    else:
        found = client.nodes()
    rows = [(one.name, one.state, one.task) for one in found]
    out.result(found, lambda: table("", ("node", "state", "task"), rows, left=(0, 1, 2)))


COLUMNS: Final = ("task", "user", "state", "nodes", "done", "speed", "loss", "waits or runs")


def task_table(tasks: Sequence[TaskView]) -> RenderableType:
    """Return a table of tasks for the terminal."""
    now = time.time()
    title = f"{len(tasks)} tasks" if len(tasks) != 1 else "1 task"
    heads = [*map(words_of(tasks[0].unit if tasks else NODE), COLUMNS)]
    return table(title, heads, [row(task, now) for task in tasks], left=(0, 1, 2, 4))


@click.command(cls=DocumentedCommand, example="bftrain status --watch\nbftrain status resnet")
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--watch", is_flag=True, help=f"Refresh every {_WATCH_S:g} s, until Ctrl-C.")
@click.option("--tasks", "only_tasks", is_flag=True, help="List only the tasks.")
@click.option("--all", "over", is_flag=True, help="Also list finished tasks.")
@talks
def status(task: str | None, client: Client, out: Output, *, watch: bool, only_tasks: bool, over: bool) -> None:
    """Show a live run and your tasks, or all details of TASK (a name, or #number).

    Operators see the tasks of all users.
    """
    if task is not None and (only_tasks or over):
        raise UsageError("cannot be used with TASK", where="--tasks" if only_tasks else "--all", fix="omit one")
    if watch and (out.json or not sys.stdout.isatty()):
        raise UsageError("needs a terminal, and prints no JSON", where="--watch", fix="leave out --watch")

    def ask() -> tuple[object, Callable[[], RenderableType]]:
        if task is not None:
            found = client.task(task)
            return found, lambda: described(found)
        tasks = client.tasks(over=over)
        if only_tasks:
            return tasks, lambda: task_table(tasks)
        run = client.status()
        return {**wire.plain(run), "tasks": tasks}, lambda: status_table(run, tasks)

    from bftrain.values import wire

    if watch:
        _watch(lambda: ask()[1]())  # noqa: PLW0108 - each refresh asks again
    else:
        out.result(*ask())


def _watch(look: Callable[[], RenderableType]) -> None:
    """Show the result of ``look`` on a separate screen until Ctrl-C, even while the live run does not answer."""
    from rich.console import Console, Group
    from rich.live import Live

    console, shown, silent_since_s = Console(**LITERAL), look(), 0.0
    screen = Live(shown, console=console, screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), screen as live:
        while True:
            time.sleep(_WATCH_S)
            try:
                shown, silent_since_s = look(), 0.0
            except NotAvailable:  # the daemon restarts, or its machine is busy
                silent_since_s = silent_since_s or time.time()
            notice = f"no answer since {clock(silent_since_s)}" if silent_since_s else ""
            live.update(Group(notice, shown) if notice else shown, refresh=True)


def row(task: TaskView, now_s: float) -> tuple[object, ...]:
    """Return the table row of a task."""
    return (
        task.name,
        task.user,
        task.state,
        f"{task.size}" if task.size or task.state in {"running", "waiting"} else "",
        done(task),
        f"{task.speed:,.0f}/s" if task.speed else "",
        "" if task.loss is None else f"{task.loss:.4g}",
        duration((task.ended_s or now_s) - task.since_s),
    )


def done(task: TaskView) -> str:
    """Return the finished share of a task's work, as text."""
    if task.done is not None:
        return f"{task.done:.0%}"
    return f"step {task.step:,}" if task.step else ""


def copies_in_words(status: StatusView) -> str:
    """Return the memory that nodes lend to copies of states; "" for none."""
    memory = status.copies_memory
    if not float(memory.removesuffix("%")):
        return ""
    return (
        f"of states, in up to {memory} of each node's free memory"
        if "%" in memory
        else f"of states, up to {memory} MB a node"
    )


def scheduler_in_words(status: StatusView) -> str:
    """Return the scheduler's name, and the number of its commands: recent ones, and by the settings."""
    if status.commands_a_minute is None:
        return status.scheduler
    limits = status.commands_limits
    rest = f"; {limits['at_rest']:.3g} a minute at rest" if limits else ""
    most = f", up to {limits['submissions']:g} submissions" if "submissions" in limits else ""
    return f"{status.scheduler}, {counted(status.commands_a_minute, 'command')} in the last minute{rest}{most}"


def hooks_in_words(status: StatusView) -> str:
    """Return the hooks' reports as text; empty if the site sets no spool."""
    if status.hooks is None:
        return ""
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(status.hooks.messages.items()))
    last = "" if status.hooks.last_s is None else f"; the last {duration(status.now_s - status.hooks.last_s)} ago"
    return f"{counts or 'no messages'}{last}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    whole = max(0, int(seconds))
    for size, unit, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small}"
    return f"{whole} s"


def clock(time_s: float) -> str:
    """Format a time: only the time of day if it is today."""
    today = time.localtime()[:3] == time.localtime(time_s)[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", time.localtime(time_s))


def committed_in_words(task: TaskView) -> str:
    """Return the last step that survives the loss of all nodes, and where its state is."""
    if not task.committed_step:
        return ""
    where = "copied to another node" if task.copied_step == task.committed_step else "on disk"
    return f"up to step {task.committed_step:,} ({where})"


def described(task: TaskView) -> RenderableType:
    """Return all details of a task for the terminal."""
    units = words_of(task.unit)
    counts = "" if task.done_samples == task.samples else f", which count as {task.done_samples:,.0f}"
    rows = [
        ("number", f"#{task.number}"),
        ("state", task.state),
        ("of", task.user),
        (units("nodes"), f"{task.size}: {' '.join(task.nodes)}" if task.nodes else "none"),
        ("may have", f"{task.min_nodes} to {task.max_nodes}"),
        ("runs", " ".join(task.argv)),
        ("launcher", task.launcher),
        ("folder", task.folder),
        ("submitted", clock(task.submitted_s)),
        ("started", "" if task.started_s is None else clock(task.started_s)),
        ("ended", "" if task.ended_s is None else clock(task.ended_s)),
        ("done", f"{done(task) or 'nothing yet'} ({task.samples:,.0f} samples{counts}, {task.step:,} steps)"),
        ("in memory", f"up to step {task.in_memory_step:,}" if task.in_memory_step else ""),
        ("committed", committed_in_words(task)),
        ("loss", "" if task.loss is None else f"{task.loss:.6g}"),
        ("speed", f"{task.speed:,.0f} samples/s" if task.speed else ""),
        ("measured", "  ".join(f"{size}: {rate:,.0f}/s" for size, rate in task.speeds.items())),
        ("costs", "  ".join(f"{change}: {cost:.2f} s" for change, cost in task.costs.items())),
        (units("node-hours"), f"{task.node_s / 3600:.3f}"),
        ("sizes changed", f"{task.rescales} times as decided, {task.preemptions} by preemption"),
        ("failures", str(task.failures) if task.failures else ""),
        ("waits", task.waits),
        ("reason", task.reason),
    ]
    return table(f"task {task.name}", ("", ""), [one for one in rows if one[1]], left=(0, 1))


def status_table(status: StatusView, tasks: Sequence[TaskView]) -> RenderableType:
    """Return the status of a live run and its tasks for the terminal."""
    from rich.console import Group

    units = words_of(status.unit)
    decided = harvest = ""
    if status.harvested:
        today = status.harvested[-1]
        harvest = units(f"{today.samples:,.0f} samples in {today.node_s / 3600:.2f} node-hours ({today.day})")
    if status.decision is not None:
        last = status.decision
        times = "once" if last.number == 1 else f"{last.number} times"
        decided = f"{times}, last at {clock(last.time_s)} in {1e3 * last.solve_s:.1f} ms"
    until = "" if status.paused_until_s is None else f"; continues at {clock(status.paused_until_s)}"
    rows = [
        ("state", f"{status.state}, for {duration(status.now_s - status.since_s)}{until}"),
        (
            units("nodes"),
            f"{status.pool} available, {status.used} of them used; {status.agents} agents, {status.drained} drained",
        ),
        ("copies", copies_in_words(status)),
        ("kinds", ", ".join(f"{each.used} of {each.pool} {kind}" for kind, each in status.kinds.items())),
        *(
            ("pool", units(f"{name}: {counted(pool.nodes, 'node')} available from {pool.scheduler}"))
            for name, pool in status.pools.items()
        ),
        ("tasks", f"{status.running} running, {status.waiting} waiting, {status.paused} paused, {status.over} over"),
        ("speed", f"{status.speed:,.0f} samples/s"),
        ("harvest", harvest),
        (
            ("policy", f"{status.policy}, in rounds of {duration(status.round_s)}")
            if status.policy
            else ("objective", f"{status.objective}, by the solver {status.solver}")
        ),
        ("decided", decided),
        ("hooks", hooks_in_words(status)),
        ("listens on", " ".join(status.addresses)),
        ("runs", f"bftrain {status.version} as {status.user}, process {status.pid}"),
        ("scheduler", scheduler_in_words(status)),
        *(("remark", f"{clock(one.time_s)}  {one.text}") for one in status.remarks[-_REMARKS:]),
    ]
    about = table(f"live run {status.site}", ("", ""), [one for one in rows if one[1]], left=(0, 1))
    return Group(about, task_table(tasks))


@click.command(
    cls=DocumentedCommand, example="bftrain logs resnet --follow --lines 20\nbftrain logs resnet --all > resnet.txt"
)
@click.argument("task", metavar="TASK")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the task finishes.")
@click.option("-n", "--lines", default=0, metavar="N", help="Start with the last N lines of each worker [1 MB].")
@click.option("--all", "whole", is_flag=True, help="Print the complete stored output of each worker.")
@talks
def logs(task: str, lines: int, client: Client, out: Output, *, follow: bool, whole: bool) -> None:
    """Print the output of the workers of TASK; each line starts with its node and slot."""
    name = f"#{client.task(task).number}"
    reader = _LogReader(client, name, lines, out, whole=whole)
    try:
        while True:
            over = client.task(name).state in OVER  # queried first, so the final output is read
            reader.turn()
            if over or not follow:
                break
            time.sleep(_LOG_EVERY_S)
    except KeyboardInterrupt as error:
        raise Interrupted("no longer following; the task continues") from error
    for worker, rest in reader.begun.items():
        if rest:
            reader.print(worker, [rest])


class _LogReader:
    def __init__(self, client: Client, task: str, last_lines: int, out: Output, *, whole: bool) -> None:
        self._client = client
        self._task = task
        self._last = last_lines
        self._most_bytes = _LINES_BYTES if last_lines else math.inf if whole else _LAST_BYTES
        self._out = out
        self._offsets: dict[str, int] = {}
        self.begun: dict[str, bytes] = {}  # lines without an end so far

    def turn(self) -> None:
        for file in self._client.logs(self._task):
            fresh = file.name not in self._offsets
            offset = self._offsets.get(file.name, int(max(0, file.size - self._most_bytes)))
            if file.size < offset:  # its middle was removed, and the unread part is somewhere before the end
                self._out.warn(f"{file.name}: cut at its limit; lines before this moment may be missing")
                offset, self.begun[file.name] = file.size, b""
            cut = fresh and offset > 0  # the first line is incomplete and not shown
            if cut and not self._last:
                self._out.warn(f"{file.name}: only the end of its {file.size / 1e6:,.1f} MB; --all prints everything")
            lines: list[bytes] = []
            while offset < file.size and (piece := self._client.log(self._task, file.name, offset)):
                offset += len(piece)
                *whole, rest = (self.begun.get(file.name, b"") + piece).split(b"\n")
                self.begun[file.name] = rest
                lines += whole[1:] if cut else whole
                cut &= not whole
                if not (fresh and self._last):
                    self.print(file.name, lines)
                    lines = []
            self._offsets[file.name] = offset
            self.print(file.name, lines[-self._last :] if fresh and self._last else lines)

    def print(self, name: str, lines: list[bytes]) -> None:
        from bftrain.live.log import without_control_characters
        from bftrain.values import wire

        where = name.removesuffix(".log")
        texts = [line.decode(errors="replace") for line in lines]
        if self._out.json:
            found = [wire.encode({"worker": where, "line": text}).decode() for text in texts]
        else:
            shown = (without_control_characters(text.rstrip("\r")) for text in texts)
            found = [f"{where}: {text}" for text in shown]
        if found:
            click.echo("\n".join(found))


_GROUPINGS: Final = ("user", "project", "campaign", "month", "day", "task")
# Field of a row -> its heading, its unit, and the number of decimals
_SUMS: Final = {
    "node_s": ("node-hours", 3600.0, 2),
    "gpu_s": ("GPU-hours", 3600.0, 2),
    "samples": ("samples", 1.0, 0),
    "energy_j": ("kWh", 3.6e6, 2),
}


@click.command(
    cls=DocumentedCommand,
    example="bftrain task usage --since 2026-11-01 --by project\nbftrain task usage --by month --csv",
)
@click.option("--by", type=click.Choice(_GROUPINGS), default="user", help="Group by this [user].")
@click.option("--since", type=TimeType(), help="First day, such as 2026-11-01 [all days].")
@click.option("--csv", "as_csv", is_flag=True, help="Print a table in CSV: exact seconds, samples and joules.")
@talks
def usage(by: str, since: float | None, client: Client, out: Output, *, as_csv: bool) -> None:
    """List used node-hours, GPU-hours and samples of your tasks; operators see those of all users.

    Days are those of the live run's time zone. [usage] of the site's settings sets watts and GPUs (default: the
    scheduler's GPU counts).
    """
    day = "" if since is None else datetime.fromtimestamp(since).astimezone().date().isoformat()
    rows = client.usage(by, day)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow((by, *_SUMS))
        writer.writerows((row.of, *(getattr(row, name) for name in _SUMS)) for row in rows)
        return
    out.result(rows, lambda: table("", *_laid_out(by, rows)))


def _laid_out(by: str, rows: Sequence[UsageRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows, with the sum as the last row; GPU and energy columns only if the site has them."""
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    values = [(row.of or "none", {name: getattr(row, name) for name in _SUMS}) for row in rows]
    if len(rows) > 1:
        values.append(("all", sums))
    shown = {name: form for name, form in _SUMS.items() if name in {"node_s", "samples"} or sums[name]}
    lines = [
        (of, *(f"{row[name] / unit:,.{digits}f}" for name, (_, unit, digits) in shown.items())) for of, row in values
    ]
    return (by, *(head for head, _, _ in shown.values())), lines


_TASKS: Final = "bftrain.live.commands.tasks"
_COMMANDS: Final = {
    "pause": CommandEntry(f"{_TASKS}:pause", "Pause tasks: they release their nodes and wait until resumed."),
    "resume": CommandEntry(f"{_TASKS}:resume", "Resume paused tasks."),
    "cancel": CommandEntry(f"{_TASKS}:cancel", "Cancel tasks; their saved state stays."),
    "usage": CommandEntry(f"{_TASKS}:usage", "List used node-hours by user, project, campaign, month or task."),
}


@click.group("task", cls=LazyGroup, sections={"Commands": _COMMANDS})
def task_group() -> None:
    """Pause, resume or cancel tasks of a live run; list their node-hours."""
