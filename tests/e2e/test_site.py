"""The site that ``make docs`` builds: whole, strict, to be opened from disk, and with nothing from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bftrain.cli.command_table import COMMANDS
from tests.helpers.pages import PAGES, ROOT
from tests.helpers.site import Built, build, styled
from tools.reference_pages import WHOLE

pytestmark = pytest.mark.docs

ABOVE = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing", "LICENSE": "license"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs") / 'a "site" ünd more'
    build(place)
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Built]:
    return {str(path.relative_to(site)): Built(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_there(pages: dict[str, Built]) -> None:
    written = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in PAGES if ROOT / "docs" in path.parents}
    written |= {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.ipynb")}
    made = {"reference/commands/index", *(f"reference/commands/{name}" for name in COMMANDS), *ABOVE.values()}
    made |= {name.removesuffix(".md") for name in WHOLE}
    assert {name.removesuffix(".html") for name in pages} == written | made


def test_every_page_can_be_reached_from_the_first(pages: dict[str, Built]) -> None:
    """The navigation leads to all: a page that is not in it would never be found."""
    led_to = {os.path.normpath(urlsplit(link).path) for link in pages["index.html"].links if not urlsplit(link).scheme}
    sections = {name for name in pages if any(name.startswith(f"{Path(found).parent}/") for found in led_to)}
    assert set(pages) - led_to - sections - {"index.html"} == set()


def leads_nowhere(target: str, page: Built, pages: dict[str, Built], site: Path) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return False
    file = Path(os.path.normpath(page.path.parent / unquote(parts.path))) if parts.path else page.path
    if not file.is_file() or site not in file.parents:
        return True
    built = pages.get(str(file.relative_to(site)))
    return bool(parts.fragment) and (built is None or unquote(parts.fragment) not in built.names)


def test_every_link_on_the_site_leads_somewhere(pages: dict[str, Built], site: Path) -> None:
    wrong = {
        name: [link for link in page.links if leads_nowhere(link, page, pages, site)] for name, page in pages.items()
    }
    assert {name: found for name, found in wrong.items() if found} == {}


def test_nothing_is_fetched_from_outside_of_the_site(pages: dict[str, Built], site: Path) -> None:
    outside = {name: [one for one in page.fetched if leads_out(one, page.path, site)] for name, page in pages.items()}
    for path in site.rglob("*.css"):
        outside[path.name] = [one for one in styled(path.read_text(encoding="utf-8")) if leads_out(one, path, site)]
    for path in site.rglob("*.svg"):
        outside[path.name] = [one for one in Built(path).fetched if leads_out(one, path, site)]
    assert {name: found for name, found in outside.items() if found} == {}


def leads_out(address: str, path: Path, site: Path) -> bool:
    """Whether an address is none of a file of the site."""
    parts = urlsplit(address)
    if parts.scheme == "data" or (not parts.path and parts.fragment):
        return False
    file = Path(os.path.normpath(path.parent / unquote(parts.path)))
    return bool(parts.scheme or parts.netloc) or not file.is_file() or site not in file.parents
