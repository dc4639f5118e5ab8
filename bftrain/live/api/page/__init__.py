"""The status page of a live run: static files that fetch all data from the API, with the token."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from bftrain.live.api.http_connection import Response

_FOLDER: Final = Path(__file__).parent
_HTML: Final = "text/html; charset=utf-8"
_SCRIPT: Final = "text/javascript; charset=utf-8"
FIRST: Final = "page.html"
FILES: Final[Mapping[str, str]] = {
    FIRST: _HTML,
    "page.css": "text/css; charset=utf-8",
    "page.js": _SCRIPT,
    "talk.js": _SCRIPT,
    "charts.js": _SCRIPT,
    "nodes.js": _SCRIPT,
    "words.js": _SCRIPT,
    "icon.svg": "image/svg+xml",
}
# Only our own files, no inline code or styles, no embedding in other sites
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


@cache
def file(name: str) -> Response:
    """Return one file of the page."""
    return Response(body=(_FOLDER / name).read_bytes(), kind=FILES[name], headers=_HEADERS)
