"""The page of ``bftrain compare`` in a real browser: on three screens, light and dark, looked closer at, pointed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.chromium import Chromium, Page
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
SOLVERS = {"exact": (), "equal-share": ("--solver", "equal-share"), 'few <b>"&': ("--max-tasks", "3")}
FIGURES = {"node-time", "harvest", "ahead", "used-1", "used-2", "used-3", "finished", "rho"}
ALL_DRAWN = """
new Promise(done => {
  const look = () => document.documentElement.dataset.drawn ? done(1) : setTimeout(look, 20);
  look();
})
"""
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replay three times and compare, in a directory with an awkward name."""
    place = tmp_path_factory.mktemp("compare") / 'it\'s a "page" & ünï'
    place.mkdir()
    made = [
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "64", "--days", "1", "--start", "1.6e9", cwd=place),
        bftrain("generate", "tasks", "-o", "t.toml", "--count", "30", "--max-nodes", "16", cwd=place),
        *(bftrain("replay", "log.npz", "--tasks", "t.toml", "-o", at, *how, cwd=place) for at, how in SOLVERS.items()),
        bftrain("compare", *SOLVERS, "-o", "page.html", cwd=place),
    ]
    assert [ended.code for ended in made] == [0] * 6, [ended.err for ended in made]
    assert made[-1].err.endswith("page: page.html\n")
    return place / "page.html"


@pytest.fixture(scope="module", params=[(360, False), (800, True), (1400, False)], ids=["telephone", "dark", "large"])
def page(request: pytest.FixtureRequest, browser: Chromium, compared: Path) -> Page:
    width, dark = request.param
    opened = browser.open(compared.as_uri(), width=width, dark=dark)
    opened.evaluate(ALL_DRAWN)
    opened.evaluate(TWO_FRAMES)
    opened.screenshot(PICTURES / f"compare-{width}{'-dark' if dark else ''}.png")
    return opened


def test_every_picture_is_drawn_and_says_what_it_shows(page: Page) -> None:
    drawn = page.evaluate("[...document.querySelectorAll('[data-drawn=yes].draw')].map(item => item.id.slice(5))")
    assert set(drawn) == FIGURES
    marks = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.draw')].map(item => [item.id.slice(5), "
        "item.querySelectorAll('svg .mark-area path, svg .mark-line path, svg .mark-rect path').length]))"
    )
    assert marks["harvest"] == marks["ahead"] == marks["finished"] == marks["rho"] == 3  # a line each
    assert marks["node-time"] >= 6
    alts = page.evaluate("[...document.querySelectorAll('.draw')].map(item => item.getAttribute('aria-label'))")
    assert all(len(alt) > 40 for alt in alts)
    assert "equal-share" in page.evaluate("document.getElementById('draw-harvest').getAttribute('aria-label')")


def test_all_pictures_over_time_are_looked_closer_at_together(page: Page) -> None:
    def paths() -> list[str]:
        found: list[str] = page.evaluate(
            "['harvest', 'used-2'].map(name => document.querySelector(`#draw-${name} :is(.mark-line, .mark-area) path`)"
            ".getAttribute('d'))"
        )
        return found

    before = paths()
    page.evaluate("document.querySelector('[data-look=in]').click()")
    page.evaluate(TWO_FRAMES)
    page.evaluate(TWO_FRAMES)
    after = paths()
    assert all(one != two for one, two in zip(before, after, strict=True))
    assert page.evaluate("document.getElementById('shown-time').textContent").startswith("2020-09-13 ")
    page.evaluate("document.querySelector('[data-look=all]').click()")
    page.evaluate(TWO_FRAMES)
    page.evaluate(TWO_FRAMES)
    assert paths() == before
    assert page.complaints() == []
