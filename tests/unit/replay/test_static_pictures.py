"""Pictures of a page before its script runs: SVG in the colours of the page, true to their numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import bftrain
from bftrain import Settings, sample_log
from tests.unit.replay.cases import ReplayOutcome, figures_of, log_of, page_of, task


@pytest.fixture(scope="module")
def done() -> ReplayOutcome:
    return bftrain.replay(sample_log(), bftrain.generate_mix(20, seed=0), Settings(), baseline="equal-share")


def pictures_of(page: str) -> dict[str, str]:
    """Return the SVG that stands in a page for each figure; a picture may have several parts, and others inside."""
    found = {}
    for name in figures_of(page):
        place = page.index(f'id="draw-{name}"')
        text, parts, depth, begin = page[place : page.find("</figure>", place)], [], 0, 0
        for tag in re.finditer(r"<svg\b|</svg>", text):
            if tag[0] == "</svg>":
                depth -= 1
                parts += [text[begin : tag.end()]] if depth == 0 else []
            else:
                begin = tag.start() if depth == 0 else begin
                depth += 1
        found[name] = f"<div>{''.join(parts)}</div>"
    return found


def test_each_figure_of_a_report_is_drawn(done: ReplayOutcome) -> None:
    pictures = pictures_of(page_of(done))
    drawn = {name: picture for name, picture in pictures.items() if name != "time"}  # that one chooses the time
    assert len(drawn) >= 5
    for name, picture in drawn.items():
        tree = ET.fromstring(picture)  # noqa: S314 - our own
        marks = [each for each in tree.iter() if each.tag.rpartition("}")[2] in {"path", "rect", "image", "circle"}]
        assert marks, name
        assert "NaN" not in picture
        assert "nan" not in re.sub(r'href="[^"]*"', "", picture)
        assert not re.search(r'="@|:@', picture)  # each role became a variable of the page
        assert len(picture) < 60_000, name


def test_bars_are_as_long_as_their_numbers() -> None:
    log = log_of((0.0, "abcd", ""), end_s=3600.0)
    page = page_of(bftrain.replay(log, [task("one", rate=(10.0,)), task("two", rate=(1.0,), start_cost_s=900.0)]))
    rows = figures_of(page)["waterfall"]["spec"]["data"]["values"]
    picture = ET.fromstring(pictures_of(page)["waterfall"])  # noqa: S314 - our own
    widths = [
        float(each.attrib["width"].rstrip("%")) for each in picture.iter() if each.attrib.get("width", "").endswith("%")
    ]
    whole = rows[0]["to"] - rows[0]["from"]
    expected = [100.0 * abs(row["to"] - row["from"]) / whole for row in rows]
    assert any(width == pytest.approx(expected[0], abs=0.1) for width in widths)
    for share in expected:
        assert any(width == pytest.approx(share, abs=0.1) for width in widths), share
