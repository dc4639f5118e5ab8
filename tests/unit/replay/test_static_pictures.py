"""Static pictures: figures as SVG without a browser, in the colours of the page, true to their numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import Settings, sample_log
from bftrain_datasets.workloads.task_generators import sample_tasks
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlPage, PageSection, html
from bftrain_replay.drawing.series import STEPS, StepSeries, TimeAxis
from bftrain_replay.drawing.static.layers import UnsupportedFigureError, layers_of
from bftrain_replay.drawing.static.picture import static_picture
from bftrain_replay.drawing.static.scales import (
    LinearScale,
    LogScale,
    TickLook,
    TimeScale,
    moment_on_calendar,
    moment_since_start,
    number_format,
)
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.report_data import of_study
from bftrain_replay.study import study

HOUR_MS = 3_600_000.0
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def figures() -> Sequence[ChartFigure]:
    done = study(sample_log(), sample_tasks(), Settings(), baseline="equal-share")
    return [each for each in report.page(of_study(done, InputSource())).figures if not each.chooses_time]


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


@pytest.mark.usefixtures("_without_vega")
def test_words_of_a_waterfall_stand_in_both_forms(figures: Sequence[ChartFigure]) -> None:
    figure = next(each for each in figures if each.name == "waterfall")
    drawn = parsed(static_picture(figure))
    forms = [each for each in drawn if each.get("class", "").startswith("plot")]
    assert [each.get("class") for each in forms] == ["plot wide", "plot narrow"]
    for form in forms:
        texts = [each.text for each in form.iter("text")]
        for row in figure.spec["data"]["values"]:
            assert row["name"] in texts
            assert row["words"] in texts


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


def test_what_we_cannot_draw_vega_does() -> None:
    spec = {
        "data": {"values": [{"a": 1}]},
        "mark": "arc",
        "encoding": {"theta": {"field": "a", "type": "quantitative"}},
    }
    figure = ChartFigure(name="x", title="", alt="", spec=spec)
    with pytest.raises(UnsupportedFigureError, match="arc"):
        layers_of(figure.described(), [])
    assert "marks" in static_picture(figure)  # as Vega's pictures have


def test_a_page_has_its_pictures_without_scripts() -> None:
    series = StepSeries(times_s=np.array([0.0, 5.0]), end_s=10.0, columns={"n": np.array([1.0, 4.0])})
    page = html(HtmlPage(title="t", sections=(PageSection(heading="h", parts=(series_figure(series),)),)))
    bare = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert '<path d="M0,195H500V0H1000V260H0Z"' in bare
    assert "need JavaScript" not in bare


@pytest.mark.parametrize(
    ("name", "step", "value", "text"),
    [
        (".0%", 0.2, 0.4, "40%"),
        (",d", 1000.0, 4608.0, "4,608"),
        ("~s", 1.0, 1_500_000.0, "1.5M"),
        ("~s", 1.0, 0.0, "0"),
        ("~g", 0.0, 0.5, "0.5"),
        (".4~g", 0.0, 1234.56, "1235"),
        ("", 0.5, -1.5, "\N{MINUS SIGN}1.5"),
        ("", 200.0, 1200.0, "1,200"),
    ],
)
def test_numbers_are_written_as_figures_ask(name: str, step: float, value: float, text: str) -> None:
    assert number_format(name, step)(value) == text


def test_moments_are_written_by_what_begins_there() -> None:
    assert moment_on_calendar(1_577_836_800_000) == "2020"
    assert moment_on_calendar(1_580_515_200_000) == "Feb 2020"
    assert moment_on_calendar(1_580_601_600_000) == "2 Feb"
    assert moment_on_calendar(1_580_601_600_000 + HOUR_MS * 1.5) == "01:30"
    assert moment_since_start(2 * DAY_MS) == "day 2"
    assert moment_since_start(2 * DAY_MS + 6 * HOUR_MS) == "06:00"


@given(st.floats(1.0, 8e12), st.floats(0.005, 4e9))
def test_an_axis_of_time_has_some_ticks_and_not_too_many(start_s: float, span_s: float) -> None:
    scale = TimeScale(start_s * 1000, (start_s + span_s) * 1000, on_calendar=True)
    ticks = scale.ticks(8, TickLook())
    assert 2 <= len(ticks) <= 20
    assert all(-1e-6 <= tick.place <= 1.000001 for tick in ticks)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_an_axis_of_numbers_has_round_ticks(low: float, span: float) -> None:
    ticks = LinearScale(low, low + span).ticks(5, TickLook())
    assert 1 <= len(ticks) <= 11 or span < 1e-6 * abs(low)


@given(st.floats(1e-6, 1e6), st.floats(1.1, 1e9))
def test_a_logarithmic_axis_has_ticks(low: float, factor: float) -> None:
    ticks = LogScale(low, low * factor).ticks(8, TickLook())
    assert 2 <= len(ticks) <= 20
    assert all(-1e-6 <= tick.place <= 1.000001 for tick in ticks)
