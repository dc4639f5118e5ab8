"""Vega: figures as SVG and PNG, without a browser, and the script that draws them in one."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain.errors import NotAvailable
from bftrain.files import whole_file
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.theme import CONFIG, LIGHT, coloured

if TYPE_CHECKING:
    from types import ModuleType

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
VERSION: Final = "6.4"
_NUMBERED: Final = re.compile(r'((?:id="|url\(#)(?:clip|gradient_))(\d+)')
PAPER_WIDTH: Final = 760  # pixels
PNG_SCALE: Final = 2.5  # of a pixel


def svg(figure: ChartFigure, theme: Mapping[str, str] = LIGHT) -> str:
    """Draw a figure as SVG."""
    drawn = str(_library().vegalite_to_svg(_on_paper(figure, theme), vl_version=VERSION))
    numbers: dict[str, str] = {}  # it counts parts on from figure to figure; here each figure begins at 0
    return _NUMBERED.sub(lambda found: found[1] + numbers.setdefault(found[2], str(len(numbers))), drawn)


def png(figure: ChartFigure, theme: Mapping[str, str] = LIGHT) -> bytes:
    """Draw a figure as PNG, on the colour of the page."""
    spec = {**_on_paper(figure, theme), "background": theme["page"]}
    return bytes(_library().vegalite_to_png(spec, vl_version=VERSION, scale=PNG_SCALE))


@cache
def script() -> str:
    """Give the JavaScript that knows how to draw: Vega and Vega-Lite.

    To put it together takes seconds, so it is kept for next time where that is possible.
    """
    library = _library()
    place = _cache()
    if place is None:
        return _assembled()
    kept = place / f"vega-lite-{VERSION}-vl-convert-{library.__version__}.js"
    found = _trusted(kept)
    if found:
        return found
    made = _assembled()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with whole_file(kept) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(f"{_seal(made)}{made}".encode())
    except OSError:
        pass  # a home that cannot be written to costs time only
    return made


def available() -> bool:
    """Say whether figures can be drawn here."""
    return not lacking()


def lacking() -> str:
    """Say what it takes to draw figures here; nothing if nothing lacks."""
    try:
        _library()
    except NotAvailable as error:
        return f"{error.what} ({error.fix})"
    return ""


def _assembled() -> str:
    return str(_library().javascript_bundle(vl_version=VERSION))


def _trusted(path: Path) -> str:
    """Read a script that we have kept; nothing if it is not there, not ours alone, or not what was written."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return ""  # it goes into every page: what others can write is not believed
            seal, script = file.readline(), file.read()
    except (OSError, UnicodeDecodeError):
        return ""
    return script if seal == _seal(script) else ""


def _seal(script: str) -> str:
    """Give the first line of a kept script, which tells whether it is whole."""
    return f"// {hashlib.sha256(script.encode()).hexdigest()}\n"


def _on_paper(figure: ChartFigure, theme: Mapping[str, str]) -> dict[str, Any]:
    width = min(figure.width or PAPER_WIDTH, PAPER_WIDTH)
    spec = {
        "$schema": SCHEMA,
        "config": CONFIG,
        "title": {"text": figure.title, "anchor": "start", "color": "@ink", "fontSize": 15, "offset": 10},
        "description": figure.alt,
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **figure.with_data(theme, width, PNG_SCALE),
    }
    whole: dict[str, Any] = coloured(spec, theme)
    return whole


def _library() -> ModuleType:
    try:
        import vl_convert  # noqa: PLC0415 - large, and only who draws needs it
    except ImportError as error:
        what = "figures need vl-convert-python, which is not installed"
        raise NotAvailable(what, fix="pip install vl-convert-python") from error
    module: ModuleType = vl_convert
    return module


def _cache() -> Path | None:
    """Give the folder for what can be made again; nothing if this user has none."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        place = named if named.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return place / "bftrain" if place.is_absolute() else None
