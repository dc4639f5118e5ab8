"""Reference that is generated from code: the glossary page, and the generated part of the page on readers.

``site_hooks.py`` hands both to MkDocs; the tests of links use them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tools.glossary_page import glossary_page
from tools.readers_page import generated_part

# Pages without a file in docs/ -> their text
WHOLE: Final[Mapping[str, Callable[[], str]]] = {"reference/glossary.md": glossary_page}
# Pages in docs/ -> the text that follows the written one
APPENDED: Final[Mapping[str, Callable[[], str]]] = {"reference/readers.md": generated_part}
