"""What the commands that talk to a live run have in common: where it is, how they ask, how tasks are laid out."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import heading

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.live.client.client import Client
    from bftrain.live.model.schemas import StatusView, TaskView

P = ParamSpec("P")
R = TypeVar("R")

task_argument = click.argument("task", metavar="TASK")


def talks(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--live`` and ``--token-file``, and hand it a way to ask as ``live``."""

    @heading("Live run")
    @click.option(
        "--live",
        "address",
        metavar="ADDRESS",
        default="",
        help="Socket or http://HOST:PORT of the live run [$BFTRAIN_LIVE, or your own, or this machine's].",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="File of the token for an ADDRESS that begins with http [$BFTRAIN_TOKEN].",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, address: str, token_file: Path | None, **kwargs: Any) -> R:  # noqa: ANN401 - handed through
        return function(*args, live=_Live(address, token_file), **kwargs)  # type: ignore[arg-type]  # live is what the decorator adds

    return wrapped  # type: ignore[return-value]  # the two options are consumed by click


class _Live:
    """A live run that can be called."""

    def __init__(self, address: str, token_file: Path | None) -> None:
        self._address = address
        self._token_file = token_file

    @contextmanager
    def call(self) -> Iterator[Client]:
        """Give a client for a while."""
        from bftrain.live.client.client import Client, find

        client = Client(find(self._address), self._token_file)
        try:
            yield client
        finally:
            client.close()


Live = _Live

COLUMNS = ("task", "user", "state", "nodes", "done", "speed", "loss", "waits or runs")


def row(task: TaskView, now_s: float) -> tuple[object, ...]:
    """Lay a task out as one row."""
    return (
        task.name,
        task.user,
        task.state,
        f"{task.size}" if task.size or task.state in {"running", "waiting"} else "",
        done(task),
        f"{task.speed:,.0f}/s" if task.speed else "",
        "" if task.loss is None else f"{task.loss:.4g}",
        duration((task.ended_s or now_s) - (task.started_s or task.submitted_s)),
    )


def done(task: TaskView) -> str:
    """Say how far a task is."""
    if task.work_samples:
        return f"{min(1.0, task.samples / task.work_samples):.0%}"
    return f"step {task.step:,}" if task.step else ""


def kinds_in_words(status: StatusView) -> str:
    """Say how many nodes of each kind are ours and used; nothing where nodes have no kinds."""
    return ", ".join(f"{each.used} of {each.pool} {kind}" for kind, each in status.kinds.items())


def duration(seconds: float) -> str:
    """Say a time in two units."""
    whole = max(0, int(seconds))
    for size, unit, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small}"
    return f"{whole} s"


def clock(time_s: float) -> str:
    """Say when something was."""
    today = time.localtime()[:3] == time.localtime(time_s)[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", time.localtime(time_s))


def described(task: TaskView) -> RenderableType:
    """Describe a task in full."""
    from bftrain.cli.output import table

    nodes = f"{task.size}: {' '.join(task.nodes)}" if task.nodes else "none"
    speeds = "  ".join(f"{size}: {rate:,.0f}/s" for size, rate in task.speeds.items())
    costs = "  ".join(f"{change}: {cost:.2f} s" for change, cost in task.costs.items())
    rows = [
        ("number", f"#{task.number}"),
        ("state", task.state),
        ("of", task.user),
        ("nodes", nodes),
        ("may have", f"{task.min_nodes} to {task.max_nodes}"),
        ("runs", " ".join(task.argv)),
        ("launcher", task.launcher),
        ("folder", task.folder),
        ("submitted", clock(task.submitted_s)),
        ("started", "" if task.started_s is None else clock(task.started_s)),
        ("ended", "" if task.ended_s is None else clock(task.ended_s)),
        ("done", f"{done(task)} ({task.samples:,.0f} samples, {task.step:,} steps)"),
        ("in memory", f"up to step {task.in_memory_step:,}" if task.in_memory_step else ""),
        ("on disk", f"up to step {task.committed_step:,}" if task.committed_step else ""),
        ("loss", "" if task.loss is None else f"{task.loss:.6g}"),
        ("speed", f"{task.speed:,.0f} samples/s" if task.speed else ""),
        ("measured", speeds),
        ("costs", costs),
        ("node-hours", f"{task.node_s / 3600:.3f}"),
        ("sizes changed", f"{task.rescales} times as decided, {task.preemptions} by preemption"),
        ("failures", str(task.failures) if task.failures else ""),
        ("reason", task.reason),
    ]
    return table(f"task {task.name}", ("", ""), [one for one in rows if one[1]], left=(0, 1))
