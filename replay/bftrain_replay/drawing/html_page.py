"""One self-contained HTML page of charts, tables and text, without network access or other files.

Each kind of page has a template, which extends page.html: a lead sentence, the main picture, cards, then sections. A
template places charts by name and tables by variable: ``{{ figure("nodes") }}``, ``{{ table(users) }}``; missing ones
are left out.
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
_PRINTED: Final = 100  # table rows on paper; longer tables get the class "long" of page.css, which has this number
# Functions of bftrain.text_formats
_FILTERS: Final = ("count", "counted", "duration", "large", "moment", "percent", "ratio")
_BEFORE_UNIT: Final = re.compile(r" (?=(?:%|ms|s|h|min|days)(?![\w-]))")


class HtmlText(str):
    """Trusted HTML, which templates do not escape."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class HtmlCell(msgspec.Struct, frozen=True):
    """One cell of a table: its text, and its sort key (``None``: no value, sorted last)."""

    text: str
    key: str | float | None = None


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under headings; the first cell of a row names it, and a row of a single cell names the rows below it.

    ``css`` has classes of page.css: ``plain`` (text), ``meanings``, ``compare`` (numbers), ``best`` (the first column
    of numbers is bold) or ``many`` (narrow columns). A ``folded`` table shows only this label until opened. ``about``
    has the tooltips of rows by name. With ``follows``, rows are tasks, which readers can highlight.
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
    """Return a sortable table; ``columns`` maps headings to the formats of values. An ``HtmlCell`` stays unchanged."""
    forms = tuple(columns.values())

    def cell(form: Callable[[Any], str], value: Any) -> HtmlCell:  # noqa: ANN401 - as the format takes it
        if isinstance(value, HtmlCell):
            return value
        return HtmlCell(text_formats.UNKNOWN if value is None else form(value), value)

    cells = ([cell(form, value) for form, value in zip(forms, row, strict=True)] for row in rows)
    return HtmlTable(label=label, headings=tuple(columns), rows=cells, sortable=True, **more)


class HtmlPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page: a ``template`` with its variables, the ``parts``.

    The chart named ``main`` stands below the lead sentence. ``static_command`` draws its pictures without JavaScript.
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
        # A static picture has the colours of the page, light or dark; only its rasters are always light
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
            style=HtmlText(f"{_colours()}{_template_file('page.css')}"),
            scripts=_scripts,
        )
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - needed only for pages

    loader = PackageLoader("bftrain_replay.drawing")
    found = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    found.keep_trailing_newline = True
    found.filters |= {name: getattr(text_formats, name) for name in _FILTERS}
    found.filters |= {
        "text": _text,
        "anchor": lambda heading: re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-"),
        "options": _options,
    }
    return found


def _scripts(figures: Iterable[ChartFigure]) -> HtmlText:
    """Return the scripts of a page with these charts: the data, Vega, and the files of this project as one function."""
    code = '"use strict";\n(() => {\n' + "\n".join(map(_template_file, _SCRIPTS)) + "})();\n"
    packed, series = _packed(figures)
    look = {"schema": vega.SCHEMA, "config": CONFIG, "light": LIGHT, "dark": DARK}
    data = _json({**look, "figures": packed, "series": series})
    # "</script" would close the element
    safe = (re.sub(r"<(?=/script|!--)", r"\\x3C", part, flags=re.IGNORECASE) for part in (vega.script(), code))
    scripts = [f"<script>{part}</script>" for part in safe]
    return HtmlText("\n".join([f'<script type="application/json" id="page-data">{data}</script>', *scripts]))


def _template_file(name: str) -> str:
    return files("bftrain_replay.drawing").joinpath("templates", name).read_text(encoding="utf-8")


def _packed(figures: Iterable[ChartFigure]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the data of the charts, and the series, which several charts may share and refer to by number."""
    packed, numbers, series = {}, dict[int, int](), list[dict[str, Any]]()
    for figure in figures:
        packed[figure.name] = figure.packed()
        if figure.time_axis is None:
            continue
        for part in figure.series:
            if id(part) not in numbers:
                numbers[id(part)] = len(series)
                series.append(part.packed(figure.time_axis))
        packed[figure.name]["series"] = [numbers[id(part)] for part in figure.series]
    return packed, series


def _table(table: HtmlTable | None, *, static: bool) -> HtmlText:
    """Return a table as HTML. Its rows are written here instead of in a template, because there may be thousands."""
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
    """Escape HTML, and mark the options of commands as code."""
    return HtmlText(re.sub(r"(--[a-z][a-z0-9-]*)", r"<code>\1</code>", escape(text)))


def _colours() -> str:
    """Return the colours of both themes as CSS variables, named by role."""

    def block(theme: Mapping[str, str]) -> str:
        return "".join(f"--{role}: {colour};" for role, colour in theme.items())

    return (
        f":root {{ color-scheme: light dark; {block(LIGHT)} }}\n@media screen and (prefers-color-scheme: dark) {{ "
        f":root {{ {block(DARK)} }} }}\n.of-raster {{ {block(LIGHT)} }}\n"  # static rasters are light
    )


def _json(value: object) -> str:
    """Return JSON that is safe in a page: it contains no "<"."""
    return msgspec.json.encode(value).decode().replace("<", r"\u003c")
