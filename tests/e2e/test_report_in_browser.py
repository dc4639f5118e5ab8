"""The report that ``bftrain demo`` writes, opened in a real browser on a telephone, a laptop and a large screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.chromium import STICKING_OUT, Chromium, Page
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
WIDTHS = (360, 800, 1400)

# Every drawing: how large it is and how many marks are in it
DRAWINGS = """
[...document.querySelectorAll('svg, canvas')].map(item => {
  const box = item.getBoundingClientRect();
  const marks = item.querySelectorAll('path, rect, line, polyline, polygon').length;
  return {width: box.width, height: box.height, marks};
})
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the demo's report into a directory with an awkward name."""
    folder = tmp_path_factory.mktemp("report") / 'it\'s a "demo" & ünï'
    ended = bftrain("demo", "-o", folder)
    assert ended.code == 0, ended.err
    return folder / "report.html"


@pytest.fixture(scope="module", params=WIDTHS, ids="{} px".format)
def page(request: pytest.FixtureRequest, browser: Chromium, report: Path) -> Page:
    width: int = request.param
    opened = browser.open(report.as_uri(), width=width)
    opened.screenshot(PICTURES / f"demo-report-{width}.png")
    return opened


def test_the_console_stays_silent(page: Page) -> None:
    assert page.complaints() == []


def test_nothing_is_fetched_from_anywhere(page: Page, report: Path) -> None:
    assert [address for address in page.requests() if not address.startswith("data:")] == [report.as_uri()]


def test_the_page_does_not_scroll_sideways(page: Page) -> None:
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_chart_is_there_and_drawn(page: Page) -> None:
    drawings = page.evaluate(DRAWINGS)
    assert drawings
    largest = max(drawings, key=lambda drawing: drawing["width"] * drawing["height"])
    assert largest["width"] >= 250
    assert largest["height"] >= 80
    assert sum(drawing["marks"] for drawing in drawings) >= 3


def test_the_figures_are_words_that_can_be_read(page: Page) -> None:
    text = page.evaluate("document.body.innerText")
    for word in ("exact", "equal-share", "preemption"):
        assert word in text.lower()
    assert "undefined" not in text
    assert "NaN" not in text
    assert page.evaluate("document.title")
    assert page.evaluate("document.documentElement.lang") == "en"
