"""The status page of a live run in a real browser: it shows nodes and tasks, follows them, and survives a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.chromium import FAINT, STICKING_OUT, Chromium, Page
from tests.helpers.live_seen import ObservedRun

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
WIDTHS = (420, 1024, 1440)
NODES = tuple(f"nid{number:05d}" for number in range(1, 13))
TASKS = ("resnet50", "bert-base", "wave-net", "climate-emulator", "protein-fold")
LIVE = "document.getElementById('contact')?.textContent === 'live'"
# How many different colours a canvas shows: one that nothing was drawn on has one
COLOURS = """
(() => {
  const canvas = document.getElementById('%s'), pen = canvas.getContext('2d');
  const data = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(data).size;
})()
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path) as running:
        yield running


@pytest.fixture
def busy(live: ObservedRun) -> ObservedRun:
    for name in TASKS:
        live.submit(name, largest=6, work_samples=4e6)
    live.submit("x" * 100)  # as long as a name may be
    live.past(TASKS, len(NODES), 3000)
    live.lend(*NODES)
    live.report("resnet50", 10, samples=3000)
    return live


def opened(browser: Chromium, live: ObservedRun, width: int = 1400, **more: bool) -> Page:
    page = browser.open(f"{live.address}#token={live.token}", width=width, **more)
    page.wait_until(LIVE)
    page.frames()
    return page


def text(page: Page, name: str) -> str:
    return str(page.evaluate(f"document.getElementById('{name}').innerText"))


@pytest.mark.parametrize("width", WIDTHS)
def test_all_is_shown_at_every_width_in_light_and_dark(browser: Chromium, busy: ObservedRun, width: int) -> None:
    for dark in (False, True):
        page = opened(browser, busy, width, dark=dark)
        page.wait_until("document.getElementById('tasks').children.length === 6")
        page.wait_until("document.getElementById('card-nodes').textContent === '12 of 12'")
        page.wait_until("document.querySelector('#usage-box thead').offsetHeight > 0")  # or the figures are unexplained
        page.screenshot(PICTURES / f"live-page-{width}-{'dark' if dark else 'light'}.png")
        assert page.complaints() == []
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.evaluate(FAINT) == []
        assert page.evaluate(COLOURS % "sizes") > 4
        assert page.evaluate(COLOURS % "nodes") > 3
        order = "[...document.querySelectorAll('#lead, #sizes, .cards, #tasks')].map((one) => one.id || one.className)"
        assert page.evaluate(order) == ["lead", "sizes", "cards", "tasks"]
        assert text(page, "lead").startswith("2 tasks use 12 of 12 nodes; today ")
        words = text(page, "shown")
        for name in TASKS:
            assert name in words
        assert "undefined" not in words
        assert "NaN" not in words


def test_the_token_is_kept_from_the_address_and_sent_to_no_other_host(browser: Chromium, busy: ObservedRun) -> None:
    page = opened(browser, busy)
    assert page.evaluate("location.href") == busy.address
    asked = page.requests()
    assert all(address.startswith(busy.address) for address in asked)
    assert not any(busy.token in address.partition("#")[0] for address in asked)
    # It is kept for this tab: a reload needs no token
    page.reload()
    page.wait_until(LIVE)


def test_without_a_token_it_asks_and_a_wrong_one_is_refused(browser: Chromium, busy: ObservedRun) -> None:
    page = browser.open(busy.address, width=900)
    page.wait_until("!document.getElementById('ask').hidden")
    assert page.evaluate("document.getElementById('shown').hidden")
    assert page.evaluate("document.getElementById('ask-wrong').hidden")
    give = "(document.getElementById('ask-token').value = '%s', document.querySelector('#ask button').click())"
    page.evaluate(give % "x")
    page.wait_until("!document.getElementById('ask-wrong').hidden")
    page.screenshot(PICTURES / "live-page-wrong-token.png")
    page.evaluate(give % busy.token)
    page.wait_until(f"{LIVE} && !document.getElementById('shown').hidden")
    assert page.evaluate("document.getElementById('ask').hidden")


def test_nodes_that_join_and_leave_are_seen_without_a_reload(browser: Chromium, live: ObservedRun) -> None:
    live.submit("alone", largest=8)
    page = opened(browser, live)
    page.wait_until("document.getElementById('card-nodes').textContent === '0 of 0'")
    assert not page.evaluate("document.getElementById('no-nodes').hidden")
    page.evaluate("window.stays = true")
    live.lend("a1", "a2", "a3")
    page.wait_until("document.getElementById('card-nodes').textContent === '3 of 3'")
    page.wait_until("document.getElementById('nodes').ariaLabel?.startsWith('3 nodes: 3 used')")
    page.wait_until("document.querySelector('#tasks .nodes').textContent.startsWith('3 of 1')")
    live.take("a2")
    page.wait_until("document.getElementById('card-nodes').textContent === '2 of 2'")
    page.wait_until("document.querySelector('#feed li.left')?.textContent.includes('a2 taken back: 2 nodes available')")
    live.submit("another", largest=8)
    page.wait_until("document.getElementById('tasks').children.length === 2")
    live.run.do(lambda inside: inside.world.tell("alone", "done"))
    page.wait_until("document.querySelector('#tasks tr.over')?.textContent.includes('done')")
    assert page.evaluate("window.stays")
    assert page.complaints() == []


def test_times_of_finished_tasks_are_drawn(browser: Chromium, live: ObservedRun) -> None:
    live.lend(*NODES)
    for number in range(9):
        live.submit(f"trial{number}", largest=2, campaign="mixer" if number % 3 else "")
    for number in range(9):
        live.report(f"trial{number}", 3)
        live.run.do(lambda inside, number=number: inside.world.tell(f"trial{number}", "done"))
    for width, dark in ((420, False), (1440, True)):
        page = opened(browser, live, width, dark=dark)
        page.wait_until("!document.getElementById('completed').hidden")
        page.frames()
        page.evaluate("document.getElementById('completed').scrollIntoView()")
        page.screenshot(PICTURES / f"live-page-completed-{width}.png")
        assert text(page, "completed-words").startswith("9 tasks: done ")
        assert page.evaluate(COLOURS % "completed-picture") > 4
        rows = page.evaluate(
            "[...document.querySelectorAll('#campaigns tr')].map((row) => row.innerText.split('\\t')[0])"
        )
        assert rows == ["mixer", "none"]
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate(FAINT) == []
        assert page.complaints() == []


def test_it_says_that_contact_is_lost_and_goes_on_after_a_restart(browser: Chromium, busy: ObservedRun) -> None:
    page = opened(browser, busy)
    page.wait_until("document.getElementById('card-nodes').textContent === '12 of 12'")
    busy.end()
    page.wait_until("!document.getElementById('lost').hidden")
    assert "Lost contact at" in text(page, "lost")
    assert page.evaluate("document.title").startswith("(lost)")
    page.screenshot(PICTURES / "live-page-lost.png")
    busy.world.allowed.difference_update(NODES[:4])
    busy.begin()
    page.wait_until(f"{LIVE} && document.getElementById('lost').hidden")
    page.wait_until("document.getElementById('card-nodes').textContent === '8 of 8'")
    page.wait_until("document.getElementById('nodes').ariaLabel.startsWith('12 nodes: 8 used')")
    assert page.evaluate("document.getElementById('tasks').children.length") == len(TASKS) + 1
    # What was seen before is still there
    assert page.evaluate(COLOURS % "sizes") > 4


def test_thousands_of_nodes_fit_and_cost_the_browser_little(browser: Chromium, live: ObservedRun) -> None:
    names = tuple(f"h{number:02d}n{node:02d}" for number in range(1, 49) for node in range(96))
    live.submit("wide", largest=4000)
    live.lend(*names)
    for width in (390, 1400):
        page = opened(browser, live, width)
        page.wait_until("document.getElementById('nodes').ariaLabel?.startsWith('4608 nodes: 4000 used, 608 unused')")
        page.screenshot(PICTURES / f"live-page-4608-{width}.png")
        high = page.evaluate("document.getElementById('nodes').getBoundingClientRect().height")
        assert high < 600
        assert page.evaluate(STICKING_OUT) == []
    before = page.busy_s()
    page.evaluate("new Promise((done) => setTimeout(done, 3000))")
    assert page.busy_s() - before < 1.0
