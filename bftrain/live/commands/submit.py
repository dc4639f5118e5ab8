"""``bftrain submit``: hand a task to a live run."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import fields

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import with_options
from bftrain.errors import BadInput, UsageError
from bftrain.live.commands.connection import Live, talks
from bftrain.live.model.schemas import Submission
from bftrain.live.model.task_record import described

_NAMED_OTHERWISE: Final = frozenset({"name", "launcher", "min_nodes", "max_nodes", "work_samples", "deadline_s"})


def task_options() -> dict[str, tuple[type, str]]:
    """Return an option for every number and text that a submission says of its task."""
    options: dict[str, tuple[type, str]] = {}
    for field in fields(Submission):
        kind = type(field.default)
        if kind in {int, float, str} and field.name not in _NAMED_OTHERWISE:
            default = f" [{field.default:g}]" if kind is not str else ""
            options[field.name] = (kind, f"{described(Submission, field.name).removesuffix('.')}{default}.")
    return options


class MomentOption(click.ParamType[datetime]):
    """A time on the calendar, as ISO 8601 writes it."""

    name = "TIME"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        try:
            return value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"'{value}' is not a time, such as 2030-01-31T18:00", param, ctx)


@click.command(
    cls=DocumentedCommand,
    example="bftrain submit cnn.py --nodes 1:8 --work 5e7 -- --epochs 90",
    epilog="WHAT is a task file (.toml, see docs/live.md), a script that ends in .py, or for --launcher process any "
    "command. What follows -- goes to the script.",
)
@click.argument("what", metavar="WHAT")
@click.argument("words", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@heading("Task")
@click.option("--nodes", metavar="MIN:MAX", help="Fewest and most nodes it may have.")
@click.option("--name", help="What to call it [after the script].")
@click.option("--launcher", help="native, horovod, process, torchrun, ... [the site's].")
@click.option("--work", "work_samples", type=float, metavar="SAMPLES", help="Its whole work, to know how far it is.")
@click.option("--folder", type=click.Path(path_type=Path), help="For commits and logs; goes on from them [a new one].")
@click.option("--cwd", type=click.Path(path_type=Path), help="Where it runs [here].")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="For its environment; without VALUE as it is here.")
@heading("When it is over")
@click.option("--finish-code", type=int, metavar="N", help="The exit code by which it says that all its work is done.")
@click.option(
    "--finish-file",
    metavar="PATH",
    help="The file that says so, if it is there when it exits with 0; from its folder if relative.",
)
@click.option(
    "--stall-limit",
    "stall_limit_s",
    type=float,
    metavar="SECONDS",
    help="Without a step for so long it gives its nodes back; 0: never [the site's].",
)
@heading("For decisions")
@click.option("--deadline", type=MomentOption(), help="When it should be done [never].")
@with_options(task_options())
@talks
@prints_results
def command(
    what: str,
    words: tuple[str, ...],
    *,
    nodes: str | None,
    folder: Path | None,
    cwd: Path | None,
    env: tuple[str, ...],
    live: Live,
    out: Output,
    **given: Any,  # noqa: ANN401 - the other options
) -> None:
    """Hand WHAT to a live run, which trains it on idle nodes."""
    options = {name: value for name, value in given.items() if value is not None}
    if folder is not None:
        options["folder"] = str(folder.absolute())
    if cwd is not None:
        options["cwd"] = str(cwd.absolute())
    if nodes is not None:
        options["nodes"] = nodes
    if env:
        options["env"] = dict(map(_variable, env))
    submissions = _submissions(what, words, options)
    with live.call() as client:
        tasks = [client.submit(one) for one in submissions]
    out.result(tasks, lambda: "\n".join(f"{task.name}: submitted as #{task.number}" for task in tasks))


def _submissions(what: str, words: tuple[str, ...], options: dict[str, Any]) -> list[Submission]:
    from bftrain.live.commands import task_file

    if what.endswith(".toml"):
        records = task_file.records_of(Path(what))
        if words and len(records) != 1:
            raise UsageError(f"'{what}' holds {len(records)} tasks, and arguments are for one", where="--")
        if "name" in options and len(records) != 1:
            raise UsageError(f"'{what}' holds {len(records)} tasks, and a name is for one", where="--name")
        for _, record in records:
            record.update(options)
            record["args"] = [*record.get("args", []), *words]
        return [task_file.submission_of(record, where, Path(what).absolute().parent) for where, record in records]
    record = {"script" if what.endswith(".py") else "command": what, "args": list(words), **options}
    if what.endswith(".py") and not Path(what).is_file():
        raise BadInput("there is no such file", where=what)
    return [task_file.submission_of(record, "bftrain submit", Path.cwd())]


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given:
        if name not in os.environ:
            raise UsageError(f"'{name}' is not set here", where="--env", fix=f"--env {name}=VALUE")
        value = os.environ[name]
    return name, value
