"""``bftrain submit``: submit a task to a live run.

A replay reads the same task files: docs/reference/formats.md lists the keys.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct
from msgspec.structs import fields

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import Output
from bftrain.cli.settings import DurationType, TimeType, with_options
from bftrain.errors import BadInput, BftrainError, Interrupted, NotAvailable, PartlyFailed, UsageError
from bftrain.live.commands.tasks import OVER, talks
from bftrain.live.commands.trace import play
from bftrain.live.model.schemas import Submission
from bftrain.taskfiles.files import toml_records
from bftrain.taskfiles.records import ON_THE_CALENDAR, batch_of, check_keys, profile, sizes_of, spread_of
from bftrain.values import wire
from bftrain.values.checks import repeated
from bftrain.values.curve import SpeedCurve
from bftrain.values.job import Run, described

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bftrain.live.client import Client
    from bftrain.live.model.schemas import TaskView

_ASK_S: Final = 1.0
_CURVE_POINT: Final = re.compile(r"\d{1,9}:\d+(\.\d*)?([eE]\d{1,2})?")
_NAMED_OTHERWISE: Final = frozenset({"name", "launcher", "min_nodes", "max_nodes", "work_samples", "deadline_s"})


def task_options() -> dict[str, tuple[Any, str]]:
    """Return a command-line option for each number and text of a submitted task."""
    options: dict[str, tuple[Any, str]] = {}
    for field in fields(Submission):
        kind = type(field.default)
        if kind in {int, float, str} and field.name not in _NAMED_OTHERWISE:
            default = f" [{field.default:g}]" if kind is not str else ""
            type_ = DurationType() if field.name.endswith("_s") else kind
            options[field.name] = (type_, f"{described(Submission, field.name).removesuffix('.')}{default}.")
    return options


def _words(_context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Split an option into words like a shell."""
    try:
        return None if value is None else shlex.split(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _names(_context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Split an option at commas."""
    names = None if value is None else [name.strip() for name in value.split(",")]
    if names is not None and not all(names):
        raise click.BadParameter("contains an empty name", param=parameter)
    return names


def _lines(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    return list(value) or None


@click.command(
    cls=DocumentedCommand,
    example="bftrain submit cnn.py --nodes 1:8 --work 5e7 -- --steps 5000\nbftrain submit tasks.toml --wait",
    epilog="WHAT is a task file (.toml, see docs/how-to/live.md), a script with suffix .py, or for --launcher process "
    "any command. Arguments after -- are passed to the script. --set takes the keys of a task file: "
    "docs/reference/formats.md.",
)
@rare(
    *("cwd", "env", "environment", "setup", "prefix", "python", "finish_code", "finish_file", "stall_limit_s"),
    *("grow_cost_s", "shrink_cost_s", "start_cost_s", "campaign", "curve"),
)
@click.argument("what", metavar="WHAT")
@click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@heading("Task")
@click.option("--nodes", metavar="MIN:MAX", help="Minimum and maximum number of nodes; not for a task file. [required]")
@click.option("--name", help="Task name [derived from the script].")
@click.option("--launcher", help="native, horovod, process, ... [the site's].")
@click.option("--work", "work_samples", type=float, metavar="SAMPLES", help="Total work, for progress and objectives.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Folder of commits and logs; continues commits in it [new]."
)
@click.option("--cwd", type=click.Path(path_type=Path))
@click.option("--env", multiple=True, metavar="NAME[=VALUE]")
@click.option("--environment", metavar="NAME")
@click.option("--setup", multiple=True, callback=_lines, metavar="LINE")
@click.option("--prefix", callback=_words, metavar="WORDS")
@click.option("--python", metavar="PATH")
@heading("Several tasks")
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=V,V",
    help="Submit a task for each combination: a value replaces {NAME} in ARGS, or is added as --NAME V.",
)
@click.option(
    "--trace", is_flag=True, help="Submit a task file's tasks at their times, as programs that only count samples."
)
@click.option("--time-scale", type=click.FloatRange(min=0.001), metavar="N", help="With --trace: N times as fast. [1]")
@click.option("--wait", is_flag=True, help="Wait until all tasks have finished; exit with 1 unless all succeeded.")
@click.option("--finish-code", type=int, metavar="N")
@click.option("--finish-file", metavar="PATH")
@click.option("--stall-limit", "stall_limit_s", type=DurationType())
@heading("For decisions")
@click.option(
    "--curve",
    "speeds",
    multiple=True,
    metavar="[KIND=]N:V,N:V",
    help="Samples/s by nodes, such as 1:100,2:190; once per node kind [measured].",
)
@click.option("--kinds", callback=_names, metavar="KIND,KIND", help="Node kinds it can use, all equally fast [any].")
@click.option("--deadline", type=TimeType(), help="Deadline [none].")
@with_options(task_options())
@talks
def command(
    what: str,
    words: tuple[str, ...],
    *,
    folder: Path | None,
    cwd: Path | None,
    env: tuple[str, ...],
    client: Client,
    out: Output,
    **given: Any,  # noqa: ANN401 - the other options
) -> None:
    """Submit WHAT to a live run, which trains it on idle nodes."""
    wait, grid = given.pop("wait"), _grid(given.pop("grid"))
    trace, scale = given.pop("trace"), given.pop("time_scale")
    options = _read_curves(given.pop("speeds"))
    options |= {name: value for name, value in given.items() if value is not None}
    options |= {name: str(path.absolute()) for name, path in (("folder", folder), ("cwd", cwd)) if path is not None}
    options |= {"env": _environment(env)} if env else {}
    if scale is not None and not trace:
        raise UsageError("is for a trace only", where="--time-scale", fix="add --trace, or omit it")
    if trace and (options or words or grid != [{}]):
        raise UsageError("tasks of a trace take no further options", where="--trace", fix="change its file")
    if trace:
        tasks = list(_printed(play(Path(what), scale or 1.0, client), out))
    else:
        tasks = _submit_all(_distinct(_submissions(what, words, options, grid), grid), client, out)
        tasks = list(_printed(tasks, out)) if wait else tasks
    if not wait:
        out.result(tasks, lambda: "" if trace else "\n".join(map(_submitted, tasks)))
        return
    ended = wait_for([task.number for task in tasks], client)
    out.result(ended, lambda: "\n".join(f"{task.name}: {task.state}" for task in ended))
    if wrong := sum(task.state != "done" for task in ended):
        raise PartlyFailed(f"{wrong} of {len(ended)} tasks are not done")


def _printed(tasks: Iterable[TaskView], out: Output) -> Iterator[TaskView]:
    """Print each task when it has been submitted."""
    for task in tasks:
        out.say(_submitted(task))
        yield task


def _distinct(submissions: list[Submission], grid: Sequence[Mapping[str, str]]) -> list[Submission]:
    if (twice := repeated([one.name for one in submissions])) and grid != [{}]:
        fix = "choose values that differ in their first letters and digits"
        raise UsageError(f"two tasks would be called '{twice}'", where="--grid", fix=fix)
    return submissions


def _environment(given: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"'{name}' is not set here", where="--set env", fix=f"--set env={name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def _submitted(task: TaskView) -> str:
    return f"{task.name}: submitted as #{task.number}"


def _submit_all(submissions: Sequence[Submission], client: Client, out: Output) -> list[TaskView]:
    tasks: list[TaskView] = []
    try:
        tasks.extend(client.submit(one) for one in submissions)
    except BftrainError:
        if tasks:
            out.warn(f"{len(tasks)} of {len(submissions)} tasks were submitted: the last is '{tasks[-1].name}'")
        raise
    return tasks


def wait_for(numbers: Sequence[int], client: Client) -> list[TaskView]:
    """Wait until tasks have finished, across restarts of the daemon."""
    ended: dict[int, TaskView] = {}
    try:
        while left := [number for number in numbers if number not in ended]:
            with suppress(NotAvailable):
                for number in left:
                    task = client.task(f"#{number}")
                    if task.state in OVER:
                        ended[number] = task
            if len(ended) < len(numbers):
                time.sleep(_ASK_S)
    except KeyboardInterrupt as error:
        raise Interrupted("no longer waiting; the tasks continue") from error
    return [ended[number] for number in numbers]


def _submissions(
    what: str, words: tuple[str, ...], options: dict[str, Any], grid: Sequence[Mapping[str, str]]
) -> list[Submission]:
    if what.endswith(".toml"):
        records = list(toml_records(Path(what)))
        if not records:
            raise BadInput("contains no task", where=what, fix="describe tasks as docs/reference/formats.md shows")
        if words and len(records) != 1:
            raise UsageError(f"'{what}' contains {len(records)} tasks, and arguments need exactly one", where="--")
        if "name" in options and len(records) != 1:
            raise UsageError(f"'{what}' contains {len(records)} tasks, and a name needs exactly one", where="--name")
        for _, record in records:
            record.update(options)
            record["args"] = [*record.get("args", []), *words]
        base = Path(what).absolute().parent
        return [submission_of(_varied(one, at), where, base) for where, one in records for at in grid]
    sizes_of(options, "--nodes")  # names the option if it is invalid
    record = {"script" if what.endswith(".py") else "command": what, "args": list(words), **options}
    if what.endswith(".py") and not Path(what).is_file():
        raise BadInput("there is no such file", where=what)
    return [submission_of(_varied(record, at), "bftrain submit", Path.cwd()) for at in grid]


def _grid(given: Sequence[str]) -> list[dict[str, str]]:
    """Return the parameters of each task: all combinations, the last parameter changes fastest."""
    axes: dict[str, list[str]] = {}
    for text in given:
        name, _, values = text.partition("=")
        if name in axes:
            raise UsageError(f"'{name}' is given twice", where="--grid", fix=f"such as {name}=0.1,0.01")
        axes[name] = values.split(",")
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name) or not all(axes[name]):
            raise UsageError(f"'{text}' is not NAME=VALUE,VALUE", where="--grid", fix="such as lr=0.1,0.01")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _varied(record: dict[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of one task of a grid; its name and its part of a given folder get the parameters as suffix."""
    if not parameters:
        return record
    base = str(record.get("name") or Path(str(record.get("script") or record.get("command"))).stem)
    name = re.sub(r"[^\w.-]", "-", "-".join((base, *map("".join, parameters.items()))), flags=re.ASCII).lstrip("._-")[
        :100
    ]
    args = list(record["args"])
    for key, value in parameters.items():
        filled = [word.replace(f"{{{key}}}", value) for word in args]
        args = filled if filled != args else [*args, f"--{key}", value]
    folder = {"folder": f"{record['folder']}/{name}"} if "folder" in record else {}
    return {"campaign": base, **record, "name": name, "args": args, **folder}


_RUN_FIELDS: Final = tuple(field.name for field in fields(Run))
_TASK_FIELDS: Final = tuple(field.name for field in fields(Submission) if field.name not in {"run", "deadline_s"})


class _Speeds(Struct):
    curve: SpeedCurve | None = None
    curves: dict[str, SpeedCurve] = {}


def submission_of(record: dict[str, Any], where: str, base: Path) -> Submission:
    """Build the request for one record; relative paths are relative to ``base``.

    A live run ignores ``user``, as a task belongs to its sender, and submits at once; ``deadline_s`` counts from
    ``submit_s``.
    """
    check_keys(record, where)
    given: dict[str, Any] = {key: record[key] for key in _TASK_FIELDS if key in record} | sizes_of(record, where)
    given |= _deadline(record, where)
    given = {**_measured(record, where), **given}
    run: dict[str, Any] = {key: record[key] for key in _RUN_FIELDS if key in record}
    run["cwd"] = str((base / run.get("cwd", ".")).resolve())
    if "folder" in run:
        run["folder"] = str((base / run["folder"]).resolve())
    run |= _python(run, base)
    run["argv"] = _argv(record, where, base)
    if "batch" in given:
        given["batch"] = batch_of(given["batch"], where)
    if "spread" in given:
        given["spread"] = spread_of(given["spread"], where)
    if "max_nodes" not in given:  # the largest size that was measured, as in a replay
        speeds = wire.convert(given, _Speeds, where=where)
        curves = [*speeds.curves.values(), *([] if speeds.curves or speeds.curve is None else [speeds.curve])]
        if not curves:
            raise BadInput("the number of nodes is missing", where=where, fix="such as --nodes 1:8")
        given["max_nodes"] = max(curve.last_measured for curve in curves)
    return wire.convert({"run": run, **given}, Submission, where=where)


def _measured(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Return speeds and costs of the task's profile."""
    if "profile" not in record:
        return {}
    if "curve" in record:
        raise BadInput("profile and curve are both given", where=where, fix="omit one of them")
    found = profile(str(record["profile"]), where=f"{where}: profile")
    costs = {"grow_cost_s": found.grow_cost_s, "shrink_cost_s": found.shrink_cost_s}
    costs |= {} if found.start_cost_s is None else {"start_cost_s": found.start_cost_s}
    return {**costs, "curve": wire.plain(found.curve)}


def _python(run: dict[str, Any], base: Path) -> dict[str, str]:
    """Return the path of a Python; links are kept: a venv's link leads to a Python without the venv's packages."""
    path = str(run.get("python", ""))
    return {"python": os.path.abspath(base / path)} if "/" in path else {}  # noqa: PTH100 - as above


def _argv(record: dict[str, Any], where: str, base: Path) -> list[str]:
    args = record.get("args", [])
    if ("script" in record) == ("command" in record):
        raise BadInput("give either script or command", where=where, fix='such as script = "cnn.py"')
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise BadInput("args: must be a list of texts", where=where, fix='such as args = ["--steps", "500"]')
    if "command" in record:
        return [str(record["command"]), *args]
    script = (base / str(record["script"])).resolve()
    if not script.is_file():
        raise BadInput(f"script: there is no file {script}", where=where)
    return [str(script), *args]


def _deadline(record: dict[str, Any], where: str) -> dict[str, float]:
    """Read ``deadline``, a calendar time, or ``deadline_s``, which is relative like ``submit_s``."""
    given = record.get(ON_THE_CALENDAR, record.get("deadline_s"))
    if given is None:
        return {}
    if ON_THE_CALENDAR in record and "deadline_s" in record:
        raise BadInput("deadline and deadline_s are both given", where=where, fix="omit one of them")
    if isinstance(given, datetime) and ON_THE_CALENDAR in record:
        return {"deadline_s": given.timestamp()}
    if not isinstance(given, int | float) or isinstance(given, bool):
        fix = "such as deadline = 2030-01-31T18:00:00, or deadline_s = 7200.0"
        raise BadInput("deadline: must be a time, or seconds", where=where, fix=fix)
    if ON_THE_CALENDAR in record:
        return {"deadline_s": float(given)}
    submit_s = record.get("submit_s", 0.0)
    if not isinstance(submit_s, int | float) or isinstance(submit_s, bool):
        raise BadInput("submit_s: must be a number", where=where)
    return {"deadline_s": time.time() + given - submit_s}


def _read_curves(texts: Sequence[str]) -> dict[str, Any]:
    """Read speeds by size, ``1:100,2:190``, or by kind of node, ``v100=1:310,4:1160``, as keys of a task."""
    curves: dict[str, dict[str, list[float]]] = {}
    for text in texts:
        kind, equals, points = text.rpartition("=")
        matches = [_CURVE_POINT.fullmatch(point) for point in points.split(",")]
        if bool(kind) != bool(equals) or kind in curves or (curves and "" in (kind, *curves)) or None in matches:
            fix = "such as 1:100,2:190, or for each kind v100=1:310,4:1160"
            raise UsageError(f"'{text}' is not NODES:SAMPLES_PER_SECOND,...", where="--curve", fix=fix)
        pairs = [point.split(":") for point in points.split(",")]
        curves[kind] = {"nodes": [int(nodes) for nodes, _ in pairs], "rate": [float(rate) for _, rate in pairs]}
    if not curves:
        return {}
    return {"curve": curves[""]} if "" in curves else {"curves": curves}
