"""One self-contained HTML page of charts, tables and text, without network access or other files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from bftrain.result_folder import PAGE_MARK
from bftrain.version import __version__
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, StateRaster
from bftrain_replay.drawing.theme import CONFIG, DARK, LIGHT

_SCRIPTS: Final = ("page.js", "tables.js", "numbers.js", "rasters.js", "time.js", "follow.js")
_PRINTED: Final = 100  # maximum table rows on paper; same value in page.css
_SIX: Final = 6  # card count with a layout of its own: one, two or three rows, never a single card in a row
_MANY: Final = 4  # number of sections; longer pages start with links to them
_WITHOUT_SCRIPT: Final = (
    "<noscript><style>.frame, .chooser, .follow, .zoom, nav button { display: none; }</style>"
    '<p class="warning">The pictures of this page need JavaScript; <code>%s</code> draws them without it.</p>'
    "</noscript>"
)
_STATIC: Final = '<p class="soft">This page is static: pictures cannot be zoomed, and tables cannot be sorted.</p>'
_CLOSER: Final = "Look closer at the small ones"
_LOOKS: Final = (
    '<div class="looks">'
    + "".join(
        f'<button type="button" data-look="{move}" title="{title}" aria-label="{title}">{sign}</button>'
        for move, sign, title in (
            ("all", "Show all", "all of the time"),
            ("in", "+", "half as much time"),
            ("out", "\N{MINUS SIGN}", "twice as much time"),
            ("earlier", "\N{LEFTWARDS ARROW}", "earlier"),
            ("later", "\N{RIGHTWARDS ARROW}", "later"),
        )
    )
    + '<span id="shown-time" aria-live="polite">all of the time</span></div>'
)
_FOLLOW: Final = (
    '<div class="follow" id="follow" role="search"><div class="field"><input type="search" role="combobox" '
    'aria-label="Search tasks and users to follow" aria-controls="found" aria-expanded="false" '
    'aria-autocomplete="list" placeholder="Follow a task or user: /" autocomplete="off" spellcheck="false"/>'
    '<ul id="found" role="listbox" aria-label="Tasks and users" hidden></ul></div>'
    '<output></output><button type="button" data-follow="time" hidden>its time</button>'
    '<button type="button" data-follow="end" title="Follow nothing (Escape)" aria-label="Follow nothing" hidden>'
    "\N{MULTIPLICATION SIGN}</button></div>"
)


_SEARCH: Final = '<button type="button" data-follow="search">search tasks and users: /</button>'


class HtmlText(str):
    """Trusted HTML."""

    __slots__ = ()


class HtmlCell(msgspec.Struct, frozen=True):
    """One cell of a table: its text, and its sort key (``None``: no value, sorted last)."""

    text: str
    key: str | float | None = None


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under headings; the first cell of a row names it, and a lone first cell names the rows below it.

    ``css`` may be ``plain`` (text) or ``compare``. A ``folded`` table shows only this label until opened. ``about`` has
    row tooltips by name. ``rows_are`` is the kind of item to follow: ``task``, ``user``.
    """

    label: str
    headings: Sequence[str]
    rows: Iterable[Sequence[str | HtmlCell]]
    sortable: bool = False
    css: str = ""
    folded: str = ""
    about: Mapping[str, str] = msgspec.field(default_factory=dict)
    rows_are: str = ""


class FigureCard(msgspec.Struct, frozen=True):
    """One figure in a card at the top."""

    name: str
    figure: str
    note: str
    about: str = ""  # its tooltip


class PageSection(msgspec.Struct, frozen=True, kw_only=True):
    """A heading, a sentence or two, and the contents, in two ``columns`` on wide screens."""

    heading: str
    intro: str = ""
    parts: Sequence[ChartFigure | HtmlTable | HtmlText] = ()
    columns: bool = False


class HtmlPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page from top to bottom; ``users_of`` maps each task that readers can follow to its user.

    ``unnamed`` is the number of tasks beyond the limit of followable ones. ``static_command`` draws the pictures
    without JavaScript.
    """

    title: str
    subtitle: str = ""
    lead: HtmlText | str = ""
    warnings: Sequence[str] = ()
    cards: Sequence[FigureCard] = ()
    sections: Sequence[PageSection] = ()
    users_of: Mapping[str, str] = msgspec.field(default_factory=dict)
    unnamed: int = 0
    static_command: str = "bftrain report DIR --static"

    @property
    def figures(self) -> tuple[ChartFigure, ...]:
        """All charts, in order."""
        return tuple(part for section in self.sections for part in section.parts if isinstance(part, ChartFigure))


def html(page: HtmlPage, *, static: bool = False) -> str:
    """Return the whole file.

    Its script draws the pictures. A ``static`` page has no script: it contains the pictures as SVG.
    """
    if static:
        page = replace(page, users_of={}, unnamed=0)
    every = "".join(
        f'<div class="card"{_tooltip(card.about)}><dt>{escape(card.name)}</dt>'
        f'<dd class="figure">{escape(card.figure)}</dd><dd class="note">{_words(card.note)}</dd></div>'
        for card in page.cards
    )
    six = " six" if len(page.cards) == _SIX else ""
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'{PAGE_MARK}{__version__}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(page.title)}</title>",
            f"<style>\n{_colours()}{_part_of_us('page.css')}</style></head>",
            f"<body><main><h1>{escape(page.title)}</h1>",
            f'<p class="soft">{_words(page.subtitle)}</p>' if page.subtitle else "",
            f'<p class="lead">{_words(page.lead)}</p>' if page.lead else "",
            *(f'<p class="warning">{_words(warning)}</p>' for warning in page.warnings),
            f'<dl class="cards{six}">{every}</dl>' if every else "",
            _nav(page.sections, searched=bool(page.users_of)),
            _STATIC if static else _WITHOUT_SCRIPT % escape(page.static_command) if page.figures else "",
            *(_section(section, static=static) for section in page.sections),
            f"{_FOLLOW if page.users_of else ''}</main>",
            '<div id="tip" role="status" hidden></div>',
            *(_scripts(page) if page.figures and not static else ()),
            "</body></html>\n",
        )
    )


def _scripts(page: HtmlPage) -> Iterator[str]:
    """Yield the page's data, Vega, and our code."""
    code = '"use strict";\n(() => {\n' + "\n".join(map(_part_of_us, _SCRIPTS)) + "})();\n"
    figures, series = _packed(page.figures)
    look = {"schema": vega.SCHEMA, "config": CONFIG, "light": LIGHT, "dark": DARK}
    page_data: dict[str, Any] = {**look, "figures": figures, "series": series, "users_of": list(page.users_of.items())}
    if page.unnamed:
        page_data["unnamed"] = page.unnamed
    yield f'<script type="application/json" id="page-data">{_json(page_data)}</script>'
    yield f"<script>{_inside_script(vega.script())}</script>"
    yield f"<script>{_inside_script(code)}</script>"


def _part_of_us(name: str) -> str:
    return files("bftrain_replay.drawing").joinpath(name).read_text(encoding="utf-8")


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


def _nav(sections: Sequence[PageSection], *, searched: bool) -> str:
    if len(sections) < _MANY:
        return ""
    links = "".join(f'<a href="#{_place(section)}">{escape(section.heading)}</a>' for section in sections)
    return f'<nav aria-label="On this page">{links}{_SEARCH if searched else ""}</nav>'


def _place(section: PageSection) -> str:
    return re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")


def _section(section: PageSection, *, static: bool) -> str:
    intro = f'<p class="soft">{_words(section.intro)}</p>' if section.intro else ""
    parts = "".join(_part(part, section, static=static) for part in section.parts)
    columns = ' class="columns"' if section.columns else ""
    return f'<section id="{_place(section)}"{columns}><h2>{escape(section.heading)}</h2>{intro}{parts}</section>'


def _part(part: ChartFigure | HtmlTable | HtmlText, section: PageSection, *, static: bool) -> str:
    if isinstance(part, HtmlTable):
        return _table(part, static=static)
    if isinstance(part, HtmlText):
        return part
    if static:
        return "" if part.chooses_time else _figure(part, section, _still(part))
    name, closer, over = escape(part.name), "", ""
    if part.closer:
        closer = f'<button type="button" class="zoom" aria-pressed="false">{_CLOSER}</button>'
    if part.raster is not None:
        over = '<canvas aria-hidden="true"></canvas><div class="groups" aria-hidden="true"></div>'
    if part.moments is not None:
        over += '<div class="shade" hidden></div><div class="hair" hidden></div>'
    wide = f' style="max-width:{part.width}px"' if part.width else ""
    return _figure(
        part,
        section,
        f'<div class="frame"{wide}><div class="draw{" over-time" if part.moments else ""}" id="draw-{name}" '
        f'role="img" aria-label="{escape(part.alt)}" style="min-height:{part.height}px"></div>{over}</div>{closer}',
    )


def _figure(part: ChartFigure, section: PageSection, picture: str) -> str:
    title = "" if part.title in {"", section.heading} else f"<h3>{escape(part.title)}</h3>"
    says = f'<p class="says">{_words(part.says)}</p>' if part.says else ""
    caption = f"<figcaption>{_words(part.caption)}</figcaption>" if part.caption else ""
    kind, looks = (' class="chooser"', _LOOKS) if part.chooses_time else ("", "")
    key = _named(part.raster)
    return f'<figure id="{escape(part.name)}"{kind}>{title}{says}{looks}{picture}{key}{caption}</figure>'


def _still(figure: ChartFigure) -> str:
    """Return the picture as SVG, in the colours of the page: dark if the reader prefers that, but rasters are light."""
    picture = vega.svg(replace(figure, title=""), {role: f"var(--{role})" for role in LIGHT}, figure.name)
    raster = " of-raster" if figure.raster is not None else ""
    return f'<div class="static{raster}">{picture}</div>'


def _named(raster: StateRaster | None) -> str:
    """Return the task names with a colour of their own; rasters.js updates them on zoom."""
    if raster is None or raster.tasks_are != "labels":
        return ""
    names = ((raster.labels[place], hue) for place, hue in raster.hues.items())
    links = (
        f'<a href="#follow=task:{quote(name, safe="")}"><i style="background:{hue}"></i>{escape(name)}</a>'
        for name, hue in names
    )
    return f'<p class="key">{"".join(links)}</p>'


def _table(table: HtmlTable, *, static: bool) -> str:
    if static:  # neither sorted nor followed
        table = replace(table, sortable=False, rows_are="")
    head = "".join(
        f'<th scope="col"><button type="button">{escape(heading)}</button></th>'
        if table.sortable
        else f'<th scope="col">{escape(heading)}</th>'
        for heading in table.headings
    )
    rows = [_row(row, table) for row in table.rows]
    body, long = "".join(rows), " long" if len(rows) > _PRINTED else ""
    named = f' data-rows="{table.rows_are}"' if table.rows_are else ""
    whole = (
        f'<div class="scroll {table.css}{long}" tabindex="0" role="region" aria-label="{escape(table.label)}">'
        f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return f"<details><summary>{escape(table.folded)}</summary>{whole}</details>" if table.folded else whole


def _row(row: Sequence[str | HtmlCell], table: HtmlTable) -> str:
    columns = len(table.headings)
    if len(row) == 1 < columns:
        return f'<tr class="group"><th colspan="{columns}" scope="rowgroup">{escape(str(row[0]))}</th></tr>'
    tooltip = _tooltip(table.about.get(str(row[0]), ""))
    return f"<tr{tooltip}>{''.join(_cell(cell, column, table.rows_are) for column, cell in enumerate(row))}</tr>"


def _cell(cell: str | HtmlCell, column: int, row_is: str) -> str:
    key, name = "", ""
    if isinstance(cell, HtmlCell):
        key = "" if cell.key is None else f' data-key="{escape(str(cell.key))}"'
        name, cell = str(cell.key or ""), cell.text
    if column:
        return f"<td{key}>{_words(cell)}</td>"
    words = escape(cell)
    if row_is and name:
        words = f'<a href="#follow={row_is}:{quote(name, safe="")}">{words}</a>'
    return f'<th scope="row"{key}>{words}</th>'


def _tooltip(about: str) -> str:
    return f' title="{escape(about)}"' if about else ""


_BEFORE_UNIT: Final = re.compile(r" (?=(?:%|ms|s|h|min|days)(?![\w-]))")


def _words(text: str) -> str:
    """Escape HTML, and keep a figure and its unit on one line."""
    html = text if isinstance(text, HtmlText) else escape(text)
    return _BEFORE_UNIT.sub("&nbsp;", html)


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


def _inside_script(code: str) -> str:
    """Return JavaScript safe to embed in a script element: it cannot close it."""
    return re.sub(r"<(?=/script|!--)", r"\\x3C", code, flags=re.IGNORECASE)
