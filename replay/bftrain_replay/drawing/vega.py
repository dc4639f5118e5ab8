"""Charts as SVG and PNG without a browser, also as files; and Vega-Lite, the script with which pages draw them."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from bftrain.errors import NotAvailable, UsageError, suggestion
from bftrain.files import HEAD_BYTES, check_replaceable, head_of, user_cache, whole_file
from bftrain_replay import private_cache
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.theme import CONFIG, LIGHT, coloured

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
VERSION: Final = "6.4"
_NUMBERED: Final = re.compile(r'(id="|url\(#)(clip|gradient_)(\d+)')
PAPER_WIDTH: Final = 760  # width of charts in files, in pixels
PNG_SCALE: Final = 2.5  # image pixels per CSS pixel


def svg(figure: ChartFigure, theme: Mapping[str, str] = LIGHT, prefix: str = "") -> str:
    """Draw a figure as SVG in the colours of ``theme``; images in it are light.

    ``prefix`` makes identifiers unique among several pictures on one page.
    """
    drawn = str(_library().vegalite_to_svg(_on_paper(figure, theme), vl_version=VERSION))
    numbers: dict[str, str] = {}  # vl-convert numbers identifiers across figures; here each figure starts at 0
    start = f"{prefix}-" if prefix else ""
    return _NUMBERED.sub(
        lambda match: f"{match[1]}{start}{match[2]}{numbers.setdefault(match[3], str(len(numbers)))}", drawn
    )


class SvgChart(msgspec.Struct, frozen=True):
    """A chart as SVG: notebooks draw it, and the Python prompt prints its text."""

    name: str
    words: str
    svg: str

    def __repr__(self) -> str:
        return f"<chart '{self.name}': {self.words}>"

    def _repr_svg_(self) -> str:
        return self.svg


def chart(figures: Iterable[ChartFigure], name: str) -> SvgChart:
    """Draw the chart of this name."""
    found = {figure.name: figure for figure in figures}
    if name not in found:
        raise UsageError(f"there is no plot '{name}'", where="plot", fix=suggestion(name, found))
    return SvgChart(name, found[name].words, svg(found[name]))


@cache
def script() -> str:
    """Return the JavaScript for drawing: Vega and Vega-Lite.

    Bundling it takes seconds, so it is cached if possible.
    """
    library, cache_folder = _library(), user_cache()
    path = cache_folder / f"vega-lite-{VERSION}-vl-convert-{library.__version__}.js" if cache_folder else None
    bundle = private_cache.read(path) if path else None
    if not bundle:
        bundle = str(library.javascript_bundle(vl_version=VERSION)).encode()
        if path:
            private_cache.write(path, bundle)
    return bundle.decode()


def available() -> bool:
    """Return whether charts can be drawn here."""
    return not lacking()


def lacking() -> str:
    """Return the missing package for drawing charts, and how to install it; "" if it is installed."""
    try:
        _library()
    except NotAvailable as error:
        return f"{error.what} ({error.fix})"
    return ""


def _on_paper(figure: ChartFigure, theme: Mapping[str, str] = LIGHT) -> dict[str, Any]:
    """Return the Vega-Lite description of a whole chart, with its data and title."""
    spec = {
        "$schema": SCHEMA,
        "config": CONFIG,
        "description": figure.words,
        "width": PAPER_WIDTH,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **figure.with_data(PAPER_WIDTH, PNG_SCALE),
    }
    if figure.title:
        spec["title"] = {"text": figure.title, "anchor": "start", "color": "@ink", "fontSize": 15, "offset": 10}
    whole: dict[str, Any] = coloured(spec, theme)
    return whole


def _library() -> ModuleType:
    try:
        import vl_convert  # noqa: PLC0415 - large, and needed only for drawing
    except ImportError as error:
        what = "figures need vl-convert-python, which is not installed"
        raise NotAvailable(what, fix="pip install vl-convert-python") from error
    module: ModuleType = vl_convert
    return module


FORMS: Final = ("svg", "png")
_SVG_MARK: Final = "<!-- drawn by bftrain -->"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER: Final = len(_PNG) + 4 + 4 + 13 + 4  # the signature, and the first chunk: length, name, 13 bytes, checksum
_TEXT: Final = b"tEXt"
_PNG_MARK: Final = _TEXT + b"Software\0bftrain"


def write(figures: Iterable[ChartFigure], folder: Path, form: str) -> list[Path]:
    """Write every chart as ``NAME.svg`` or ``NAME.png``; return the paths.

    If any of these files exists and was not drawn by bftrain, raise an error without writing.
    """
    chosen = {folder / f"{figure.name}.{form}": figure for figure in figures}
    for path in chosen:
        check_replaceable(path, is_own, "picture")
    for path, figure in chosen.items():
        content = _png(figure) if form == "png" else f"{svg(figure)}\n{_SVG_MARK}\n".encode()
        with whole_file(path) as file:
            file.write(content)
    return list(chosen)


def is_own(path: Path) -> bool:
    """Return whether bftrain drew this file."""
    head = head_of(path)
    if head.startswith(_PNG):
        return _PNG_MARK in head
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - HEAD_BYTES, 0))
        return _SVG_MARK.encode() in file.read()


def _png(figure: ChartFigure) -> bytes:
    """Draw a figure as PNG on the page's colour; a chunk after the header names bftrain as its software."""
    spec = {**_on_paper(figure), "background": LIGHT["page"]}
    drawn = bytes(_library().vegalite_to_png(spec, vl_version=VERSION, scale=PNG_SCALE))
    size, checksum = struct.pack(">I", len(_PNG_MARK) - len(_TEXT)), struct.pack(">I", zlib.crc32(_PNG_MARK))
    return drawn[:_PNG_HEADER] + size + _PNG_MARK + checksum + drawn[_PNG_HEADER:]
