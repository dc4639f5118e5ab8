"""``bftrain compare``: the same figures of several replays side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain import text_formats
from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain_replay.commands.side_by_side import FigureRow, SideBySide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from bftrain_replay.comparing.comparison import Comparison

_TWO: Final = 2
_folder = click.Path(path_type=Path, exists=True, file_okay=False)
_file = click.Path(path_type=Path, dir_okay=False)


@click.command(
    cls=DocumentedCommand,
    example="bftrain compare exact/ greedy/\n"
    "bftrain compare exact/ greedy/ --label exact --label greedy -o compare.html",
    epilog="* marks the best value of a row. Replays of different logs, or of different parts of a log, are rejected: "
    "their figures do not show which settings are better. docs/how-to/sweeps.md explains the rows.",
)
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True, type=_folder)
@click.option("-o", "--output", "page", metavar="FILE.html", type=_file, help="Also write a page with charts.")
@click.option("--static", is_flag=True, help="Draw the charts into the page: no zoom, but no JavaScript.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME", help="Name of a replay; one for each DIR, in the same order."
)
@click.option("--difference", is_flag=True, help="Show differences from the first replay instead of values.")
@click.option("--force", is_flag=True, help="Compare replays of different logs anyway.")
@prints_results
def command(
    folders: tuple[Path, ...],
    page: Path | None,
    static: bool,  # noqa: FBT001 - click's way
    labels: tuple[str, ...],
    difference: bool,  # noqa: FBT001 - click's way
    force: bool,  # noqa: FBT001 - click's way
    out: Output,
) -> None:
    """Compare the figures of replays: each DIR is a result of bftrain replay."""
    from bftrain_replay.comparing.comparison import compare

    found = compare(*folders, labels=labels, force=force)
    if page is not None:
        found.write(page, static=static)
    for note in (*([f"compared because of --force: {found.forced}"] if found.forced else ()), *found.notes):
        out.warn(note)
    data = {**found.to_dict(), "page": str(page) if page else None} if out.json else None
    out.result(data, lambda: _words(found, difference=difference))
    if page is not None:
        out.say(f"page: {page}")


def _words(found: Comparison, *, difference: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from bftrain.node_units import words_of

    words = words_of(found.unit)
    change = "change" if len(found.sides) == _TWO and not difference else ""
    groups = []
    for group in found.groups:
        rows = []
        for figure in group.figures:
            texts = figure.texts
            if difference:
                texts = (texts[0], *(figure.change(place) for place in range(1, len(texts))))
            label, more = words(figure.short or figure.label), figure.change(1) if change else ""
            rows.append(FigureRow(label, list(map(words, texts)), figure.best, more))
        groups.append((words(group.title), rows))
    differences = [
        FigureRow(name.removeprefix("settings."), list(map(text_formats.setting, values)))
        for name, values in found.settings.differs.items()
    ]
    return Group(
        *([Text(f"Compared because of --force, though {found.forced}\n")] if found.forced else []),
        SideBySide("", found.labels, groups, change),
        SideBySide("Different settings and inputs", found.labels, [("", differences)])
        if differences
        else Text("Settings and inputs are equal.\n"),
        table("Equal in all replays", ("", ""), _same(found), left=(0, 1)),
    )


def _same(found: Comparison) -> Iterator[tuple[str, str]]:
    from bftrain_replay.comparing.compared_run import usual_settings

    same = found.settings.same
    for name in ("log", "tasks"):
        if name in same:
            yield name, str(same[name])
    if same.get("baseline"):
        yield "baseline", same["baseline"]
    usual = usual_settings(found.sides[0])
    settings = {name.removeprefix("settings."): value for name, value in same.items() if name.startswith("settings.")}
    set_so = [f"{name} = {text_formats.setting(value)}" for name, value in settings.items() if value != usual.get(name)]
    differing = any(name.startswith("settings.") for name in found.settings.differs)
    rest = f"{'the other' if differing or set_so else 'all'} settings as by default"
    yield "settings", "; ".join([*set_so, rest])
    start = "versions."
    versions = [f"{name.removeprefix(start)} {value}" for name, value in same.items() if name.startswith(start)]
    if versions:
        yield "versions", ", ".join(versions)
