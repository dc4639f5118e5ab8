"""``bftrain top``: a live run as a screen that keeps itself up to date."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.interruption import interruption
from bftrain.cli.output import LITERAL, Output, prints_results
from bftrain.errors import BftrainError
from bftrain.live.commands.connection import Live, talks

if TYPE_CHECKING:
    from rich.console import Console

    from bftrain.live.client.client import Client
    from bftrain.live.commands.keyboard import Keyboard

_SPANS: Final = {"1": 600.0, "2": 3600.0, "3": 86400.0, "4": 864000.0}
_ENDS: Final = "q ends   1 ten minutes  2 an hour  3 a day  4 ten days"
_ENDING: Final = frozenset({"q", "Q", "\x1b", "\x04"})
_PATIENCE_S: Final = 0.5  # in which Ctrl-C and a new size of the terminal are noticed
_PIPE_WIDTH: Final = 100


@click.command(
    cls=DocumentedCommand,
    example="bftrain top",
    epilog="q or Ctrl-C end it. In a pipe it prints once what there is to see.",
)
@click.option("--once", is_flag=True, help="Print once what there is to see, and end.")
@talks
@prints_results
def command(live: Live, out: Output, *, once: bool) -> None:
    """Watch a live run: nodes, tasks with their sizes over time, speed, and what happens."""
    with live.call() as client:
        if out.json or once or not _can_be_drawn_on():
            _once(client, out)
            return
        from rich.console import Console

        from bftrain.live.commands.keyboard import Keyboard, keyboard_of_ours

        with Keyboard(keyboard_of_ours()) as keyboard:
            watch(client, Console(**LITERAL), keyboard)


def _can_be_drawn_on() -> bool:
    """Say whether we write to a terminal that can do more than print one line after the other."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in {"", "dumb", "unknown"}


def _once(client: Client, out: Output) -> None:
    """Print one snapshot."""
    update = next(client.updates(most=1))

    def words() -> Any:  # noqa: ANN401 - what rich can render
        from bftrain.live.client.stream_client import LiveView
        from bftrain.live.commands.top_screen import TopView

        return TopView(LiveView(update), width=None if sys.stdout.isatty() else _PIPE_WIDTH)

    out.result(update, words)


def watch(client: Client, console: Console, keyboard: Keyboard) -> None:
    """Show a live run until the user ends it."""
    from rich.live import Live as Screen

    from bftrain.live.client.stream_client import StreamClient

    span = "1"
    follower = StreamClient(client, _SPANS[span], keyboard.wake)
    try:
        with interruption() as interrupted, Screen(console=console, screen=True, auto_refresh=False) as screen:
            drawn: object = None
            while not interrupted():
                now = (follower, follower.changes, console.size)
                if now != drawn:
                    drawn = now
                    follower.look(lambda scene, lost: _draw(screen, console, scene, lost))
                for key in _letters(keyboard.wait(_PATIENCE_S)):
                    if key in _ENDING:
                        return
                    if key in _SPANS and key != span:
                        with suppress(BftrainError):  # without contact, what is shown stays
                            other = StreamClient(client, _SPANS[key], keyboard.wake)
                            follower.end()
                            span, follower = key, other
                if keyboard.suspended:
                    screen.stop()
                    keyboard.suspend()
                    screen.start()
                    drawn = None
    finally:
        follower.end()


def _letters(pressed: str) -> str:
    """Give the letters among what was pressed: an arrow, say, begins like Escape and is none."""
    return "" if pressed.startswith("\x1b") and len(pressed) > 1 else pressed


def _draw(screen: Any, console: Console, scene: Any, lost: tuple[float, str] | None) -> None:  # noqa: ANN401 - imported late
    from bftrain.live.commands.top_screen import TopView

    screen.update(TopView(scene, lost, height=console.size.height, ends_with=_ENDS), refresh=True)
