"""A report in a browser: what the pointer shows is what was, pictures over time follow each other, tables sort."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.helpers.chromium import Chromium, Page
from tests.helpers.report_page import LIGHT, ReportData, material_of, rendered
from tests.unit.replay.cases import log_of, task

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"
OVER_TIME = ("nodes", "sizes", "holders")
START_S = 1.6e9
SPAN_S = 40_000.0
# Nodes leave and join all the time; g is the batch queue's nearly to the end
LOG = log_of(
    (0.0, "abcde", ""),
    *((float(at), *(("f", "d") if at % 2000 else ("d", "f"))) for at in range(1000, 39_000, 1000)),
    (39_500.0, "", "abc"),
    (39_900.0, "g", ""),
    end_s=SPAN_S,
    start_s=START_S,
)


@pytest.fixture(scope="module")
def material() -> ReportData:
    tasks = [
        task("long", max_nodes=2, work_samples=1e9),
        task("short", max_nodes=2, work_samples=2e5),
        task("late & <odd>", rate=(10.0, 18.0, 25.0, 31.0), work_samples=1e9, submit_s=9000.0),
    ]
    return material_of(LOG, tasks, baseline="equal-share")


@pytest.fixture(scope="module")
def address(material: ReportData, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(rendered(material), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser: Chromium, address: str) -> Iterator[Page]:
    opened = drawn(browser.open(address, width=1200))
    yield opened
    assert opened.complaints() == []


def drawn(page: Page) -> Page:
    page.wait_until("document.documentElement.dataset.drawn")
    return page


def box(page: Page, chosen: str) -> tuple[float, float, float, float]:
    """Where something is in the window: left, top, width, height; the window is scrolled to it."""
    page.evaluate(
        f"""(() => {{
            const item = document.querySelector({chosen!r});
            scrollTo({{top: item.getBoundingClientRect().top + scrollY - 250, behavior: 'instant'}});
        }})()"""
    )
    page.frames()
    left, top, width, height = page.evaluate(
        f"""(() => {{
            const box = document.querySelector({chosen!r}).getBoundingClientRect();
            return [box.x, box.y, box.width, box.height];
        }})()"""
    )
    return left, top, width, height


def point(page: Page, figure: str, across: float, down: float) -> list[str]:
    """Point at a share of the width and the height of a raster, and return what is shown."""
    left, top, width, height = box(page, f"#{figure} canvas")
    page.mouse("move", left + width * across, top + height * down)
    page.frames()
    lines: list[str] = page.evaluate("[...document.getElementById('tip').children].map(line => line.textContent)")
    return [] if page.evaluate("document.getElementById('tip').hidden") else lines


TICKS = """
[...document.querySelectorAll('#draw-FIGURE .role-axis-label text')]
  .map(label => label.textContent).filter(text => text.includes(':')).sort().join()
"""


def ticks(page: Page, figure: str) -> str:
    return str(page.evaluate(TICKS.replace("FIGURE", figure)))


def said(time_s: float) -> str:
    return f"{datetime.fromtimestamp(START_S + time_s, UTC):%Y-%m-%d %H:%M:%S}"


def owner(material: ReportData, node: str, time_s: float) -> tuple[str, float, float]:
    """Who had a node, from when to when, read from the table of allocations."""
    held = material.holdings.rows().table()
    for number, row in enumerate(held.node.tolist()):
        if held.nodes[row] == node and held.from_s[number] <= time_s < held.to_s[number]:
            return f"task {held.tasks[held.task[number]]}", float(held.from_s[number]), float(held.to_s[number])
    raise AssertionError(f"{node} at {time_s} was with no task")


@pytest.mark.parametrize(("node", "time_s"), [("a", 5000.0), ("d", 12_100.0)])
def test_the_pointer_shows_node_task_and_time(page: Page, material: ReportData, node: str, time_s: float) -> None:
    row = material.log.node_names.index(node)
    lines = point(page, "holders", time_s / SPAN_S, (row + 0.5) / len(material.log.node_names))
    task_name, from_s, to_s = owner(material, node, time_s)
    assert lines[:2] == [f"node {node}", task_name]
    assert lines[2].startswith(f"{said(from_s)} to ")
    assert said(to_s)[-8:] in lines[2]


def test_the_curve_tells_how_many_were_idle_and_used(page: Page, material: ReportData) -> None:
    left, _, width, _ = box(page, "#holders canvas")  # all figures over time stand in line
    _, top, _, height = box(page, "#draw-nodes svg")
    page.mouse("move", left + width * 12_500.0 / SPAN_S, top + height / 2)
    page.frames()
    over_time = material.nodes_over_time
    at = int((over_time.times_s <= 12_500.0).sum()) - 1
    lines = page.evaluate("document.getElementById('tip').innerText").split("\n")
    assert lines[1] == f"idle {over_time.columns['idle'][at]}, used {over_time.columns['used'][at]}"
    assert abs(moment(lines[0]) - 12_500.0) < 2 * SPAN_S / width
    hairs = page.evaluate("[...document.querySelectorAll('.hair')].map(hair => hair.getBoundingClientRect().x)")
    assert len(hairs) == 3
    assert max(hairs) - min(hairs) < 1.0  # the same moment in all of them


def moment(text: str) -> float:
    """Seconds since the log's start."""
    return datetime.strptime(text[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() - START_S


def pixel(page: Page, across: float, down: float) -> tuple[int, int, int]:
    red, green, blue = page.evaluate(
        f"""(() => {{
            const canvas = document.querySelector('#holders canvas'), one = new OffscreenCanvas(1, 1).getContext('2d');
            const [x, y] = [canvas.width * {across}, canvas.height * {down}].map(Math.floor);
            one.drawImage(canvas, x, y, 1, 1, 0, 0, 1, 1);
            return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }})()"""
    )
    return red, green, blue


def test_dragging_over_a_picture_moves_all_figures_over_time(page: Page, material: ReportData) -> None:
    before = {name: ticks(page, name) for name in OVER_TIME}
    left, _, width, _ = box(page, "#holders canvas")
    _, top, _, height = box(page, "#draw-nodes svg")
    page.drag((left + width * 0.25, top + height / 2), (left + width * 0.5, top + height / 2))
    page.wait_until("document.getElementById('shown-time').textContent !== 'all of the time'")
    page.frames()
    words = page.evaluate("document.getElementById('shown-time').textContent")
    assert abs(moment(words) - SPAN_S / 4) < 3 * SPAN_S / width
    assert words.endswith("(2.78 h)")
    for name in OVER_TIME:
        page.wait_until(f"![{before[name]!r}, ''].includes({TICKS.replace('FIGURE', name)})")
    row = (material.log.node_names.index("a") + 0.5) / len(material.log.node_names)
    lines = point(page, "holders", 0.5, row)
    assert lines[:2] == ["node a", owner(material, "a", SPAN_S * 0.375)[0]]
    page.screenshot(PICTURES / "report-zoomed.png")
    page.evaluate("document.querySelector('[data-look=all]').click()")
    page.frames()
    assert page.evaluate("document.getElementById('shown-time').textContent") == "all of the time"
    for name in OVER_TIME:
        page.wait_until(f"{TICKS.replace('FIGURE', name)} === {before[name]!r}")


def column(page: Page, heading: str) -> list[str]:
    cells: list[str] = page.evaluate(
        f"""(() => {{
            const table = document.querySelector('#tasks table');
            const at = [...table.tHead.rows[0].cells].findIndex(cell => cell.innerText.startsWith({heading!r}));
            return [...table.tBodies[0].rows].map(row => row.cells[at].innerText.replace("\u00a0", " "));
        }})()"""
    )
    return cells


def sort_by(page: Page, heading: str) -> str:
    """Press a heading; gives how the column is sorted now."""
    page.evaluate(
        f"[...document.querySelectorAll('#tasks th button')].find(one => one.textContent === {heading!r}).focus()"
    )
    page.key("Enter", "\r")
    page.frames()
    return str(page.evaluate("document.activeElement.parentElement.getAttribute('aria-sort')"))


def test_a_heading_sorts_numbers_texts_and_what_is_missing(page: Page) -> None:
    assert sort_by(page, "task") == "ascending"
    assert column(page, "task") == ["late & <odd>", "long", "short"]
    assert sort_by(page, "task") == "descending"
    assert column(page, "task") == ["short", "long", "late & <odd>"]
    assert sort_by(page, "submitted") == "ascending"
    assert column(page, "submitted")[-1] == "2.5 h"
    assert column(page, "task")[-1] == "late & <odd>"
    # What has no value comes last either way
    assert column(page, "finished").count("-") == 2
    assert sort_by(page, "finished") == "ascending"
    assert column(page, "finished")[0] != "-"
    assert sort_by(page, "finished") == "descending"
    assert column(page, "finished")[0] != "-"
    assert sort_by(page, "node-hours") == "ascending"
    hours = [float(cell) for cell in column(page, "node-hours")]
    assert hours == sorted(hours)
    assert page.evaluate("document.querySelectorAll('#tasks [aria-sort]').length") == 1


ALIGNED = """
(() => {
  const lines = [...document.querySelectorAll('#draw-holders .role-axis-domain line')];
  const axis = lines.map(line => line.getBoundingClientRect()).find(box => box.width > 20);
  const canvas = document.querySelector('#holders canvas').getBoundingClientRect();
  return [canvas.left - axis.left, canvas.right - axis.right, canvas.bottom - axis.top];
})()
"""


@pytest.mark.parametrize("closer", [0, 3])
def test_a_raster_lies_in_its_axes_at_any_width_and_on_paper(page: Page, closer: int) -> None:
    for _ in range(closer):
        page.evaluate("document.querySelector('[data-look=in]').click()")
        page.frames()
    for width in (1200, 800, 360, 1000):
        page.resize(width)
        page.wait_until(f"[...document.querySelectorAll('.draw svg')].every(svg => svg.clientWidth <= {width})")
        page.evaluate("new Promise(done => setTimeout(done, 300))")  # a page waits until a window has settled
        page.frames()
        off: list[float] = page.evaluate(ALIGNED)
        assert max(map(abs, off)) < 2.0, (width, off)
        assert box(page, "#holders canvas")[2] > 0.7 * width
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.resize(730)
    page.prefer("dark", "print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.frames()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("getComputedStyle(document.querySelector('.looks')).display") == "none"
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    off = page.evaluate(ALIGNED)
    assert max(map(abs, off)) < 2.0, off
    if closer:
        red, green, blue = pixel(page, 0.1, 0.99)
        assert f"#{red:02x}{green:02x}{blue:02x}" == LIGHT["busy"]  # paper is light, in any theme of the reader
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
