"""The page that shows a notebook: its text, its cells, and their output."""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with a link to the file below its title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *parts = (part for cell in cells for part in _parts(cell))
    heading, _, words = title.partition("\n\n")
    return "\n\n".join((heading, f"{words} [The notebook as a file]({path.name}).", *parts)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [source]
    return [f"```{'sh' if source.startswith('!') else 'python'}\n{source}\n```", *map(_shown, cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    data = {form: "".join(lines) for form, lines in output.get("data", {"text/plain": output.get("text", "")}).items()}
    if "image/svg+xml" in data:
        address = b64encode(data["image/svg+xml"].encode()).decode()
        return f'<img alt="{escape(data["text/plain"])}" src="data:image/svg+xml;base64,{address}">'
    if "text/html" in data and "style scoped" not in data["text/html"]:
        return data["text/html"]
    return f"```text\n{data['text/plain'].rstrip()}\n```"
