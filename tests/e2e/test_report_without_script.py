"""Pages where no script runs, and pages on paper: all pictures are there, from telephones to large screens."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.chromium import Chromium, Page
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
WIDTHS = (360, 1600)
SWEEP = """
log = "demo/log.npz"
tasks = "search"
baseline = "equal-share"
[task_sets]
search = { kind = "mix", count = 12, max_nodes = 16 }
[grid]
max_tasks = [2, 4, 8]
cost_factor = [0.5, 1, 16]
"""

# Every figure but the strip on which a part of the time is chosen: what is drawn in it, how large, its smallest words
STATIC = """
[...document.querySelectorAll('figure:not(.chooser)')].map(figure => {
  const forms = [...figure.querySelectorAll('.static > .plot, .static > svg')];
  const shown = forms.filter(one => one.getBoundingClientRect().height);
  const svg = shown[0]?.querySelector('svg') ?? shown[0], box = svg?.getBoundingClientRect();
  const words = [...(svg?.querySelectorAll('text') ?? [])].filter(one => one.getBoundingClientRect().width);
  const places = words.map(one => one.getBoundingClientRect());
  const touching = places.filter((one, i) => places.some((two, j) => i < j && one.left < two.right - 1
    && two.left < one.right - 1 && one.top < two.bottom - 4 && two.top < one.bottom - 4));
  return {
    name: figure.id, count: shown.length, width: box?.width ?? 0, height: box?.height ?? 0,
    marks: svg?.querySelectorAll('path, rect, image, circle').length ?? 0,
    words: words.length, touching: touching.length,
    letters: Math.min(...words.map(one => parseFloat(getComputedStyle(one).fontSize))),
    outside: places.filter(one => one.left < 0 || one.right > document.documentElement.clientWidth).length,
  };
})
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "sweep.toml").write_text(SWEEP)
    tasks = ("tasks", "generate", "--kind", "cluster", "--count", "40", "--arrivals-per-hour", "4", "--users", "3")
    for command in (
        ("demo", "--quick"),
        ("replay", "demo/log.npz", "--tasks", "demo/tasks.toml", "--quick", "--solver", "equal-share", "-o", "other"),
        ("compare", "demo/replay", "other", "-o", "compare.html"),
        ("sweep", "sweep.toml", "-o", "sweep"),
        (*tasks, "--seed", "1", "-o", "jobs.csv"),
        ("replay", "--cluster", "24", "--tasks", "jobs.csv", "--round", "360", "--policy", "las", "-o", "rounds"),
    ):
        ended = bftrain(*command, "-q", cwd=folder)
        assert ended.code == 0, ended.err
    return {
        "report": folder / "demo" / "report.html",
        "comparison": folder / "compare.html",
        "sweep": folder / "sweep" / "report.html",
        "rounds": folder / "rounds" / "report.html",
    }


@pytest.fixture(params=("report", "comparison", "sweep", "rounds"))
def address(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    found: Path = pages[request.param]
    return found


def without_script(browser: Chromium, page: Path, width: int, *, dark: bool = False) -> Page:
    """Open a page in a browser that runs no script."""
    return browser.open(page.as_uri(), width=width, dark=dark, scripts=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_all_pictures_are_there_without_javascript(browser: Chromium, address: Path, width: int) -> None:
    page = without_script(browser, address, width)
    page.screenshot(PICTURES / f"static-{address.parent.name}-{address.stem}-{width}.png")
    found = page.evaluate(STATIC)
    assert len(found) >= 3
    for figure in found:
        assert figure["count"] == 1, figure  # one form of it, for this width
        assert figure["width"] > 0.6 * min(width, 1180), figure
        assert figure["height"] >= 40, figure
        assert figure["marks"] >= 1, figure
        assert figure["words"] >= 2, figure
        assert figure["letters"] >= 11, figure
        assert figure["touching"] == 0, figure
        assert figure["outside"] == 0, figure
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate("[...document.querySelectorAll('.chooser')].every(one => !one.clientHeight)")
    assert page.complaints() == []
    assert_on_paper(page)


def test_all_pictures_are_on_paper(browser: Chromium, address: Path) -> None:
    page = browser.open(address.as_uri(), width=1200)
    page.wait_until("document.documentElement.dataset.drawn")
    assert_on_paper(page)


def assert_on_paper(page: Page) -> None:
    page.prefer("dark", "print")
    page.frames()
    for figure in page.evaluate(STATIC):
        assert figure["count"] == 1, figure
        assert figure["marks"] >= 1, figure
    assert page.evaluate("[...document.querySelectorAll('.draw')].every(one => !one.clientHeight)")


def test_a_program_prints_all_pictures(pages: dict[str, Path], tmp_path: Path) -> None:
    """Print as scripts do, without waiting for anything."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    printed = tmp_path / "report.pdf"
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    command = [program, *options, f"--print-to-pdf={printed}", pages["report"].as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    PICTURES.mkdir(exist_ok=True)
    shutil.copyfile(printed, PICTURES / "report-by-program.pdf")
    content = printed.read_bytes()
    assert len(re.findall(rb"/Subtype */Image", content)) >= 2  # both pictures of rows over time
