"""All commands, each with a call; a test finds commands that are not in the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from bftrain import ReplaySettings, generate_log, generate_mix, replay, save_log, save_tasks
from bftrain.cli.main import main
from tests.helpers.samples import SAMPLES

ROOT: Final = Path(__file__).parents[2]
PICKLES: Final = ROOT / "tests" / "unit" / "datasets" / "pickles"
SCRIPT: Final = """
import time
from bftrain_elastic import report
for step in range(5):
    time.sleep(0.01)
    report(samples=1, loss=1.0)
"""
LONG: Final = "a-folder-whose-name-is-longer-than-most-screens-are-wide-" * 3


@dataclass(frozen=True, slots=True)
class Call:
    """How a command is called: its words in the prepared folder, with which code it ends, and what it prints.

    ``lines``: with ``--json`` it prints JSON lines, any number of them, and not one value. A call that takes ``long``
    is made where time is no matter. One that cannot end well here, for no live run answers, prints ``nothing``; tests
    of its own make it where one does.
    """

    words: str
    code: int = 0
    lines: bool = False
    long: bool = False
    nothing: bool = False


# {} is the folder, whose name is long, so that broken lines and names are found
CALLS: Final[dict[str, Call]] = {
    "demo": Call("-o {}/demo", long=True),
    "doctor": Call(""),
    "import": Call("{}/jobs.sacct -o {}/imported.npz"),
    "generate log": Call("-o {}/generated.npz --nodes 8 --days 0.1"),
    "generate tasks": Call("-o {}/generated.toml --count 3"),
    "generate from-trace": Call("{}/bounds.pkl {}/speeds.pkl -o {}/imported.toml"),
    "generate profiles": Call(""),
    "inspect": Call("{}/log.npz"),
    "slice": Call("{}/log.npz -o {}/part.npz --nodes 0:2"),
    "schedule": Call("{}/jobs.swf -o {}/scheduled --overwrite --nodes 4"),
    "assess": Call("{}/log.npz -o {}/assessed --overwrite --quick"),
    "replay": Call("{}/log.npz --tasks {}/tasks.toml -o {}/replayed --overwrite"),
    "rounds": Call("--cluster 8 --tasks {}/tasks.toml --gang min -o {}/rounds --overwrite"),
    "explain": Call("rho --of {}/one"),
    "compare": Call("{}/one {}/two -o {}/compared.html"),
    "report": Call("{}/one -o {}/report.html"),
    "sweep": Call("{}/sweep.toml -o {}/swept --jobs 1", long=True),
    "reproduce": Call(""),
    "solve": Call("{}/problem.json --solver all"),
    "decide": Call("{}/events.jsonl", lines=True),
    "train": Call("{}/script.py --launcher process --nodes 1:1", long=True),
    "check": Call("{}/script.py --launcher process --steps 2 --patience 2", code=3, long=True),
    "live": Call("--config {}/tasks.toml", code=3, nothing=True),
    "live check": Call("--config {}/tasks.toml", code=3, nothing=True),
    "live pause": Call("--live {}/none", code=4, nothing=True),
    "live resume": Call("--live {}/none", code=4, nothing=True),
    "submit": Call("--live {}/none --nodes 1:2 {}/script.py", code=4, nothing=True),
    "status": Call("--live {}/none", code=4, nothing=True),
    "task usage": Call("--live {}/none", code=4, nothing=True),
    "agent": Call("--manager 127.0.0.1:1 --secret {}/none", code=3, nothing=True),
    "live page": Call("--live {}/none", code=4, nothing=True),
    "logs": Call("--live {}/none a", code=4, nothing=True, lines=True),
    "task cancel": Call("--live {}/none a", code=4, nothing=True),
    "task pause": Call("--live {}/none a", code=4, nothing=True),
    "task resume": Call("--live {}/none a", code=4, nothing=True),
    "live drain": Call("--live {}/none a", code=4, nothing=True),
    "journal show": Call("{}/journal.db", lines=True),
    "journal plan": Call("{}/journal.db"),
    "journal verify": Call("{}/journal.db"),
    "journal replay": Call("{}/journal.db"),
    "journal export": Call("{}/journal.db -o {}/recorded.npz --tasks {}/recorded.toml"),
}
SHORT: Final = {name: call for name, call in CALLS.items() if not call.long}


def every_command(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command there is and the words that call it, a group before its commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


def context_of(command: click.Command) -> click.Context:
    """Return a context as the program makes it: click keeps the help option of a command's first context."""
    return click.Context(command, parent=click.Context(main, **main.context_settings))


def commands_that_do_something() -> dict[str, click.Command]:
    """Return every command that is not only a group of others, by the words that call it."""
    return {" ".join(path): command for path, command in every_command() if not only_a_group(command)}


def only_a_group(command: click.Command) -> bool:
    """Return whether a command is only a group of subcommands."""
    return isinstance(command, click.Group) and not hasattr(command, "example")


def words_of(name: str, folder: Path, *more: str) -> list[str]:
    """Return the words to type; what stands after -- is the call's own."""
    return [*name.split(), *(word.replace("{}", str(folder)) for word in CALLS[name].words.split()), *more]


def prepare(folder: Path) -> None:
    """Put everything there that calls need, but a journal, which a command makes."""
    log, tasks = generate_log(8, 0.1, 1), generate_mix(3, 1)
    save_log(log, folder / "log.npz")
    save_tasks(tasks, folder / "tasks.toml")
    for name, solver in (("one", "exact"), ("two", "greedy")):
        replay(log, tasks, ReplaySettings(solver=solver)).write(folder / name)
    (folder / "jobs.sacct").write_bytes(SAMPLES["sacct"][0])
    (folder / "jobs.swf").write_bytes(SAMPLES["swf"][0])
    for name in ("bounds", "speeds"):
        (folder / f"{name}.pkl").write_bytes(min(PICKLES.glob(f"*-{name}.pkl")).read_bytes())
    grid = f'log = "{folder}/log.npz"\ntasks = "{folder}/tasks.toml"\n[grid]\nmax_tasks = [1, 2]\n'
    (folder / "sweep.toml").write_text(grid, encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "problem.json").write_bytes((ROOT / "examples/problems/quickstart.json").read_bytes())
    (folder / "events.jsonl").write_bytes((ROOT / "examples/events.jsonl").read_bytes())
