"""``bftrain logs``: what the workers of a task print."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.errors import Interrupted
from bftrain.live.commands.connection import Live, talks, task_argument

if TYPE_CHECKING:
    from bftrain.live.client.client import Client

_EVERY_S: Final = 0.5
_OVER: Final = frozenset({"done", "failed", "cancelled"})
_LAST_BYTES: Final = 64 * 1024


@click.command(cls=DocumentedCommand, example="bftrain logs resnet --follow --lines 20")
@task_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed until the task is over.")
@click.option("-n", "--lines", default=0, metavar="N", help="Begin with the last N lines of each worker [all].")
@talks
@prints_results
def command(task: str, lines: int, live: Live, out: Output, *, follow: bool) -> None:
    """Print what the workers of TASK printed; each line begins with the node and slot it comes from."""
    with live.call() as client:
        name = f"#{client.task(task).number}"
        reader = _Reader(client, name, lines)
        try:
            while True:
                over = client.task(name).state in _OVER  # asked first: what is printed before it is over is read then
                reader.turn(out)
                if over or not follow:
                    break
                time.sleep(_EVERY_S)
        except KeyboardInterrupt as error:
            raise Interrupted("no longer following; the task goes on") from error
        reader.rest(out)


class _Reader:
    """Reads all log files of a task, line by line, as they grow."""

    def __init__(self, client: Client, task: str, last_lines: int) -> None:
        self._client = client
        self._task = task
        self._last = last_lines
        self._offsets: dict[str, int] = {}
        self._begun: dict[str, bytes] = {}  # lines without an end so far

    def turn(self, out: Output) -> None:
        """Print what is new."""
        for file in self._client.logs(self._task):
            fresh = file.name not in self._offsets
            offset = self._offsets.setdefault(file.name, max(0, file.size - _LAST_BYTES) if self._last else 0)
            lines: list[bytes] = []
            while offset < file.size:
                piece = self._client.log(self._task, file.name, offset)
                if not piece:
                    break
                offset += len(piece)
                *whole, rest = (self._begun.get(file.name, b"") + piece).split(b"\n")
                self._begun[file.name] = rest
                lines += whole
                if not (fresh and self._last):
                    self._print(file.name, lines, out)
                    lines = []
            self._offsets[file.name] = offset
            self._print(file.name, lines[-self._last :] if fresh and self._last else lines, out)

    def rest(self, out: Output) -> None:
        """Print lines that never ended."""
        for name, line in self._begun.items():
            if line:
                self._print(name, [line], out)

    @staticmethod
    def _print(name: str, lines: list[bytes], out: Output) -> None:
        from bftrain.values import wire

        where = name.removesuffix(".log")
        for line in lines:
            text = line.decode(errors="replace")
            click.echo(wire.encode({"worker": where, "line": text}) if out.json else f"{where}: {_harmless(text)}")


def _harmless(text: str) -> str:
    """Leave out what would command the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "\ufffd" for letter in text.rstrip("\r"))
