"""Reference that is generated from code: the glossary, and parts of the pages on readers and for programs.

``site_hooks.py`` hands them to MkDocs; the tests of links use them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bftrain.live.api.routes import described
from tools.glossary_page import glossary_page
from tools.readers_page import generated_part


def endpoints() -> str:
    """Return the table of the API's endpoints, as `bftrain api` lists them."""
    rows = (
        f"| {one.method} | `{one.path}` | {one.about}{' For operators.' if one.operators else ''} |"
        for one in described()
    )
    return "\n".join(("## Endpoints", "", "| | address | effect |", "|---|---|---|", *rows)) + "\n"


# Pages without a file in docs/ -> their text
WHOLE: Final[Mapping[str, Callable[[], str]]] = {"reference/glossary.md": glossary_page}
# Pages in docs/ -> the text that follows the written one
APPENDED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/programs.md": endpoints,
    "reference/readers.md": generated_part,
}
