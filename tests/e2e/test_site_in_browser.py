"""The site in a real browser, opened from disk: on a telephone, a laptop and a large screen, by day and by night."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.helpers.chromium import STICKING_OUT, Chromium, Page
from tests.helpers.site import build

pytestmark = [pytest.mark.chromium, pytest.mark.docs]

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
WIDTHS = {"telephone": 360, "laptop": 1280, "screen": 1800}
LOOKED_AT = (
    "index.html",
    "tutorials/from-sacct-to-report.html",
    "reference/commands/replay.html",
    "reference/readers.html",
    "explanation/architecture.html",
    "how-to/parts.html",
)
# The first page at every width, each other page at one
LOOKS = [(LOOKED_AT[0], width) for width in WIDTHS] + list(zip(LOOKED_AT[1:], cycle(WIDTHS), strict=False))
# Words whose colour is too near to that of what is behind them: the ratio of WCAG 2.1, section 1.4.3
HARD_TO_READ = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
  const light = colour => colour.map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = item => {
    const found = [];
    for (let up = item; up; up = up.parentElement) found.push(parts(getComputedStyle(up).backgroundColor));
    return found.reverse().reduce((below, colour) => over(colour, below), [255, 255, 255]);
  };
  return [...document.querySelectorAll('.md-content *')].filter(item => {
    const own = [...item.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    const style = getComputedStyle(item);
    if (!own || !item.offsetParent || item.closest('svg, .md-button:hover, .headerlink, button') ||
        style.opacity < 1) return false;
    const below = behind(item);
    const [a, b] = [light(over(parts(style.color), below)), light(below)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5);
  }).map(item => item.outerHTML.slice(0, 120));
})()
"""
SEARCH = """
(async words => {
  document.querySelector('[data-md-toggle=search]').click();
  const field = document.querySelector('.md-search__input');
  field.focus();
  field.value = words;
  field.dispatchEvent(new InputEvent('input', {bubbles: true}));
  field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
  for (let tries = 0; tries < 200; tries++) {
    const found = [...document.querySelectorAll('.md-search-result__link')].map(link => link.href);
    if (found.length) return found;
    await new Promise(done => setTimeout(done, 50));
  }
  return [];
})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs") / "it's a ünit"
    build(place)
    return place


def assert_quiet(page: Page, site: Path) -> None:
    """Nothing on the console, and nothing asked for but files of the site."""
    assert page.complaints() == []
    asked = [urlsplit(address) for address in page.requests() if not address.startswith("data:")]
    assert {parts.scheme for parts in asked} == {"file"}
    assert [parts.path for parts in asked if site not in Path(unquote(parts.path)).parents] == []


@pytest.mark.parametrize(("name", "width"), LOOKS)
def test_a_page_is_quiet_fits_and_can_be_read(name: str, width: str, browser: Chromium, site: Path) -> None:
    dark = width == "laptop"
    page = browser.open((site / name).as_uri(), width=WIDTHS[width], dark=dark)
    shot = f"site-{name.removesuffix('.html').replace('/', '-')}-{width}-{'dark' if dark else 'light'}.png"
    page.screenshot(PICTURES / shot)
    assert_quiet(page, site)
    assert page.evaluate("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    assert page.evaluate(STICKING_OUT.replace("body *", ".md-content *")) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate(HARD_TO_READ) == []
    assert page.evaluate("[...document.images].filter(image => !image.complete || !image.naturalWidth).length") == 0


@pytest.mark.parametrize(
    ("begin", "words", "page"),
    [
        ("index.html", "preemptible", "reference/commands/import.html"),
        ("reference/commands/replay.html", "horizon", "reference/formats.html"),
        ("index.html", "energy", "how-to/assess.html"),
    ],
)
def test_the_search_finds_without_a_server(begin: str, words: str, page: str, browser: Chromium, site: Path) -> None:
    opened = browser.open((site / begin).as_uri(), width=1280)
    found = opened.evaluate(f"({SEARCH})({words!r})")
    assert any(unquote(address).partition("?")[0].endswith(f"/{page}") for address in found)
    assert_quiet(opened, site)
    opened.screenshot(PICTURES / f"site-search-{words}.png")


def test_a_reader_can_choose_light_or_dark(browser: Chromium, site: Path) -> None:
    page = browser.open((site / "index.html").as_uri(), width=1280)
    press = "document.querySelector('form[data-md-component=palette] label:not([hidden])').click()"
    seen = []
    for _ in range(3):
        page.evaluate(press)
        seen.append(page.evaluate("document.body.dataset.mdColorScheme"))
    assert seen == ["default", "slate", "default"]  # always light, always dark, as the system has it
    assert_quiet(page, site)
