"""The page of ``bftrain assess`` in a real browser: two screens for the people who decide, on a telephone too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.chromium import Chromium
from tests.helpers.program import bftrain

pytestmark = pytest.mark.chromium

WORTH = ("--node-watts", "idle=150,busy=500", "--price-kwh", "0.2", "--co2", "300", "--node-hour-price", "1.5")
DELAY = ("--handback-delay", "60")
TWO_SCREENS = 2 * 960  # pixels


@pytest.fixture(scope="module")
def assessed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("assess")
    made = [
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "12", "--days", "2", "--start", "1.6e9", cwd=place),
        bftrain("assess", "log.npz", "-o", "out", *WORTH, *DELAY, cwd=place, BFTRAIN_QUICK="0"),
    ]
    assert [ended.code for ended in made] == [0, 0], [ended.err for ended in made]
    return place / "out" / "assess.html"


def test_it_is_two_screens_with_all_its_pictures(browser: Chromium, assessed: Path) -> None:
    page = browser.open(assessed.as_uri(), width=1440, height=960)
    page.wait_until('document.documentElement.dataset.drawn === "yes"')
    assert page.evaluate("document.documentElement.scrollHeight") <= TWO_SCREENS
    names = page.evaluate("[...document.querySelectorAll('figure')].map(each => each.id)")
    assert names == ["hours", "weekdays", "saturation"]
    text = page.evaluate("document.body.innerText")
    assert "node-hours a week can be harvested" in text
    assert "bftrain assess log.npz -o out" in text
