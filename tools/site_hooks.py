"""Additions of `make docs` to docs/: generated reference, notebook pages, and the files outside docs/.

MkDocs calls these functions while it builds. They are small on purpose: to build the site with another program, write
the pages from `command_pages`, `reference_pages` and the rest into the folder that it reads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from command_pages import FOLDER, command_pages  # MkDocs finds it in this file's folder
from mkdocs.structure.files import File
from notebook_pages import notebook_page

from tools.reference_pages import APPENDED, WHOLE

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
# Files outside docs/ -> their page
ABOVE: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "LICENSE": "license.md"}
# Pages that need a server, which is missing when the site is opened from disk
SERVED: Final = ("404.html", "sitemap.xml", "sitemap.xml.gz")


def on_config(config: MkDocsConfig) -> None:
    """Add the pages on commands to the navigation entry of their folder."""
    pages = [f"{FOLDER}/{name}" for name in command_pages()]
    _fill(config.nav or [], pages)


def _fill(entries: list[Any], pages: list[str]) -> None:
    for entry in entries:
        for name, inside in entry.items() if isinstance(entry, dict) else ():
            if inside == f"{FOLDER}/":
                entry[name] = pages
            elif isinstance(inside, list):
                _fill(inside, pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of docs/."""
    for name, text in command_pages().items():
        files.append(File.generated(config, f"{FOLDER}/{name}", content=text))
    for name, generate in WHOLE.items():
        files.append(File.generated(config, name, content=generate()))
    for path in (ROOT / "docs").rglob("*.ipynb"):
        name = path.relative_to(ROOT / "docs").with_suffix(".md")
        files.append(File.generated(config, str(name), content=notebook_page(path)))
    for name, page in ABOVE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if not name.endswith(".md"):
            text = f"# {name.capitalize()}\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=_from_above(text)))
    return files


def _from_above(text: str) -> str:
    """Turn links from the folder above docs/ into links from docs/ itself."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page in ABOVE.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Append the generated part, and turn links to files outside docs/ into links to their pages."""
    if page.file.src_uri in APPENDED:
        markdown = f"{markdown.rstrip()}\n\n{APPENDED[page.file.src_uri]()}"
    up = "../" * (page.file.src_uri.count("/") + 1)
    for name, target in ABOVE.items():
        markdown = markdown.replace(f"]({up}{name}", f"]({up.removesuffix('../')}{target}")
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Leave out parts that need a server."""
    if not config.site_url:
        for name in SERVED:
            (Path(config.site_dir) / name).unlink(missing_ok=True)
