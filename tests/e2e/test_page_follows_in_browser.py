"""A report's page in a browser: a highlighted task, the filter of a table, and links that keep what is shown."""

from __future__ import annotations

import pytest

from tests.helpers.chromium import Chromium, Page
from tests.helpers.report_page import LIGHT, ReportData, material_of, rendered
from tests.unit.replay.cases import log_of, task

pytestmark = pytest.mark.chromium

SPAN_S = 40_000.0
LOG = log_of(
    (0.0, "abcdefgh", ""),
    (10_000.0, "", "ab"),
    (20_000.0, "ab", "gh"),
    (30_000.0, "gh", ""),
    end_s=SPAN_S,
    start_s=1.6e9,
)
NAMES = [f"net-{number:02d}" for number in range(12)]
FOLLOWED = f"rgb({', '.join(str(part) for part in bytes.fromhex(LIGHT['followed'][1:]))})"


@pytest.fixture(scope="module")
def material() -> ReportData:
    tasks = [
        task(name, max_nodes=2, work_samples=1e5 * (1 + place), user=("ana", "bo <b>")[place % 2])
        for place, name in enumerate(NAMES)
    ]
    return material_of(LOG, tasks)


@pytest.fixture(scope="module")
def opened(browser: Chromium, material: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("follow") / "report.html"
    path.write_text(rendered(material), encoding="utf-8")
    return browser.open(path.as_uri(), width=1200)


@pytest.fixture
def page(opened: Page) -> Page:
    opened.to_front()
    opened.wait_until("document.documentElement.dataset.drawn")
    opened.evaluate("document.activeElement.blur(), location.hash = `nothing=${Math.random()}`")
    opened.wait_until("location.hash === ''")  # it has read the address, and then kept nothing in it
    opened.wait_until("document.getElementById('shown-time').textContent === 'all of the time'")
    opened.frames()
    return opened


MARKED = "[...document.querySelectorAll('#tasks tr.followed th')].map(one => one.textContent)"
LINK = "[...document.querySelectorAll('#tasks th a')].find(one => one.textContent === '{}').click()"
COLOURED = """
((figure) => {
  const canvas = document.querySelector(`#${figure} canvas`), {width, height} = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data, rows = new Set();
  let found = 0;
  for (let i = 0; i < data.length; i += 4)
    if (`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})` === COLOUR) {
      found++;
      rows.add(Math.floor(i / 4 / width * ROWS / height));
    }
  return [found / (width * height), [...rows]];
})
"""


def coloured(page: Page, figure: str, rows: int) -> tuple[float, list[int]]:
    """Return the share of a raster's pixels that have the colour of what is followed, and in which of its rows."""
    found = page.evaluate(f"{COLOURED.replace('COLOUR', repr(FOLLOWED)).replace('ROWS', str(rows))}({figure!r})")
    return found[0], sorted(found[1])


def test_a_task_is_highlighted_in_all_pictures(page: Page, material: ReportData) -> None:
    name = "net-01"
    page.evaluate(LINK.format(name))
    page.wait_until(f"document.querySelector('#holders > .key').textContent === '{name}'")
    page.frames()
    held = material.holdings.rows().table()
    mine = held.task == held.tasks.index(name)
    share, rows = coloured(page, "holders", len(material.log.node_names))
    assert rows == sorted(set(held.node[mine].tolist()))
    held_s = float((held.to_s - held.from_s)[mine].sum())
    assert share == pytest.approx(held_s / SPAN_S / len(material.log.node_names), rel=0.1)
    assert len(coloured(page, "sizes", len(held.tasks))[1]) == 1
    assert page.evaluate(MARKED) == [name]
    page.key("Escape")
    page.wait_until("!document.querySelector('tr.followed')")
    page.frames()
    assert coloured(page, "holders", 1)[0] == 0.0


def shown_rows(page: Page) -> list[str]:
    rows: list[str] = page.evaluate(
        "[...document.querySelectorAll('#tasks tbody tr:not([hidden]) th')].map(one => one.textContent)"
    )
    return rows


def test_a_table_is_filtered_by_words_and_by_comparing_a_column(page: Page, material: ReportData) -> None:
    def filtered(text: str) -> list[str]:
        page.evaluate("document.querySelector('#tasks .filter input').value = ''")
        page.evaluate("document.querySelector('#tasks .filter input').focus()")
        page.write(text)
        return shown_rows(page)

    hours = {one["name"]: one["node_h"] for one in material.tasks}
    middle = sorted(hours.values())[5]
    assert filtered("net-03") == ["net-03"]
    assert filtered("finished net-0") == [
        one["name"] for one in material.tasks if one["state"] == "finished" and "net-0" in one["name"]
    ]
    assert filtered(f"node-hours>{middle + 1e-9:.9f}") == [name for name in NAMES if hours[name] > middle]
    waited = {one["name"]: one["waited_s"] for one in material.tasks}
    assert filtered("waited>1h") == [name for name in NAMES if waited[name] > 3600.0]
    assert page.evaluate("document.querySelector('#tasks .filter output').textContent").endswith(" of 12 rows")


def test_a_link_keeps_what_is_shown(page: Page) -> None:
    page.evaluate(LINK.format("net-07"))
    page.evaluate("document.querySelector('[data-look=in]').click()")
    page.evaluate("document.querySelector('#tasks .filter input').focus()")
    page.write("net-0")
    page.evaluate(
        "[...document.querySelectorAll('#tasks th button')].find(one => one.textContent === 'node-hours').click()"
    )
    asked = "#follow=net-07&time=10000-30000&tasks.sort=node-hours:up&tasks.filter=net-0"
    page.wait_until(f"location.hash === {asked!r}")
    words, rows = page.evaluate("document.getElementById('shown-time').textContent"), shown_rows(page)
    page.reload()
    page.wait_until("document.documentElement.dataset.drawn && document.querySelector('tr.followed')")
    page.wait_until(f"document.getElementById('shown-time').textContent === {words!r}")
    assert (shown_rows(page), page.evaluate(MARKED)) == (rows, ["net-07"])
    page.evaluate("document.querySelector('nav a[href=\"#compared\"]').click()")  # a heading is kept beside it
    page.wait_until(f"location.hash === {asked + '&at=compared'!r}")
    assert page.evaluate(MARKED) == ["net-07"]
    assert [words for words in page.complaints() if "willReadFrequently" not in words] == []
