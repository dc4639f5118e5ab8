"""``bftrain explain``: the meaning of a figure, from the glossary that pages and docs also use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from bftrain_replay.run.summary_figures import GlossaryEntry


def _offered(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from bftrain_replay.run.summary_figures import GLOSSARY

    return [CompletionItem(entry.key, help=entry.meaning) for entry in GLOSSARY if entry.key.startswith(incomplete)]


@click.command(
    cls=DocumentedCommand,
    example="bftrain explain rho U ceiling\nbftrain explain rho --of result/",
    epilog="FIGURE is a name in files, such as rho_over_1, or its label on a page, such as 'efficiency U'.",
)
@click.argument("figures", metavar="[FIGURE]...", nargs=-1, shell_complete=_offered)
@click.option(
    "--of",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Also print their values in this run.",
)
@prints_results
def command(figures: tuple[str, ...], folder: Path | None, out: Output) -> None:
    """Explain each FIGURE, or list all figures: meaning, formula and page."""
    from msgspec import structs

    from bftrain_replay.run.summary_figures import GLOSSARY, find_entry

    entries = [find_entry(name) for name in figures] or list(GLOSSARY)
    values = {entry.key: _values(entry, folder) for entry in entries} if folder is not None else {}
    records = [{**structs.asdict(entry), **({"values": values[entry.key]} if values else {})} for entry in entries]
    out.result(records, lambda: _in_words(entries, values, whole=bool(figures)))


def _values(entry: GlossaryEntry, folder: Path) -> dict[str, str]:
    """Return the values of a figure in the run in a folder, by label."""
    from bftrain_replay.run.summary_figures import FIGURES, entry_of
    from bftrain_replay.saved_run import load_run

    summary = load_run(folder).summary
    known = (figure for figure in FIGURES if entry_of(figure.name) is entry and figure.value_in(summary) is not None)
    return {figure.label: figure.text_in(summary) for figure in known}


def _in_words(entries: list[GlossaryEntry], values: Mapping[str, Mapping[str, str]], *, whole: bool) -> RenderableType:
    if not whole:
        return table("", ("figure", "meaning"), [(entry.key, entry.sentence) for entry in entries], left=(0, 1))
    return "\n\n".join("\n".join(_lines(entry, values.get(entry.key, {}))) for entry in entries)


def _lines(entry: GlossaryEntry, values: Mapping[str, Any]) -> Iterator[str]:
    from bftrain_replay.run.summary_figures import FIGURES, entry_of

    names = [figure.label for figure in FIGURES if entry_of(figure.name) is entry] or list(entry.also)
    yield f"{entry.key}: {'; '.join(names)}" if names else entry.key
    yield f"  {entry.sentence}"
    if entry.formula:
        yield f"  = {entry.formula}"
    yield from (f"  here: {label} {value}" for label, value in values.items())
    yield f"  {entry.page}"
