"""Static pictures: figures as SVG without a browser, in the colours of the page, true to their numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bftrain
from bftrain import Settings, sample_log
from bftrain_datasets.workloads.task_generators import sample_tasks
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.series import STEPS, StepSeries, TimeAxis
from bftrain_replay.drawing.static.picture import static_picture
from tests.unit.replay.cases import laid_out


@pytest.fixture(scope="module")
def figures() -> Sequence[ChartFigure]:
    done = bftrain.replay(sample_log(), sample_tasks(), Settings(), baseline="equal-share")
    return [each for each in laid_out(done).figures if not each.chooses_time]


@pytest.fixture
def _without_vega(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(figure: ChartFigure) -> str:
        raise AssertionError(f"Vega was asked for '{figure.name}'")

    monkeypatch.setattr(vega, "svg", refuse)


def parsed(picture: str) -> ET.Element:
    """Read a picture; its key may stand beside it."""
    return ET.fromstring(f"<div>{picture}</div>")  # noqa: S314 - our own


@pytest.mark.usefixtures("_without_vega")
def test_each_figure_of_a_report_is_drawn_by_us(figures: Sequence[ChartFigure]) -> None:
    for figure in figures:
        picture = static_picture(figure)
        drawn = parsed(picture)
        marks = [each for each in drawn.iter() if each.tag in {"path", "rect", "image", "circle"}]
        assert marks, figure.name
        assert "NaN" not in picture
        assert "nan" not in re.sub(r'href="[^"]*"', "", picture)
        assert not re.search(r'="@|:@', picture)  # each role became a variable of the page
        assert len(picture) < 60_000, figure.name


def bars(picture: str) -> list[tuple[float, float]]:
    """Where bars begin and how wide they are, in percent."""
    return [
        (float(each.attrib["x"].rstrip("%")), float(each.attrib["width"].rstrip("%")))
        for each in parsed(picture).iter("rect")
    ]


def test_bars_are_as_long_as_their_numbers() -> None:
    rows = [{"n": "a", "v": 25.0, "c": "one"}, {"n": "a", "v": 75.0, "c": "two"}, {"n": "b", "v": 50.0, "c": "one"}]
    spec = {
        "data": {"values": rows},
        "mark": "bar",
        "encoding": {
            "y": {"field": "n", "type": "nominal"},
            "x": {"field": "v", "type": "quantitative"},
            "color": {"field": "c", "type": "nominal"},
        },
    }
    picture = static_picture(ChartFigure(name="x", title="t", alt="", spec=spec))
    assert bars(picture) == [(0.0, 25.0), (25.0, 75.0), (0.0, 50.0)]  # those of one name upon each other


def series_figure(series: StepSeries) -> ChartFigure:
    moments = TimeAxis(0.0, series.end_s)
    area = {"mark": {"type": "area", "interpolate": "step-after"}, "encoding": {"y": {"field": "n"}}}
    encoding = {"x": moments.axis(), "y": {"type": "quantitative", "scale": {"nice": False}}}
    return ChartFigure(
        name="x", title="t", alt="", moments=moments, series=[series], spec={"encoding": encoding, "layer": [area]}
    )


def test_a_peak_that_averages_would_hide_is_on_paper() -> None:
    values = np.zeros(100 * STEPS)
    values[4321] = 70.0
    series = StepSeries(times_s=np.arange(values.size, dtype=float), end_s=float(values.size), columns={"n": values})
    picture = static_picture(series_figure(series))
    labels = [each.text for each in parsed(picture).iter("text")]
    assert "60" in labels  # the axis reaches to the peak, not to the mean of its step, 0.7
    pale = next(each for each in parsed(picture).iter("path") if each.get("opacity"))
    assert re.search(r"V0H", pale.attrib["d"])  # and so does the band
    assert "lowest to highest" in picture


def test_steps_that_fit_have_no_band() -> None:
    series = StepSeries(times_s=np.array([0.0, 5.0]), end_s=10.0, columns={"n": np.array([1.0, 4.0])})
    picture = static_picture(series_figure(series))
    assert "lowest" not in picture
    (area,) = parsed(picture).iter("path")
    assert area.attrib["d"] == "M0,195H500V0H1000V260H0Z"


@given(
    st.lists(st.floats(0.0, 99.0, width=32), min_size=1, max_size=40, unique=True).map(sorted),
    st.integers(1, 12),
    st.lists(st.integers(0, 9), min_size=40, max_size=40),
)
def test_extremes_are_those_of_each_step(times: list[float], most: int, numbers: list[int]) -> None:
    values = np.array(numbers[: len(times)], dtype=float)
    series = StepSeries(times_s=np.array(times), end_s=100.0, columns={"n": values})
    found = series.extremes(most, "_low", "_high")
    edges = np.append(found.times_s, 100.0)
    for place in range(found.times_s.size):
        begin, end = edges[place], edges[place + 1]
        ends = [*times[1:], 100.0]
        inside = [v for t, u, v in zip(times, ends, values, strict=True) if t < end and u > begin]
        assert found.columns["n_low"][place] == min(inside)
        assert found.columns["n_high"][place] == max(inside)
