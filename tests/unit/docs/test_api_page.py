"""docs/api.md lists every address and every metric, in the words that the live run itself uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bftrain.live.api import http_connection, server
from bftrain.live.api.openapi import described
from bftrain.live.api.routes import ROUTES, description
from tests.helpers.live_inside import decided, in_a_loop, live_inside

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_address_is_on_the_page_in_its_own_words() -> None:
    rows = re.findall(r"^\| (GET|POST) \| `([^`]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [(route.method, route.path, route.about) for route in described(ROUTES)]


@in_a_loop
async def test_every_metric_is_on_the_page_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_inside(tmp_path) as inside:
        monkeypatch.setattr(inside.world, "pilots", {"waiting": 1.0}, raising=False)
        await decided(inside.daemon)  # at the begin there is one
        documented = dict(re.findall(r"^# HELP (\S+) (.+)$", inside.service.metrics.text(), re.MULTILINE))
    rows = dict(re.findall(r"^\| `((?:bftrain|process)_\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert list(rows) == list(documented)
    for name, about in documented.items():
        assert rows[name].startswith(about), name


def test_every_status_is_on_the_page() -> None:
    section = PAGE.partition("| status | when |")[2].partition("\n\n")[0]
    listed = {
        int(status) for row in section.splitlines() for status in re.findall(r"\b\d{3}\b", row.partition(" | ")[0])
    }
    described_ones = {int(name.removeprefix("Refused")) for name in description()["components"]["responses"]}
    assert listed == described_ones | {405}


def test_the_bounds_are_those_of_the_code() -> None:
    assert (http_connection._HEAD_S, server._OF_ONE) == (20.0, 128)  # noqa: SLF001 - what the page tells
    assert (http_connection.LARGEST_BODY, http_connection._LARGEST_HEAD) == (1 << 20, 32 << 10)  # noqa: SLF001 - as above
    for words in ("within 20 s", "larger than 1 MiB", "larger than 32 KiB", "more than 128 connections"):
        assert words in PAGE


def test_metrics_in_the_advice_are_documented() -> None:
    rows = set(re.findall(r"^\| `((?:bftrain|process)_\w+)` \|", PAGE, re.MULTILINE))
    assert {name for name in re.findall(r"bftrain_\w+", PAGE) if not name.startswith("bftrain_elastic")} <= rows
