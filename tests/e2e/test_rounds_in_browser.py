"""Policies of rounds against each other, as commands and in a real browser: swept against load, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_compare_in_browser import ALL_DRAWN, TWO_FRAMES
from tests.helpers.chromium import STICKING_OUT, Chromium, Page
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

PICTURES = Path(__file__).parents[1] / "artefacts"  # kept for people to look at; git ignores it
WIDTHS = (500, 1400)
SPEC = """\
title = "Three policies"
cluster = "v100=2,k80=2"
tasks = "jobs"
plot = ["completion_s_mean", "rho_p95"]

[task_sets]
jobs = { kind = "cluster", count = 12, gangs = "1:0.7,2:0.3", long_share = 0 }

[fixed]
round_s = 360

[grid]
policy = ["fifo", "las", "max-min"]
tasks.arrivals_per_hour = [1, 4]
seed = [1, 2]
"""
JOBS = ("--kind", "cluster", "--count", "30", "--gangs", "1:0.7,2:0.3", "--long-share", "0", "--users", "3")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("swept")
    (place / "sweep.toml").write_text(SPEC)
    ended = bftrain("sweep", "sweep.toml", "-o", "out", "--jobs", "2", cwd=place)
    assert (ended.code, ended.err) == (0, "result: out\n")
    assert "Three policies: 12 points" in ended.out
    return place / "out"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compare two policies and a replay without rounds."""
    place = tmp_path_factory.mktemp("compared")
    on = ("replay", "--cluster", "4", "--tasks", "jobs.csv")
    made = [
        bftrain("generate", "tasks", *JOBS, "--arrivals-per-hour", "4", "-o", "jobs.csv", cwd=place),
        bftrain("rounds", *on[1:], "--round", "360", "--policy", "fifo", "-o", "fifo", cwd=place),
        bftrain("rounds", *on[1:], "--round", "360", "--policy", "las", "--tables", "csv", "-o", "las", cwd=place),
        bftrain(*on, "-o", "whole", cwd=place),
        bftrain("compare", "fifo", "las", "whole", "-o", "page.html", cwd=place),
    ]
    assert [ended.code for ended in made] == [0] * 5, [ended.err for ended in made]
    assert "completion, mean of" in made[-1].out
    return place / "page.html"


def opened(browser: Chromium, path: Path, width: int) -> Page:
    page = browser.open(path.as_uri(), width=width)
    page.evaluate(ALL_DRAWN)
    page.evaluate(TWO_FRAMES)
    page.screenshot(PICTURES / f"rounds-{path.parent.name}-{path.stem}-{width}.png")
    assert page.complaints() == []
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_sweep(browser: Chromium, swept: Path, width: int) -> None:
    page = browser.open((swept / "report.html").as_uri(), width=width)
    page.screenshot(PICTURES / f"rounds-sweep-{width}.png")
    assert page.complaints() == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    drawn = page.evaluate(
        "[...document.querySelectorAll('figure')]"
        ".map(one => [one.id, one.querySelectorAll('.draw svg, canvas').length])"
    )
    assert ["completion_s_mean-by-tasks-arrivals_per_hour", 1] in drawn
    assert "12 replays of v100=2,k80=2 with jobs" in page.evaluate("document.body.innerText")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_comparison(browser: Chromium, compared: Path, width: int) -> None:
    page = opened(browser, compared, width)
    drawn = page.evaluate("[...document.querySelectorAll('[data-drawn=yes].draw')].map(item => item.id.slice(5))")
    assert {"finished", "rho", "harvest", "ahead", "used-1", "used-2", "used-3"} == set(drawn)
    text = page.evaluate("document.body.innerText")
    for words in ("Tasks were done soonest with", "time until the first round ended, mean", "policy", "las"):
        assert words in text
    assert "undefined" not in text
    assert "NaN" not in text
