"""The pictures of the pages: drawn from what they show, and none is left over."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.helpers.pages import PAGES, ROOT, links

PICTURES = ROOT / "docs" / "pictures"


def test_the_picture_on_the_home_page_is_what_its_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "scripts" / "home_picture.py"))["picture"]()
    assert drawn == (PICTURES / "harvest.svg").read_text(), "draw it again: python docs/scripts/home_picture.py"


def test_every_picture_is_shown_somewhere() -> None:
    shown = {
        (path.parent / link).resolve()
        for path in PAGES
        for link in links(path.read_text(encoding="utf-8"))
        if link.endswith((".png", ".svg", ".webp"))
    }
    assert set(PICTURES.rglob("*.*")) - shown == set()


@pytest.mark.parametrize("path", sorted(PICTURES.rglob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_sound_small_and_fetches_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own file
    assert len(text) < 100_000
    addresses = re.findall(r"(?:href|src)=\"([^\"]*)\"|url\(([^)]*)\)", text)
    assert [one or other for one, other in addresses if not (one or other).startswith(("#", "data:"))] == []
