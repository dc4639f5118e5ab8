"""Pictures of a replay: numbers over time and rasters hold what was, checked cell by cell against plain counting."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrain import Settings
from bftrain_replay.drawing import theme, vega
from bftrain_replay.drawing.figure import ChartFigure, StateChanges, StateRaster, in_order, parts_of_rows
from bftrain_replay.drawing.html_page import HtmlPage, PageSection, html
from bftrain_replay.drawing.series import StepSeries, TimeAxis
from bftrain_replay.drawing.static.picture import static_picture
from bftrain_replay.drawing.vega import png, svg
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import over_time, report, report_data, task_sizes
from bftrain_replay.reporting.report_data import ReportData, of_study
from bftrain_replay.study import study
from tests.unit.replay.cases import log_of, task

LOG = log_of(
    (0.0, "abcd", ""), (130.0, "", "b"), (410.0, "ef", "a"), (700.0, "ab", "cd"), (1500.0, "", "ef"), end_s=2000.0
)


def made() -> ReportData:
    done = study(LOG, [task("x", max_nodes=2), task("y", max_nodes=2), task("z", max_nodes=1)], Settings())
    return of_study(done, InputSource())


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


def test_the_nodes_over_time_are_those_of_the_ledger() -> None:
    done = study(LOG, [task("x", max_nodes=2), task("y", max_nodes=2)], Settings())
    drawn, booked = of_study(done, InputSource()).nodes_over_time, done.result
    for time_s in (0.0, 129.0, 130.0, 500.0, 700.0, 1499.9, 1500.0, 1999.0):
        at = np.searchsorted(drawn.times_s, time_s, side="right") - 1
        there = np.searchsorted(booked.times_s, time_s, side="right") - 1
        assert drawn.columns["idle"][at] == booked.pool[there]
        assert drawn.columns["used"][at] == booked.used[there]


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


@pytest.mark.parametrize("changes", [30, 30_000])
def test_tasks_that_are_seen_longest_have_a_hue_unless_there_are_too_many_changes(changes: int) -> None:
    tasks, dense = 12, changes > 1000
    since_s = np.sort(np.random.default_rng(1).uniform(0.0, 60.0, changes))
    states = np.resize(np.arange(tasks) + 2, changes)
    drawn = StateRaster(
        changes=in_order(np.zeros(changes, dtype=int), since_s, states, rows=1, end_s=60.0),
        rows=["n"],
        labels=["the batch queue's", "idle", *(f"t{task}" for task in range(tasks))],
        colours=["@busy", "@idle", "@used"],
        tasks_are="labels",
    )
    seen = {2 + task: 0.0 for task in range(tasks)}
    for begin, end, _, state in stretches(drawn.changes):
        if state > 1:
            seen[state] += end - begin
    longest = sorted(seen, key=lambda state: -seen[state])[:6]
    palette = drawn.palette(theme.LIGHT)
    assert drawn.dense is dense
    assert list(drawn.hues) == ([] if dense else longest)
    assert len({palette[state] for state in longest}) == (1 if dense else len(longest))
    assert {palette[state] for state in seen if state not in longest} == {theme.LIGHT["used"]}
    assert drawn.image(theme.LIGHT, 100, 100) != drawn.image(theme.DARK, 100, 100)


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
    done = study(log, [task("x", max_nodes=2)], Settings(racks=sets if by == "rack" else {}))
    figure = over_time.holders(of_study(done, InputSource()))
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


def test_long_series_are_drawn_in_coarser_steps() -> None:
    material = made()
    exact, coarse = (over_time.holders(material, letters) for letters in (10**6, 10))
    assert exact.raster is not None
    assert coarse.raster is not None
    assert "rounded" not in exact.caption
    assert "Times are rounded to 3.9 s" in coarse.caption  # a 512th of 2000 s
    assert np.allclose(coarse.raster.changes.since_s % (2000.0 / 512), 0.0)
    for state in range(len(exact.raster.labels)):
        assert held_s(coarse.raster, state) == pytest.approx(held_s(exact.raster, state), abs=4 * 3.91)


def test_pictures_made_some_rows_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def packed() -> list[object]:
        charts = (task_sizes.sizes(made()), over_time.holders(made()), over_time.holders(made(), 10))
        return [chart.packed() for chart in charts if chart is not None]

    whole = packed()
    monkeypatch.setattr("bftrain_replay.drawing.figure.AT_ONCE", 5)
    assert len(list(parts_of_rows(6, 30))) == 6
    assert packed() == whole
    assert len(whole) == 3


def test_a_change_takes_eight_bytes() -> None:
    rows, each = 100, 1000
    since_s = np.tile(np.arange(each, dtype=float), rows)
    drawn = in_order(
        np.repeat(np.arange(rows), each), since_s, np.tile([1, 2], rows * each // 2), rows=rows, end_s=each
    )
    kept = (drawn.counts, drawn.at_s, drawn.when, drawn.state)
    assert len(drawn) == rows * each
    assert sum(column.nbytes for column in kept) < 8.2 * len(drawn)


def held_s(drawn: StateRaster, state: int) -> float:
    return sum(end - begin for begin, end, _, of in stretches(drawn.changes) if of == state)


def test_at_each_moment_each_task_is_shown_with_its_size() -> None:
    material = made()
    figure = task_sizes.sizes(material)
    assert figure is not None
    assert figure.raster is not None
    held = material.holdings.table()
    begun = [min(held.from_s[held.task == held.tasks.index(name)]) for name in figure.raster.rows]
    assert begun == sorted(begun)
    for row, name in enumerate(figure.raster.rows):
        mine = held.task == held.tasks.index(name)
        for time_s in np.arange(0.5, 2000.0, 1.0):
            size = int((mine & (held.from_s <= time_s) & (held.to_s > time_s)).sum())
            said = {0: "no node", 1: "1 node"}.get(size, f"{size} nodes")
            assert state_of(figure.raster, row, time_s) == said


def test_of_very_many_tasks_those_with_most_node_time_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, whole_sizes = over_time.holders(made()).raster, task_sizes.sizes(made())
    monkeypatch.setattr(report_data, "NAMED_TASKS", 2)
    material = made()
    least = min(material.tasks, key=lambda row: row["node_h"])["name"]
    assert {row["name"] for row in material.tasks} == {"x", "y", "z"}
    figure, sizes = over_time.holders(material), task_sizes.sizes(material)
    assert figure.raster is not None
    assert whole is not None
    for row in range(len(whole.rows)):
        for time_s in np.arange(0.5, 2000.0, 10.0):
            said = state_of(whole, row, time_s)
            assert state_of(figure.raster, row, time_s) == ("one of 1 other task" if said == least else said)
    assert figure.raster.palette(theme.LIGHT)[2] == theme.LIGHT["used"]
    assert least not in figure.raster.labels
    assert sizes is not None
    assert sizes.raster is not None
    assert whole_sizes is not None
    assert whole_sizes.raster is not None
    assert sizes.raster.rows == [name for name in whole_sizes.raster.rows if name != least]
    assert sizes.says == whole_sizes.says  # of all tasks
    for row, name in enumerate(sizes.raster.rows):
        before = whole_sizes.raster.rows.index(name)
        for time_s in np.arange(0.5, 2000.0, 10.0):
            assert state_of(sizes.raster, row, time_s) == state_of(whole_sizes.raster, before, time_s)
    for one in (figure, sizes):
        assert "The 2 tasks with the most node-time are named here; the other 1, which the tables have," in one.caption
    page = report.page(material)
    assert set(page.users_of) == {"x", "y", "z"}  # the table names it
    assert page.unnamed == 1
    assert "The 2 tasks with the most node-time can be followed" in report.render(material)


def test_sizes_that_change_too_often_are_drawn_in_coarser_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = task_sizes.sizes(made())
    monkeypatch.setattr(task_sizes, "_SIZE_CHANGES", 3)
    coarse = task_sizes.sizes(made())
    assert exact is not None
    assert coarse is not None
    assert coarse.raster is not None
    assert "rounded" not in exact.caption
    assert "Times are rounded to 3.9 s" in coarse.caption  # a 512th of 2000 s
    assert np.allclose(coarse.raster.changes.since_s % (2000.0 / 512), 0.0)
    assert coarse.says == exact.says


def test_long_series_are_packed_in_steps_of_one_length() -> None:
    steps = 100_001
    series = StepSeries(
        times_s=np.arange(steps, dtype=float),
        end_s=float(steps),
        columns={"n": np.arange(steps) % 3000, "few": np.ones(steps)},
    )
    packed = series.packed(TimeAxis(1.6e9, float(steps)))
    assert packed["t"] == {"from": 1.6e12, "to": 1.6e12 + 1000.0 * steps, "steps": 100_000}
    for name, digits in (("n", 1), ("few", 4)):
        shown = np.frombuffer(zlib.decompress(base64.b64decode(packed["columns"][name])), dtype="<f8")
        np.testing.assert_array_equal(shown, np.round(series.averaged(100_000).columns[name], digits))


def test_twice_as_many_nodes_are_so_much_stronger() -> None:
    shades = [int(task_sizes.shade(size, 64).removeprefix("@shade")) for size in (1, 2, 4, 8, 16, 32, 64)]
    assert shades[0] == 0
    assert shades[-1] == theme.SHADES - 1
    assert {b - a for a, b in pairwise(shades)} <= {2, 3}


def test_no_task_ever_ran_no_sizes() -> None:
    nothing = study(log_of(end_s=50.0), [task()], Settings())
    assert task_sizes.sizes(of_study(nothing, InputSource())) is None


@pytest.mark.parametrize(
    ("start_s", "span_s", "calendar"),
    [(1.6e9, 100.0, True), (0.0, 100.0, False), (5.0, 9000.0, False), (1e13, 600.0, False), (8.64e12, 9.0, False)],
)
def test_time_is_on_the_calendar_if_there_is_one(start_s: float, span_s: float, calendar: bool) -> None:  # noqa: FBT001 - a table of cases
    moments = TimeAxis(start_s, span_s)
    assert moments.on_calendar is calendar
    assert moments.place(0.0) == (start_s * 1000.0 if calendar else 0.0)
    assert moments.to_dict()["to"] - moments.to_dict()["from"] == span_s * 1000.0
    assert ("since the log's start" in str(moments.axis())) is not calendar


def test_an_axis_has_a_length_even_if_a_log_has_none() -> None:
    for moments in (TimeAxis(0.0, 0.0), TimeAxis(1.6e9, 1e-5)):
        assert moments.to_dict()["to"] > moments.to_dict()["from"]


def test_figures_are_drawn_without_a_browser() -> None:
    for figure in (over_time.holders(made()), task_sizes.sizes(made())):
        assert figure is not None
        text = svg(figure)
        assert text.startswith("<svg")
        assert figure.title in text
        assert "data:image/png;base64," in text
        assert "@" not in text.replace("@", "", 0).split("data:image")[0]  # every role became a colour
        assert png(figure).startswith(b"\x89PNG")


def test_the_same_replay_gives_the_same_pictures_to_the_last_bit(tmp_path: Path) -> None:
    for form in vega.FORMS:
        for place in ("one", "two"):
            (tmp_path / place).mkdir(exist_ok=True)
            report.write_figures(made(), tmp_path / place, form)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(
        f"{name}.{form}"
        for name in ("waterfall", "nodes", "sizes", "holders", "pieces", "decisions")
        for form in vega.FORMS
    )
    for name in names:
        if not name.startswith("decisions."):  # which shows what a real clock measured
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_no_script_can_be_ended_from_inside() -> None:
    words = {"x": {"field": "a", "type": "nominal"}, "text": {"field": "a", "type": "nominal"}}
    spec = {"data": {"values": [{"a": "</ScRiPt><b>"}]}, "mark": "text", "encoding": words}
    figure = ChartFigure(name="x", title="", alt="</script><!--", spec=spec)
    page = html(HtmlPage(title="t", sections=(PageSection(heading="h", parts=(figure,)),)))
    assert page.lower().count("</script") == 3
    assert "<b>" not in page
    assert r"\u003c/ScRiPt>" in page
