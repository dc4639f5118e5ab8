"""The page of a sweep, opened in a real browser on a telephone, a laptop and a large screen, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.chromium import Chromium, Page
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
SPEC = """\
title = "How many tasks, and how dear is rescaling?"
log = "small"
tasks = "mix"
baseline = "equal-share"
logs = { small = { nodes = 24, days = 0.2, seed = 3 } }
task_sets = { mix = { count = 4, max_nodes = 8, work_samples = 1e7 } }
plot = ["efficiency", "rescales"]

[grid]
max_tasks = [1, 2, 4]
cost_factor = [0.25, 1, 4]
seed = [1, 2]
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "an <awkward> & name"
    folder.mkdir()
    (folder / "sweep.toml").write_text(SPEC)
    ended = bftrain("sweep", "sweep.toml", "-o", "out", "--jobs", "2", cwd=folder)
    assert ended.code == 0, ended.err
    return folder / "out" / "report.html"


@pytest.fixture(scope="module", params=(360, 1000, 1600), ids="{} px".format)
def page(request: pytest.FixtureRequest, browser: Chromium, report: Path) -> Page:
    width: int = request.param
    opened = browser.open(report.as_uri(), width=width)
    opened.screenshot(PICTURES / f"sweep-{width}.png")
    return opened


def test_it_opens_without_a_complaint_and_alone(page: Page, report: Path) -> None:
    assert page.complaints() == []
    assert [address for address in page.requests() if not address.startswith("data:")] == [report.as_uri()]


def test_every_plot_is_drawn_and_fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    drawn = page.evaluate(
        "[...document.querySelectorAll('figure')]"
        ".map(one => [one.id, one.querySelectorAll('.draw svg, canvas').length])"
    )
    assert [name for name, _ in drawn] == [
        f"{metric}-by-{over}" for metric in ("efficiency", "rescales") for over in ("max_tasks", "cost_factor")
    ]
    assert all(drawings == 1 for _, drawings in drawn)
