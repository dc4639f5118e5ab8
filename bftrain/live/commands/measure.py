"""``bftrain live measure``: how much longer jobs of the main queue wait because of harvesting, measured by turns."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.interruption import blocked_signals, on_sigterm
from bftrain.cli.output import Output, table
from bftrain.cli.settings import DurationType
from bftrain.errors import BadInput, BftrainError, NotAvailable, UsageError
from bftrain.files import whole_text, write_text
from bftrain.live.commands.tasks import clock, duration, talks
from bftrain.node_units import node_of
from bftrain.text_formats import counted
from bftrain.values import wire

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.client.client import Client
    from bftrain.live.commands.probe_jobs import ProbeJobs, ProbeWait
    from bftrain.live.commands.wait_statistics import ComparedWait, Spread
    from bftrain.live.model.harvesting import HarvestingView

_MOST_JOBS: Final = 2000
_LEASE_S: Final = 300.0  # beyond the wait of a job, for which a pause lasts if this program is killed
_SWITCH_S: Final = 180.0  # for tasks to leave all nodes, or to get some
_STEADY_S: Final = 3.0  # without a change of the pool
_ASK_S: Final = 0.5
_GOLDEN: Final = (5**0.5 - 1) / 2  # its multiples are spread evenly over the scheduler's cycle
_STEPS: Final = (
    "submission, and the scheduler's cycle until SIGTERM",
    "SIGTERM until the task's processes are killed",
    "then until nothing of ours is on the node",
    "epilog and start of the job",
    "ours in all: from SIGTERM until the node is free",
)


class RecordedWaits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waits in whole pairs of blocks, as they are kept in a file; ``steps_s`` are of jobs that took our nodes."""

    by: str
    nodes: int
    without_s: tuple[tuple[float, ...], ...] = ()
    with_s: tuple[tuple[float, ...], ...] = ()
    steps_s: tuple[tuple[float, ...], ...] = ()


class MeasuredWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The result: waits in seconds by block, what follows from them, and what handing nodes back took."""

    by: str
    command: str
    nodes: int
    without_s: tuple[tuple[float, ...], ...]
    with_s: tuple[tuple[float, ...], ...]
    compared: tuple[ComparedWait, ...]
    preempted: int
    steps: tuple[Spread, ...]


@click.command(
    cls=DocumentedCommand,
    example="bftrain live measure --jobs 200 --partition main",
    epilog="For operators of a live run beside Slurm, where its commands are. One probe job at a time is in the queue, "
    "or --at-once of them; each asks for whole nodes and ends at once. Ctrl-C ends the measuring: what is measured by "
    "then is shown, and harvesting is paused or goes on as before. So it does by itself if this program is killed.",
)
@heading("What is measured")
@click.option(
    "--jobs",
    type=click.IntRange(2, _MOST_JOBS),
    default=100,
    show_default=True,
    help="Probe jobs with, and as many without harvesting.",
)
@click.option(
    "--block", type=click.IntRange(1), default=10, show_default=True, help="Of these one after the other, by turns."
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Jobs in the queue: more take less time.",
)
@click.option(
    "--by", type=click.Choice(["sbatch", "srun"]), default="sbatch", show_default=True, help="How jobs are submitted."
)
@heading("Probe jobs")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes of a probe job.")
@click.option(
    "--partition", default="", metavar="NAME", help="Where they go: not that of the pilots [Slurm's default]."
)
@click.option("--option", "options", multiple=True, metavar="WORD", help="More words for Slurm, such as --account=a.")
@click.option("--gap", "gap_s", type=DurationType(0.0), default="1s", show_default=True, help="Between two of them.")
@click.option(
    "--patience",
    "patience_s",
    type=DurationType(0.0, min_open=True),
    default="10min",
    show_default=True,
    help="End if one waits longer.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Seen by the nodes: jobs write there when they began.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to which each pair of blocks is added. Those in it count, so measuring goes on where it ended.",
)
@click.option("--yes", is_flag=True, help="Begin without asking.")
@talks
def measure(  # noqa: PLR0913 - each is an option of the command
    client: Client,
    out: Output,
    *,
    jobs: int,
    block: int,
    at_once: int,
    by: Literal["sbatch", "srun"],
    nodes: int,
    partition: str,
    options: tuple[str, ...],
    gap_s: float,
    patience_s: float,
    folder: Path,
    record: Path | None,
    yes: bool,
) -> None:
    """Measure how much longer jobs of the main queue wait because of harvesting.

    It submits short probe jobs, and pauses and resumes the harvesting by turns.
    """
    from bftrain.live.commands.probe_jobs import ProbeJobs

    status = client.status()
    if not status.scheduler.startswith("slurm"):
        raise NotAvailable(f"it cannot measure beside {status.scheduler}", where="[scheduler] name", fix="use Slurm")
    before = client.harvesting()
    if partition in before.partitions and not any(word.startswith(("--qos", "-q")) for word in options):
        what = "pilots run there, which such jobs do not preempt"
        raise UsageError(what, where=f"--partition {partition}", fix="name the partition of others' jobs")
    _restore(client, before)  # nothing changes, and who may not change it learns that now
    probes = ProbeJobs(by, nodes=nodes, partition=partition, options=options, folder=folder)
    probes.check()
    recorded = _recorded(record, RecordedWaits(by=by, nodes=nodes))
    left = max(0, jobs - sum(map(len, recorded.with_s)))
    _announce(probes, left, block, at_once, gap_s, before, out)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("it asks before it begins, and there is no terminal", where="--yes", fix="give --yes")
        click.confirm("Begin?", abort=True, err=True)
    turns = _AlternatingBlocks(client, probes, at_once, gap_s, patience_s, recorded, record)
    failure: BftrainError | None = None
    with on_sigterm(signal.default_int_handler), _restored(client, before, out), probes:
        try:
            turns.run(left, block, out.say)
        except (KeyboardInterrupt, BftrainError) as error:
            if not turns.recorded.with_s:
                raise
            failure = error if isinstance(error, BftrainError) else None
            out.warn("interrupted: what follows is from the jobs until then")
    found = _result(turns.recorded, probes.command)
    out.result(found, lambda: _in_words(found))
    if failure is not None:
        raise failure


def _announce(
    probes: ProbeJobs, jobs: int, block: int, at_once: int, gap_s: float, before: HarvestingView, out: Output
) -> None:
    if not jobs:
        out.say("All of it is measured already.")
        return
    turns = 2 * math.ceil(jobs / block)
    least_s = 2 * jobs * (gap_s + 1) / at_once + turns * 10
    many = "one at a time" if at_once == 1 else f"up to {at_once} at a time"
    out.say(f"It submits {2 * jobs} jobs, {many}, each of at most a minute:\n  {probes.command}")
    out.say(f"in {turns} blocks, by turns with and without harvesting; about {duration(least_s)}, more if jobs wait.")
    out.say(f"Then harvesting {'is paused' if before.paused else 'goes on'} as now.")


@dataclass(eq=False, repr=False)
class _AlternatingBlocks:
    """Runs alternating blocks of probe jobs, and adds their waits to the record, also in the file ``_record``."""

    _client: Client
    _probes: ProbeJobs
    _at_once: int
    _gap_s: float
    _patience_s: float
    recorded: RecordedWaits
    _record: Path | None

    def __post_init__(self) -> None:
        self._asking = Lock()
        self._handed: dict[tuple[str, float], tuple[float, float]] = {}  # node and when -> to kill, to exit

    def run(self, jobs: int, block: int, say: Callable[[str], None]) -> None:
        """Run all blocks in the order without, with, with, without, and so on, so that no drift favours either."""
        pairs, done = math.ceil(jobs / block), len(self.recorded.with_s)
        for pair in range(pairs):
            count, first = min(block, jobs - pair * block), (done + pair) * block
            found: dict[bool, list[ProbeWait]] = {}
            for with_it in (False, True) if (done + pair) % 2 == 0 else (True, False):
                self._switch(with_it=with_it)
                waits = found[with_it] = self._probe_all(range(first, first + count), with_it=with_it)
                middle = sorted(one.wait_s for one in waits)[len(waits) // 2]
                how = f"{'with' if with_it else 'without'} harvesting: {count} jobs, median {middle:.2f} s"
                say(f"block {2 * pair + len(found)} of {2 * pairs}, {how}")
            self._add(found)

    def _add(self, found: dict[bool, list[ProbeWait]]) -> None:
        """Keep a pair of blocks."""
        before = self.recorded
        waits = {with_it: tuple(round(one.wait_s, 4) for one in block) for with_it, block in found.items()}
        steps = tuple(steps for one in found[True] if (steps := self._steps(one)) is not None)
        self.recorded = msgspec.structs.replace(
            before,
            without_s=(*before.without_s, waits[False]),
            with_s=(*before.with_s, waits[True]),
            steps_s=(*before.steps_s, *steps),
        )
        if self._record is not None:
            write_text(self._record, f"{wire.encode(self.recorded).decode()}\n")

    def _probe_all(self, numbers: range, *, with_it: bool) -> list[ProbeWait]:
        probe = partial(self._probe, with_it=with_it)
        if self._at_once == 1:
            return [probe(number) for number in numbers]
        with ThreadPoolExecutor(self._at_once) as threads:
            try:
                return list(threads.map(probe, numbers))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self._probes.cancel()
                raise

    def _probe(self, number: int, *, with_it: bool) -> ProbeWait:
        if not with_it:  # a little more time, so that a pause ends by itself only if this program does not
            with self._asking:
                self._client.pause_harvesting(self._patience_s + _LEASE_S)
        time.sleep(self._gap_s + number * _GOLDEN % 1)  # with and without it alike
        wait = self._probes.wait(self._patience_s)
        if with_it:
            with self._asking:
                handbacks = self._client.harvesting().handbacks
            for one in handbacks:
                self._handed[one.node, one.time_s] = (one.kill_s, one.exit_s)
        return wait

    def _steps(self, wait: ProbeWait) -> tuple[float, ...] | None:
        """Return how long each step took of the preemption that a job needed; none if its nodes were idle."""
        taken = [
            (time_s, *took)
            for (node, time_s), took in self._handed.items()
            if node_of(node) in wait.nodes and wait.submitted_s <= time_s <= wait.started_s
        ]
        if not taken:
            return None
        time_s, kill_s, exit_s = max(taken)
        begin = max(0.0, wait.started_s - time_s - exit_s)
        return (time_s - kill_s - wait.submitted_s, kill_s, exit_s, begin, kill_s + exit_s)

    def _switch(self, *, with_it: bool) -> None:
        """Pause or resume harvesting, and wait until the nodes have settled."""
        if with_it:
            self._client.resume_harvesting()
        else:
            self._client.pause_harvesting(self._patience_s + _LEASE_S)
        deadline, steady, pool = time.monotonic() + _SWITCH_S, time.monotonic(), -1
        while True:
            status, now = self._client.status(), time.monotonic()
            if status.pool != pool:
                steady, pool = now, status.pool
            held = status.pool or (status.agents and status.scheduler == "slurm")
            ready = bool(pool) if with_it else not held and not self._client.harvesting().waiting_pilots
            if ready and now - steady >= _STEADY_S:
                return
            if now > deadline:
                self._give_up(with_it=with_it)
            time.sleep(_ASK_S)

    def _give_up(self, *, with_it: bool) -> None:
        what, fix = "nodes are not handed back", "see bftrain status"
        if with_it:
            what, fix = "no node is harvested", "submit tasks that can use them, and measure when nodes are idle"
        raise NotAvailable(f"{what}, {_SWITCH_S:g} s after harvesting {'went on' if with_it else 'paused'}", fix=fix)


def _recorded(path: Path | None, new: RecordedWaits) -> RecordedWaits:
    """Return the waits recorded in a file; none if it does not exist."""
    if path is None or not path.exists():
        if path is not None:  # now, and not after the first jobs, it is known whether that can be done
            write_text(path, f"{wire.encode(new).decode()}\n")
        return new
    fix = "name one that --record made, or a new one"
    found = wire.decode(whole_text(path, "record of waits"), RecordedWaits, where=str(path), fix=fix)
    if len(found.with_s) != len(found.without_s) or any(len(one) != len(_STEPS) for one in found.steps_s):
        raise BadInput("is no record of whole pairs of blocks", where=str(path), fix=fix)
    if (found.by, found.nodes) != (new.by, new.nodes):
        what = f"has waits of jobs on {counted(found.nodes, 'node')} by {found.by}"
        raise BadInput(what, where=str(path), fix="give the same --by and --nodes, or name another file")
    return found


def _result(found: RecordedWaits, command: str) -> MeasuredWaits:
    from bftrain.live.commands.wait_statistics import compare, spread

    by_step = zip(_STEPS, zip(*found.steps_s, strict=True), strict=True) if found.steps_s else ()
    return MeasuredWaits(
        by=found.by,
        command=command,
        nodes=found.nodes,
        without_s=found.without_s,
        with_s=found.with_s,
        compared=compare(found.without_s, found.with_s),
        preempted=len(found.steps_s),
        steps=tuple(spread(name, took) for name, took in by_step),
    )


@contextmanager
def _restored(client: Client, before: HarvestingView, out: Output) -> Iterator[None]:
    """Pause harvesting, or let it go on, as before; Ctrl-C does not keep that from being done."""
    try:
        yield
    finally:
        with blocked_signals():
            try:
                _restore(client, before)
            except BftrainError as error:
                until = clock(time.time() + _LEASE_S)
                out.warn(f"harvesting may be paused until {until} or later; bftrain live resume ends that: {error}")


def _restore(client: Client, before: HarvestingView) -> None:
    left_s = None if before.until_s is None else before.until_s - time.time()
    if before.paused and (left_s is None or left_s > 0):
        client.pause_harvesting(left_s)
    else:
        client.resume_harvesting()


def _in_words(found: MeasuredWaits) -> RenderableType:
    from rich.console import Group

    def interval(one: ComparedWait) -> str:
        return "" if one.low_s is None or one.high_s is None else f"{one.low_s:+.3f} to {one.high_s:+.3f} s"

    rows = [
        (one.name, f"{one.without_s:.3f} s", f"{one.with_s:.3f} s", f"{one.difference_s:+.3f} s", interval(one))
        for one in found.compared
    ]
    count = sum(map(len, found.with_s))
    title = (
        f"waits of {count} jobs without and {count} with harvesting, by {found.by}; {found.preempted} took our nodes"
    )
    parts = [table(title, ("wait", "without", "with", "difference", "95 % confidence"), rows), _conclusion(found)]
    if found.steps:
        lines = [
            (one.name, f"{one.median_s:.3f} s", f"{one.p99_s:.3f} s", f"{one.longest_s:.3f} s") for one in found.steps
        ]
        parts.append(table("what a preemption takes", ("step", "median", "p99", "longest"), lines))
    return Group(*parts)


def _conclusion(found: MeasuredWaits) -> str:
    """Return what follows from the median, in a sentence."""
    median = found.compared[0]
    if median.low_s is None or median.high_s is None:
        return "Too few blocks for a confidence interval: four pairs are needed, by more --jobs or a smaller --block.\n"
    if median.low_s <= 0.0 <= median.high_s:
        return f"No difference is proven; the median wait is at most {median.high_s:.3f} s longer with harvesting.\n"
    longer = "longer" if median.low_s > 0.0 else "shorter"
    least, most = sorted((abs(median.low_s), abs(median.high_s)))
    return f"With harvesting the median wait is {least:.3f} to {most:.3f} s {longer}.\n"
