"""Where the pages lead: every link and anchor exists, every address elsewhere is one, every picture has words."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helpers.pages import PAGES, ROOT, anchors, links, pictures_without_words

every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def leads_nowhere(target: str, path: Path) -> str:
    """Return what is wrong with a link of the page at ``path``; nothing if it leads somewhere."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return "" if well_formed(target) else "no address"
    file = (path.parent / parts.path).resolve() if parts.path else path
    if not file.is_file():
        return "no such file" + (" (a folder)" if file.is_dir() else "")
    if not file.is_relative_to(ROOT):
        return "outside of the project"
    if parts.fragment and parts.fragment not in anchors(file.read_text(encoding="utf-8")):
        return "no such section, or not by this name everywhere"
    return ""


def well_formed(address: str) -> bool:
    """Whether a browser could ask for it: encrypted, with the full name of a host, and nothing private in it."""
    parts = urlsplit(address)
    name = parts.hostname or ""
    host = "." in name.strip(".") and all(part and part.replace("-", "").isalnum() for part in name.split("."))
    ends_well = not address.endswith((".", ",", ";", ")", "'", '"'))
    return parts.scheme == "https" and host and not parts.username and parts.port is None and ends_well


@every_page
def test_every_link_leads_somewhere(path: Path) -> None:
    wrong = {target: leads_nowhere(target, path) for target in links(path.read_text(encoding="utf-8"))}
    assert {target: why for target, why in wrong.items() if why} == {}


@every_page
def test_every_picture_has_words(path: Path) -> None:
    assert pictures_without_words(path.read_text(encoding="utf-8")) == []


def test_links_are_found_where_they_are_and_not_in_code() -> None:
    text = (
        "[a](b.md) ![c](d.svg) [![e](f.png)](g.md#h)\n`[no](no.md)`\n"
        '```sh\n[no](no.md)\n```\n<https://i.org/j>\n\n[k]: l.md\n[m](n_(o).md)\n<a href="p.md">q</a>\n'
        "<!-- [no](no.md) -->"
    )
    assert set(links(text)) == {"b.md", "d.svg", "g.md#h", "https://i.org/j", "l.md", "n_(o).md", "p.md"} | {"f.png"}
    assert pictures_without_words("![](a.png) ![b](c.png)") == ["a.png"]


def test_sections_are_named_as_everywhere() -> None:
    text = "# One `two`, three\n\n## Twice\n\n## Twice\n\n## a - b\n\n```sh\n# no heading\n```\n## [Four](x.md) (5)\n"
    assert anchors(text) == {"one-two-three", "four-5"}


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("LICENSE", ""),
        ("docs", "no such file (a folder)"),
        ("docs/nothing.md", "no such file"),
        ("docs/events.md#actions", ""),
        ("docs/events.md#nothing", "no such section, or not by this name everywhere"),
        ("#further-reading", ""),
        ("../..", "no such file (a folder)"),
        ("https://example.org/a?b#c", ""),
        ("http://example.org", "no address"),
        ("https://example", "no address"),
        ("https://me@example.org", "no address"),
        ("https://example.org/a.", "no address"),
        ("file:///etc/hosts", "no address"),
        ("mailto:a@b.org", "no address"),
    ],
)
def test_what_is_wrong_with_a_link_is_found(target: str, why: str) -> None:
    assert leads_nowhere(target, ROOT / "README.md") == why
