"""``bftrain report``: a replay as one page, its pictures as files for papers, or a trace for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, rare
from bftrain.cli.output import Output, prints_results
from bftrain.errors import UsageError
from bftrain_datasets.commands.logfiles import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain_replay.drawing.html_page import HtmlPage

_file = click.Path(path_type=Path, dir_okay=False)
_TRACE: Final = ".json"
_SUFFIXES: Final = frozenset({".html", ".htm", _TRACE})


@click.command(
    cls=DocumentedCommand,
    example="bftrain report result/ --svg pictures/\nbftrain report result/ -o trace.json",
    epilog="The page needs no network and no other files. docs/tutorials/reading-the-report.md explains it. "
    "Open a trace in ui.perfetto.dev or chrome://tracing.",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "-o",
    "--output",
    "page",
    metavar="FILE",
    type=_file,
    help="The page, or with suffix .json a trace for Perfetto [DIR/report.html].",
)
@rare("to", hint="-o FILE.json")
@click.option("--to", expose_value=False)
@click.option("--title", default="", help="Title of the page.")
@click.option("--static", is_flag=True, help="Draw the pictures into the page: no zoom, but no JavaScript.")
@click.option("--svg", "svg", metavar="DIR", type=FOLDER, help="Only write the pictures as SVG there.")
@click.option("--png", "png", metavar="DIR", type=FOLDER, help="Only write the pictures as PNG there.")
@prints_results
def command(
    folder: Path, *, page: Path | None, title: str, static: bool, svg: Path | None, png: Path | None, out: Output
) -> None:
    """Draw the replay in DIR: idle, used and lost node-time, and better settings."""
    from bftrain.result_folder import REPORT_FILE, locked_result
    from bftrain_replay.saved_run import load_run

    if page is not None and page.suffix not in _SUFFIXES:
        raise UsageError(
            f"'{page}' has neither suffix .html nor .json", where="-o", fix="use .html for a page, .json for a trace"
        )
    elsewhere = {form: target for form, target in (("svg", svg), ("png", png)) if target is not None}
    if page is not None and page.suffix == _TRACE:
        if elsewhere or title or static:
            raise UsageError("--svg, --png, --title and --static are for pages", where=f"-o {page}", fix="omit them")
        _write_trace(folder, page, out)
        return
    if page is not None or elsewhere:
        written = _write(load_run(folder).page(title), page, elsewhere, static=static)
    else:
        with locked_result(folder):
            written = _write(load_run(folder).page(title), folder / REPORT_FILE, {}, static=static)
    out.result({"written": [str(path) for path in written]}, lambda: "\n".join(map(str, written)))


def _write(drawn: HtmlPage, page: Path | None, folders: Mapping[str, Path], *, static: bool) -> list[Path]:
    """Write the figures into folders, by their form, and the page if it has a name; return the paths."""
    from bftrain.files import prepare_folder
    from bftrain.result_folder import write_page
    from bftrain_replay.drawing import vega
    from bftrain_replay.drawing.html_page import html

    written: list[Path] = []
    for form, folder in folders.items():
        prepare_folder(folder)
        written += vega.write(drawn.figures, folder, form)
    if page is not None:
        write_page(page, html(drawn, static=static))
        written.append(page)
    return written


def _write_trace(folder: Path, path: Path, out: Output) -> None:
    from bftrain.files import check_replaceable, whole_file
    from bftrain.text_formats import counted
    from bftrain_replay.run import perfetto
    from bftrain_replay.run.run import load
    from bftrain_replay.study_run import REPLAY

    check_replaceable(path, perfetto.is_own, "trace")
    run = load(folder, [REPLAY])
    with whole_file(path) as file:
        count = perfetto.export(run, file)
    out.result({"file": str(path), "events": count}, lambda: f"{path}: {counted(count, 'event')}")
