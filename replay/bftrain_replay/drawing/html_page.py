"""One self-contained HTML page of charts, tables and text, without network access or other files.

A template lays out each kind of page. All extend page.html, which begins with one lead sentence, the main picture and
cards. A template places charts and tables by name: ``{{ figure("nodes") }}``, ``{{ table(users) }}``; what does not
exist is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from bftrain import text_formats
from bftrain.result_folder import PAGE_MARK
from bftrain.version import __version__
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.theme import CONFIG, DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPTS: Final = ("page.js", "tables.js", "numbers.js", "rasters.js", "time.js", "follow.js")
_PRINTED: Final = 100  # maximum table rows on paper; same value in page.css
_FORMATS: Final = ("count", "counted", "duration", "large", "moment", "percent", "ratio")
_BEFORE_UNIT: Final = re.compile(r" (?=(?:%|ms|s|h|min|days)(?![\w-]))")


class HtmlText(str):
    """Trusted HTML."""

    __slots__ = ()

    def __html__(self) -> str:  # templates do not escape it
        return str(self)


class HtmlCell(msgspec.Struct, frozen=True):
    """One cell of a table: its text, and its sort key (``None``: no value, sorted last)."""

    text: str
    key: str | float | None = None


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under headings; the first cell of a row names it, and a lone first cell names the rows below it.

    ``css`` may be ``plain`` (text) or ``compare``. A ``folded`` table shows only this label until opened. ``about`` has
    row tooltips by name. With ``follows`` rows are tasks, which readers can highlight.
    """

    label: str
    headings: Sequence[str]
    rows: Iterable[Sequence[str | HtmlCell]]
    sortable: bool = False
    css: str = ""
    folded: str = ""
    about: Mapping[str, str] = msgspec.field(default_factory=dict)
    follows: bool = False


def value_table(
    label: str,
    columns: Mapping[str, Callable[[Any], str]],
    rows: Iterable[Sequence[Any]],
    **more: Any,  # noqa: ANN401 - fields of HtmlTable
) -> HtmlTable:
    """Return a sortable table of values; ``columns`` maps headings to formats. An ``HtmlCell`` stays unchanged."""
    forms = tuple(columns.values())

    def cell(form: Callable[[Any], str], value: Any) -> HtmlCell:  # noqa: ANN401 - as the format takes it
        if isinstance(value, HtmlCell):
            return value
        return HtmlCell(text_formats.UNKNOWN if value is None else form(value), value)

    cells = ([cell(form, value) for form, value in zip(forms, row, strict=True)] for row in rows)
    return HtmlTable(label=label, headings=tuple(columns), rows=cells, sortable=True, **more)


class HtmlPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page: ``template`` names its kind; ``parts`` are the tables, texts and values that this template uses.

    The chart named ``main`` stands below the lead sentence. ``static_command`` draws the pictures without JavaScript.
    """

    template: str
    title: str
    main: str
    figures: Sequence[ChartFigure]
    parts: Mapping[str, Any]
    warnings: Sequence[str] = ()
    static_command: str = "bftrain report DIR --static"


def html(page: HtmlPage, *, static: bool = False) -> str:
    """Return the whole file.

    Its script draws the pictures. A ``static`` page has no script: it contains the pictures as SVG.
    """
    charts, drawn = {figure.name: figure for figure in page.figures}, list[ChartFigure]()
    macros: Any = _templates().get_template("parts.html").module

    def figure(name: str, *, titled: bool = True) -> HtmlText:
        chart = charts.pop(name, None)
        if chart is None:
            return HtmlText()
        drawn.append(chart)
        # A still picture is in the colours of the page: dark if the reader prefers that, but rasters are light
        colours = {role: f"var(--{role})" for role in LIGHT}
        still = HtmlText(vega.svg(replace(chart, title=""), colours, chart.name)) if static else ""
        return HtmlText(macros.figure(chart, titled, still))

    return (
        _templates()
        .get_template(page.template)
        .render(
            page.parts,
            page=page,
            warnings=page.warnings,
            static=static,
            headings=[],
            drawn=drawn,
            figure=figure,
            table=lambda table: _table(table, static=static),
            mark=HtmlText(f'{PAGE_MARK}{__version__}">'),
            style=HtmlText(f"{_colours()}{_part_of_us('page.css')}"),
            scripts=_scripts,
        )
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only those who draw need it

    loader = PackageLoader("bftrain_replay.drawing")
    found = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    found.keep_trailing_newline = True
    found.filters |= {name: getattr(text_formats, name) for name in _FORMATS}
    found.filters |= {
        "text": _text,
        "anchor": lambda heading: re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-"),
        "options": _options,
    }
    return found


def _scripts(figures: Iterable[ChartFigure]) -> HtmlText:
    """Return the page's data, Vega, and our code."""
    code = '"use strict";\n(() => {\n' + "\n".join(map(_part_of_us, _SCRIPTS)) + "})();\n"
    packed, series = _packed(figures)
    look = {"schema": vega.SCHEMA, "config": CONFIG, "light": LIGHT, "dark": DARK}
    data = _json({**look, "figures": packed, "series": series})
    # Safe inside a script element: it cannot close it
    safe = (re.sub(r"<(?=/script|!--)", r"\\x3C", part, flags=re.IGNORECASE) for part in (vega.script(), code))
    scripts = [f"<script>{part}</script>" for part in safe]
    return HtmlText("\n".join([f'<script type="application/json" id="page-data">{data}</script>', *scripts]))


def _part_of_us(name: str) -> str:
    return files("bftrain_replay.drawing").joinpath("templates", name).read_text(encoding="utf-8")


def _packed(figures: Iterable[ChartFigure]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the charts' data for page.js, and the shared series that they refer to by number."""
    packed, found, series = {}, dict[int, int](), list[dict[str, Any]]()
    for figure in figures:
        packed[figure.name] = figure.packed()
        if figure.moments is None:
            continue
        for part in figure.series:
            if id(part) not in found:
                found[id(part)] = len(series)
                series.append(part.packed(figure.moments))
            packed[figure.name]["series"].append(found[id(part)])
    return packed, series


def _table(table: HtmlTable | None, *, static: bool) -> HtmlText:
    """Return a table; its rows may be many, so they are written here."""
    if table is None:
        return HtmlText()
    rows = [_row(row, table, follows=table.follows and not static) for row in table.rows]
    macros: Any = _templates().get_template("parts.html").module
    css = f"{table.css} long" if len(rows) > _PRINTED else table.css
    return HtmlText(macros.table(table, HtmlText("".join(rows)), css.strip(), table.sortable and not static))


def _row(row: Sequence[str | HtmlCell], table: HtmlTable, *, follows: bool) -> str:
    columns = len(table.headings)
    if len(row) == 1 < columns:
        return f'<tr class="group"><th colspan="{columns}" scope="rowgroup">{escape(str(row[0]))}</th></tr>'
    about = table.about.get(str(row[0]), "")
    tooltip = f' title="{escape(about)}"' if about else ""
    return f"<tr{tooltip}>{''.join(_cell(cell, column, follows=follows) for column, cell in enumerate(row))}</tr>"


def _cell(cell: str | HtmlCell, column: int, *, follows: bool) -> str:
    key, name = "", ""
    if isinstance(cell, HtmlCell):
        key = "" if cell.key is None else f' data-key="{escape(str(cell.key))}"'
        name, cell = str(cell.key or ""), cell.text
    if column:
        return f"<td{key}>{_text(cell)}</td>"
    text = f'<a href="#follow={quote(name, safe="")}">{escape(cell)}</a>' if follows and name else escape(cell)
    return f'<th scope="row"{key}>{text}</th>'


def _text(text: str) -> HtmlText:
    """Escape HTML, and keep a figure and its unit on one line."""
    return HtmlText(_BEFORE_UNIT.sub("&nbsp;", text if hasattr(text, "__html__") else escape(text)))


def _options(text: str) -> HtmlText:
    """Mark the options of commands in a text; they are not broken into lines."""
    return HtmlText(re.sub(r"(--[a-z][a-z0-9-]*)", r"<code>\1</code>", escape(text)))


def _colours() -> str:
    def block(theme: Mapping[str, str]) -> str:
        return "".join(f"--{role}: {colour};" for role, colour in theme.items())

    return (
        f":root {{ color-scheme: light dark; {block(LIGHT)} }}\n@media screen and (prefers-color-scheme: dark) {{ "
        f":root {{ {block(DARK)} }} }}\n.of-raster {{ {block(LIGHT)} }}\n"  # its pixels are light
    )


def _json(value: object) -> str:
    """Return JSON safe to embed in a page: it cannot open an element."""
    return msgspec.json.encode(value).decode().replace("<", r"\u003c")
