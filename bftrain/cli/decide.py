"""``bftrain decide``: the decision core as a filter, for any scheduler that can print JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import decides, name_of, settings_of_kind
from bftrain.errors import BadInput
from bftrain.text_formats import counted

if TYPE_CHECKING:
    from bftrain.deciding.harvester import Harvester
    from bftrain.journal import Journal
    from bftrain.values.actions import Action
    from bftrain.values.events import Event


_DESCRIBED: Final = "docs/reference/programs.md lists all events and their fields"


@click.command(
    cls=DocumentedCommand,
    example="bftrain decide events.jsonl --journal journal.db --objective max-min\n"
    "bftrain decide events.jsonl --config config.toml",
    epilog='A line is one event, such as {"event": "nodes_joined", "time_s": 0, "nodes": ["n1", "n2"]}, or a list of '
    "simultaneous events that lead to one decision. docs/reference/programs.md lists all events and actions.",
)
@click.argument("events", type=click.File("rb", lazy=True), default="-")
@click.option(
    "--journal",
    "journal_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record events and decisions in this file; if it exists, continue at its end.",
)
@decides
@prints_results
def command(events: IO[bytes], journal_path: Path | None, config: Path | None, out: Output, **given: Any) -> None:  # noqa: ANN401 - the settings' own types
    """Read EVENTS (JSON lines; "-" is stdin), decide at each, and write the actions as JSON lines."""
    from msgspec.structs import replace

    from bftrain.assembly import build_harvester
    from bftrain.config import REPLAY, Settings, read_toml
    from bftrain.registry import note_on_name

    settings = settings_of_kind(config, given, Settings)
    if config is not None and REPLAY in read_toml(config):
        out.say(f"{config}: [{REPLAY}] is ignored: it is for replays only")
    if renamed := note_on_name("objective", settings.objective):
        out.warn(renamed)
    if journal_path is None:
        _process_lines(build_harvester(settings), None, events, out)
        return
    from bftrain.journal import Journal
    from bftrain.parts import absolute_admission, absolute_name
    from bftrain.rerun import restore

    # A journal may be read later from another folder
    settings = replace(
        settings, objective=absolute_name(settings.objective), admission=absolute_admission(settings.admission)
    )
    if not journal_path.exists():
        harvester = build_harvester(settings)  # Settings are checked before the journal is created
        with Journal.create(journal_path, settings) as journal:
            _process_lines(harvester, journal, events, out)
        return
    with Journal.open(journal_path) as journal:
        journal.require_settings(settings)
        harvester = restore(journal)
        out.say(f"{journal_path}: continuing after {counted(len(journal), 'step')}")
        if journal.cut_off:
            _write_actions(harvester.owed)
            _decide(harvester, journal, out)
        _process_lines(harvester, journal, events, out)


def _process_lines(harvester: Harvester, journal: Journal | None, lines: IO[bytes], out: Output) -> None:
    """Handle lines one by one; events and decisions are on disk before their actions are written."""
    for where, moment in _read_moments(lines):
        try:
            at_once = harvester.absorb(*moment)
        except BadInput as error:
            raise BadInput(error.what, where=f"{where}: {error.where}", fix=error.fix) from error
        if journal is not None:
            journal.append_events(moment)
        _write_actions(at_once)
        _decide(harvester, journal, out)


def _decide(harvester: Harvester, journal: Journal | None, out: Output) -> None:
    decision = harvester.decide(harvester.time_s)
    if journal is not None:
        journal.append_decision(decision)
    _write_actions(decision.actions)
    for note in (*decision.notes, decision.fallback):
        if note:
            out.say(f"note: {note}")


def _write_actions(actions: tuple[Action, ...]) -> None:
    from bftrain.values import wire

    for action in actions:
        click.echo(wire.encode(action))


def _read_moments(lines: IO[bytes]) -> Iterator[tuple[str, tuple[Event, ...]]]:
    from bftrain.values import wire
    from bftrain.values.events import Event

    name = name_of(lines)
    for number, line in enumerate(lines, start=1):
        text, where = line.strip(), f"{name}:{number}"
        if text.startswith(b"["):
            moment = wire.decode(text, tuple[Event, ...], where=where, fix=_DESCRIBED)
            if moment:
                yield where, moment
        elif text:
            yield where, (wire.decode(text, Event, where=where, fix=_DESCRIBED),)
