"""Every page, from telephones to large screens: on paper, without JavaScript, and static."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.chromium import FAINT, STICKING_OUT, Chromium
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

# Every figure: what is drawn in it, how large
DRAWN = """
[...document.querySelectorAll('figure')].map(figure => {
  const drawings = [...figure.querySelectorAll('.static > svg, .draw svg')];
  const shown = drawings.filter(one => one.getBoundingClientRect().height);
  const box = shown[0]?.getBoundingClientRect();
  const words = [...(shown[0]?.querySelectorAll('text') ?? [])].filter(one => one.getBoundingClientRect().width);
  return {
    name: figure.id, count: shown.length, width: box?.width ?? 0, height: box?.height ?? 0,
    marks: shown[0]?.querySelectorAll('path, rect, image, circle').length ?? 0, words: words.length,
    letters: Math.min(...words.map(one => one.getBoundingClientRect().height)),
  };
})
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "sweep.toml").write_text(SWEEP)
    tasks = ("generate", "tasks", "--kind", "cluster", "--count", "40", "--arrivals-per-hour", "4", "--users", "3")
    for command in (
        ("demo", "--quick"),
        ("replay", "demo/log.npz", "--tasks", "demo/tasks.toml", "--quick", "--solver", "equal-share", "-o", "other"),
        ("compare", "demo/replay", "other", "-o", "compare.html"),
        ("compare", "demo/replay", "other", "-o", "static-compare.html", "--static"),
        ("report", "demo/replay", "-o", "static-report.html", "--static"),
        ("sweep", "sweep.toml", "-o", "sweep"),
        (*tasks, "--seed", "1", "-o", "jobs.csv"),
        ("rounds", "--cluster", "24", "--tasks", "jobs.csv", "--round", "360", "--policy", "las", "-o", "rounds"),
        ("report", "rounds", "-o", "static-rounds.html", "--static"),
        ("assess", "demo/log.npz", "--quick", "--node-hour-price", "1.5", "-o", "assessment"),
        ("reproduce", "gavel", "makespan", "--quick", "--seeds", "0", "-o", "reproduction"),
    ):
        ended = bftrain(*command, "-q", cwd=folder)
        assert ended.code == 0, ended.err
    static = {name: folder / f"static-{name}.html" for name in ("report", "compare", "rounds")}
    return {
        **{path.stem: path for path in static.values()},
        "report": folder / "demo" / "report.html",
        "comparison": folder / "compare.html",
        "sweep": folder / "sweep" / "report.html",
        "rounds": folder / "rounds" / "report.html",
        "assessment": folder / "assessment" / "assess.html",
        "reproduction": folder / "reproduction" / "report.html",
    }


@pytest.fixture(params=("report", "comparison", "sweep", "rounds", "assessment", "reproduction"))
def address(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    found: Path = pages[request.param]
    return found


# The order of the first of each kind of part on a page
ORDER = """
[...document.querySelectorAll('h1, .lead, figure, .cards, table')].map((one) =>
  one.tagName === 'FIGURE' ? 'figure' : one.className || one.tagName.toLowerCase())
  .filter((name, place, all) => all.indexOf(name) === place)
"""
FIXED = "[...document.querySelectorAll('main *')].filter((one) => getComputedStyle(one).position === 'fixed').length"
STICKY = (
    "[...document.querySelectorAll('main *')].filter((one) => getComputedStyle(one).position === 'sticky' "
    "&& !one.closest('.scroll')).length"
)
HIDDEN_PART = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)"


@pytest.mark.parametrize(("width", "dark"), [(420, False), (1024, True), (1440, False)])
def test_a_page_begins_with_a_sentence_a_picture_and_cards(
    browser: Chromium, address: Path, width: int, *, dark: bool
) -> None:
    page = browser.open(address.as_uri(), width=width, dark=dark)
    page.wait_until("document.documentElement.dataset.drawn")
    page.screenshot(PICTURES / f"page-{address.parent.name}-{address.stem}-{width}.png")
    assert page.evaluate(ORDER) == ["h1", "lead", "figure", "cards", "table"]
    assert page.evaluate("document.querySelector('.lead').textContent.trim().match(/[.](?=\\s+[A-Z]|$)/g).length") == 1
    assert page.evaluate(f"{FIXED} + {STICKY}") == 0
    assert page.evaluate("[document.body, document.documentElement].every((one) => one.scrollWidth <= innerWidth)")
    assert (page.evaluate(STICKING_OUT), page.evaluate(FAINT), page.complaints()) == ([], [], [])
    assert [one for one in page.requests() if not one.startswith("data:")] == [address.as_uri()]
    assert all(figure["count"] == 1 and figure["marks"] for figure in page.evaluate(DRAWN))
    words = page.evaluate("document.body.innerText")
    assert not re.search(r"\b(undefined|NaN|None)\b", words)
    # A table that is cut off fades out at the edge where more of it is
    page.wait_until(f"{HIDDEN_PART}.every((one) => getComputedStyle(one).getPropertyValue('--after') !== '0px')")


@pytest.mark.parametrize("name", ["static-report", "static-compare", "static-rounds"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_static_page_has_all_pictures_without_javascript(
    browser: Chromium, pages: dict[str, Path], name: str, width: int
) -> None:
    page = browser.open(pages[name].as_uri(), width=width, scripts=False)
    page.screenshot(PICTURES / f"{name}-{width}.png")
    drawn = page.evaluate(DRAWN)
    assert len(drawn) >= 3
    for figure in drawn:
        assert figure["count"] == 1, figure
        assert figure["width"] >= 400, figure
        assert figure["height"] >= 40, figure
        assert figure["marks"] >= 1, figure
        assert figure["words"] >= 2, figure
        assert figure["letters"] >= 11, figure
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate("document.querySelectorAll('script, button').length") == 0
    identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(identifiers) == len(set(identifiers))
    assert "static" in page.evaluate("document.body.innerText")
    assert page.complaints() == []


def test_without_javascript_a_page_names_the_command_for_a_static_one(browser: Chromium, address: Path) -> None:
    page = browser.open(address.as_uri(), width=800, scripts=False)
    assert re.search(r"need JavaScript; bftrain .+ draws", page.evaluate("document.body.innerText"))
    empty = "[...document.querySelectorAll('.frame, .looks')].every(one => !one.clientHeight)"
    assert page.evaluate(empty)
    assert page.complaints() == []


def test_all_pictures_are_on_paper(browser: Chromium, address: Path) -> None:
    page = browser.open(address.as_uri(), width=1200)
    page.wait_until("document.documentElement.dataset.drawn")
    page.prefer("dark", "print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.frames()
    for figure in page.evaluate(DRAWN):
        assert figure["count"] == 1, figure
        assert figure["marks"] >= 1, figure
    assert page.evaluate("[...document.querySelectorAll('canvas')].every(one => one.clientHeight)")


def test_a_program_prints_the_pictures_of_a_static_page(pages: dict[str, Path], tmp_path: Path) -> None:
    """Print as scripts do, without waiting for anything."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    printed = tmp_path / "report.pdf"
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    command = [program, *options, f"--print-to-pdf={printed}", pages["static-report"].as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    PICTURES.mkdir(exist_ok=True)
    shutil.copyfile(printed, PICTURES / "report-by-program.pdf")
    content = printed.read_bytes()
    assert len(re.findall(rb"/Subtype */Image", content)) >= 2  # both pictures of rows over time
