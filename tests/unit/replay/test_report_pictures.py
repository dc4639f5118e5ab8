"""Pictures of a replay: numbers over time and rasters hold what was, checked cell by cell against plain counting."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bftrain
from bftrain import Settings
from bftrain_replay.drawing import theme
from bftrain_replay.drawing.figure import ChartFigure, StateChanges, StateRaster, in_order
from bftrain_replay.drawing.html_page import HtmlPage, PageSection, html
from bftrain_replay.drawing.series import StepSeries, TimeAxis
from bftrain_replay.drawing.static.picture import static_picture
from bftrain_replay.reporting import over_time
from bftrain_replay.reporting.report_data import ReportData
from tests.unit.replay.cases import log_of, material_of, task

LOG = log_of(
    (0.0, "abcd", ""), (130.0, "", "b"), (410.0, "ef", "a"), (700.0, "ab", "cd"), (1500.0, "", "ef"), end_s=2000.0
)


def made() -> ReportData:
    done = bftrain.replay(LOG, [task("x", max_nodes=2), task("y", max_nodes=2), task("z", max_nodes=1)], Settings())
    return material_of(done)


def numbers(width: float = 100.0) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0.0, width, width=32), min_size=1, max_size=30, unique=True).map(sorted)


@given(times=numbers(), most=st.integers(1, 8))
def test_fewer_steps_keep_the_integral(times: list[float], most: int) -> None:
    values = np.arange(1.0, len(times) + 1)
    whole = StepSeries(times_s=np.array(times), end_s=101.0, columns={"n": values})
    fewer = whole.averaged(most)
    assert fewer.times_s.size <= max(most, 1)

    def integral(series: StepSeries) -> float:
        return float((series.columns["n"] * np.diff(np.append(series.times_s, series.end_s))).sum())

    assert integral(fewer) == pytest.approx(integral(whole))


@st.composite
def changes(draw: st.DrawFn) -> StateRaster:
    rows, end_s = draw(st.integers(1, 5)), 60.0
    some = draw(
        st.lists(st.tuples(st.integers(0, rows - 1), st.floats(0, 70, width=32), st.integers(0, 4)), max_size=25)
    )
    row, since_s, state = (np.array(column) for column in zip(*some, strict=True)) if some else [np.zeros(0)] * 3
    return StateRaster(
        changes=in_order(row.astype(int), since_s.astype(float), state.astype(int), rows=rows, end_s=end_s),
        rows=[f"r{number}" for number in range(rows)],
        labels="vwxyz",
        colours=("@busy", "#010203", "#0405f6", "#f70809"),
    )


@given(changes(), st.integers(1, 9), st.integers(1, 6))
def test_a_pixel_mixes_all_that_falls_into_it(drawn: StateRaster, width: int, height: int) -> None:
    pixels = drawn.pixels(theme.LIGHT, width, height)
    count = len(drawn.rows)
    assert pixels.shape == (min(height, count), width, 3)
    colours = [np.array(list(bytes.fromhex(colour[1:])), dtype=float) for colour in drawn.palette(theme.LIGHT)]
    for line, (low, high) in enumerate(pairwise(np.linspace(0, count, len(pixels) + 1).astype(int).tolist())):
        for column in range(width):
            share = np.zeros(len(colours))  # of what falls into the pixel, what part each state has
            for begin, end, row, state in stretches(drawn.changes):
                if low <= row < high:
                    inside = min(end, (column + 1) * 60.0 / width) - max(begin, column * 60.0 / width)
                    share[state] += max(inside, 0.0) * width / 60.0 / (high - low)
            seen = float(share[1:].sum())
            mixed = sum(part * colour for part, colour in zip(share[1:], colours[1:], strict=True))
            expected = colours[0] if seen < 1e-9 else colours[0] + (mixed / seen - colours[0]) * np.sqrt(seen)
            assert pixels[line, column] == pytest.approx(expected, abs=0.6)


def stretches(drawn: StateChanges) -> list[tuple[float, float, int, int]]:
    """From when to when which row was in which state."""
    ends = np.append(drawn.since_s[1:], drawn.end_s)
    ends[np.append(np.diff(drawn.row) != 0, True)] = drawn.end_s
    return list(zip(drawn.since_s.tolist(), ends.tolist(), drawn.row.tolist(), drawn.state.tolist(), strict=True))


@given(changes())
def test_a_raster_is_packed_without_loss(drawn: StateRaster) -> None:
    packed = drawn.packed(TimeAxis(1.6e9, 60.0))
    many, later, states = (unpacked(packed[name]) for name in ("counts", "later", "states"))
    at = np.frombuffer(zlib.decompress(base64.b64decode(packed["at"])), dtype="<f8")
    assert many.sum() == later.size == states.size == drawn.changes.state.size
    assert np.repeat(np.arange(many.size), many).tolist() == drawn.changes.row.tolist()
    when = np.concatenate([np.cumsum(part) for part in np.split(later, np.cumsum(many)[:-1])])
    assert at[when].tolist() == drawn.changes.since_s.tolist()
    assert states.tolist() == drawn.changes.state.tolist()
    assert packed["start"] == 1.6e12


def unpacked(text: str) -> npt.NDArray[np.int64]:
    """All lowest bytes stand first, then all second ones, and so on."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8).reshape(4, -1).astype(np.int64)
    return planes[0] + (planes[1] << 8) + (planes[2] << 16) + (planes[3] << 24)


def test_of_several_changes_at_once_the_last_counts() -> None:
    row, since_s, state = np.array([0, 0, 1, 0]), np.array([5.0, 5.0, 0.0, 99.0]), np.array([2, 1, 1, 2])
    drawn = in_order(row, since_s, state, rows=2, end_s=10.0)
    assert stretches(drawn) == [(0.0, 5.0, 0, 0), (5.0, 10.0, 0, 1), (0.0, 10.0, 1, 1)]


def state_of(drawn: StateRaster, row: int, time_s: float) -> str:
    (place,) = [state for begin, end, of, state in stretches(drawn.changes) if of == row and begin <= time_s < end]
    return drawn.labels[place]


@pytest.mark.parametrize("by", ["kind", "partition", "rack", "name"])
def test_rows_of_nodes_stand_in_groups(by: str) -> None:
    log = log_of((0.0, ("b2", "a10", "a9", "b1"), ()), (500.0, (), ("a10", "b1")), end_s=1000.0)
    sets = {"v100": "a10,b[1-2]", "k80": "a9"}
    if by == "partition":
        log = replace(log, provenance=msgspec.structs.replace(log.provenance, partitions=sets))
    if by == "kind":
        log = replace(log, kind_names=("v100", "k80"), node_kinds=np.array([0, 0, 1, 0], dtype=np.int32))
        assert log.node_names == ("a10", "a9", "b1", "b2")
    done = bftrain.replay(log, [task("x", max_nodes=2)], Settings(racks=sets if by == "rack" else {}))
    figure = over_time.holders(material_of(done))
    drawn = figure.raster
    assert drawn is not None
    assert drawn.rows == (["b1", "a9", "a10", "b2"] if by == "kind" else ["a9", "a10", "b1", "b2"])
    assert drawn.groups == ([("a*", 0), ("b*", 2)] if by == "name" else [("k80", 0), ("v100", 1)])
    assert figure.spec["encoding"]["y"]["axis"]["title"] == f"nodes, by {by}"
    for row, name in enumerate(drawn.rows):
        gone = state_of(drawn, row, 900.0) == "the batch queue's"
        assert gone is (name in {"a10", "b1"})
    for name, _ in drawn.groups:
        assert f">{name}</text>" in static_picture(figure)
    spec = figure.spec | {"height": 30}  # the first group has no room for its name
    low = msgspec.structs.replace(figure, height=30, spec=spec)
    shown = [name for name, _ in drawn.groups if f">{name}</text>" in static_picture(low)]
    assert shown == [name for name, _ in drawn.groups if by == "name" or name == "v100"]


def test_at_each_moment_each_node_is_shown_with_who_had_it() -> None:
    material = made()
    drawn = over_time.holders(material).raster
    assert drawn is not None
    held = material.holdings.table()
    assert tuple(drawn.rows) == material.log.node_names
    seen = set()
    for row, name in enumerate(material.log.node_names):
        for time_s in np.arange(0.5, 2000.0, 1.0):
            had = [
                held.tasks[task]
                for task, node, begin, end in zip(held.task, held.node, held.from_s, held.to_s, strict=True)
                if node == row and begin <= time_s < end
            ]
            idle = any(begin <= time_s < end for begin, end in idle_times(name))
            expected = had[0] if had else "idle, unused" if idle else "the batch queue's"
            assert state_of(drawn, row, time_s) == expected, (name, time_s)
            seen.add(expected)
    assert len(seen) >= 4


def idle_times(node: str) -> list[tuple[float, float]]:
    return {
        "a": [(0.0, 410.0), (700.0, 2000.0)],
        "b": [(0.0, 130.0), (700.0, 2000.0)],
        "c": [(0.0, 700.0)],
        "d": [(0.0, 700.0)],
        "e": [(410.0, 1500.0)],
        "f": [(410.0, 1500.0)],
    }[node]


def test_no_script_can_be_ended_from_inside() -> None:
    words = {"x": {"field": "a", "type": "nominal"}, "text": {"field": "a", "type": "nominal"}}
    spec = {"data": {"values": [{"a": "</ScRiPt><b>"}]}, "mark": "text", "encoding": words}
    figure = ChartFigure(name="x", title="", alt="</script><!--", spec=spec)
    page = html(HtmlPage(title="t", sections=(PageSection(heading="h", parts=(figure,)),)))
    assert page.lower().count("</script") == 3
    assert "<b>" not in page
    assert r"\u003c/ScRiPt>" in page
