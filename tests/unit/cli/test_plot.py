"""The picture of a number over time: true to the figures, as wide as asked, and in ASCII where need be."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
import pytest
from rich.console import Console

from bftrain.cli.plot import HEIGHT, LOW, PIPE_WIDTH, PartPlot, StepPlot
from tests.helpers.program import ANSI

DAY = 86_400.0


def plot(values: list[float], end_s: float | None = None, step_s: float = 1.0, begin_s: float = 0.0) -> StepPlot:
    times = begin_s + step_s * np.arange(len(values), dtype=np.float64)
    end = begin_s + step_s * len(values) if end_s is None else end_s
    return StepPlot("idle nodes", times, np.array(values), end)


def picture(lines: list[str], signs: str = "┤│") -> list[str]:
    """Return the rows without their axis."""
    rows = [line for line in lines if any(sign in line for sign in signs)]
    return [row[min(row.index(sign) for sign in signs if sign in row) + 1 :] for row in rows]


def test_means_are_weighted_by_time_and_the_largest_is_found() -> None:
    given = StepPlot("x", np.array([0.0, 3.0, 3.5, 4.0]), np.array([2, 100, 0, 8]), 8.0)
    means, largest = given.resampled(2)
    assert means.tolist() == [(3 * 2 + 0.5 * 100) / 4, 8.0]
    assert largest.tolist() == [100.0, 8.0]
    means, largest = given.resampled(16)  # narrower than what changes
    assert means.tolist() == [2.0] * 6 + [100.0, 0.0] + [8.0] * 8
    assert largest.tolist() == means.tolist()


def test_a_staircase_is_a_staircase() -> None:
    lines = plot([0, 1, 2, 3, 4, 5, 6, 7, 8] * 2).lines(21)
    assert lines == [
        "idle nodes (█ mean, ░",
        "8 ┤        █        █",
        "  │       ██       ██",
        "  │      ███      ███",
        "  │     ████     ████",
        "4 ┤    █████    █████",
        "  │   ██████   ██████",
        "  │  ███████  ███████",
        "  │ ████████ ████████",
        "0 └──────────────────",
        "   0       9 s   18 s",
    ]


def test_a_part_is_filled_and_the_rest_of_the_whole_is_shaded() -> None:
    whole = np.array([0, 6, 6, 12, 12, 12, 3, 12, 12, 12, 12, 12] * 2)
    part = np.array([0, 6, 3, 12, 0, 6, 3, 1, 7, 11, 12, 12] * 2)
    times = 3600.0 * np.arange(24)
    drawn = PartPlot("nodes", ("used", "idle, unused"), times, whole, part, 24 * 3600.0)
    assert drawn.lines(28) == [
        "nodes: █ used, ▒ idle, unuse",
        "12 ┤   █▒▒ ▒▒▄██   █▒▒ ▒▒▄██",
        "   │   █▒▒ ▒▒███   █▒▒ ▒▒███",
        "   │   █▒▒ ▒▄███   █▒▒ ▒▄███",
        " 6 ┤ █▒█▒█ ▒████ █▒█▒█ ▒████",
        "   │ █▄█▒█▄▒████ █▄█▒█▄▒████",
        "   │ ███▒██▄████ ███▒██▄████",
        " 0 └────────────────────────",
        "    0         12 h      24 h",
    ]
    plain = drawn.lines(28, plain=True)
    assert plain[0] == "nodes: # used, : idle, unuse"
    assert plain[1] == "12 +   #:: ::=##   #:: ::=##"
    assert "\n".join(plain).isascii()


@pytest.mark.parametrize("width", [24, 40, 80, 250, 1000])
@pytest.mark.parametrize("plain", [False, True])
def test_a_part_fits_any_width_and_has_its_own_height(width: int, plain: bool) -> None:  # noqa: FBT001 - as pytest calls it
    whole = 1000.0 + 300.0 * np.sin(np.arange(5000) / 300.0)
    whole[2500] = 9000.0
    times = 1.6e9 + 600.0 * np.arange(5000)
    drawn = PartPlot("nodes", ("used", "idle, unused"), times, whole, whole / 3, times[-1] + 600.0)
    lines = drawn.lines(width, plain=plain)
    assert max(map(len, lines)) <= width
    legend = "nodes: # used, : idle, unused" if plain else "nodes: █ used, ▒ idle, unused"
    below = legend in lines[-1]
    assert below or (lines[0] == legend[:width] and width < 80)
    assert len(lines) == LOW + 2 + (not below)
    assert lines[not below].startswith(("1,", "2,"))  # the largest mean of a column, not the largest of all


def test_all_that_is_used_leaves_no_shade_and_none_that_is_used_leaves_no_block() -> None:
    whole, times = np.array([3.0, 8.0, 5.0]), np.array([0.0, 10.0, 20.0])
    used, unused = (PartPlot("n", ("a", "b"), times, whole, part, 30.0).lines(60) for part in (whole, 0 * whole))
    assert "n: █ a, ▒ b" in used[-1]
    assert not any("▒" in line for line in used[:-1])
    assert not any(set(line) & set("▁▂▃▄▅▆▇█") for line in unused[:-1])
    assert any("▒" in line for line in unused[:-1])


def test_where_nothing_was_idle_no_part_is_drawn() -> None:
    nothing, times = np.zeros(3), np.arange(3.0)
    assert PartPlot("n", ("a", "b"), times, nothing, nothing, 3.0).lines(80) == []
    assert PartPlot("n", ("a", "b"), np.zeros(0), np.zeros(0), np.zeros(0), 3.0).lines(80) == []


@pytest.mark.parametrize(
    ("colours", "environment", "blue"),
    [("standard", {"TERM": "xterm"}, True), ("standard", {"TERM": "xterm", "NO_COLOR": "1"}, False), (None, {}, False)],
)
def test_part_and_rest_have_colours_where_there_are_colours(
    colours: Literal["standard"] | None, environment: dict[str, str], blue: bool  # noqa: FBT001 - as pytest calls it
) -> None:  # fmt: skip
    octets = io.BytesIO()
    file = io.TextIOWrapper(octets, encoding="utf-8")
    console = Console(file=file, force_terminal=True, width=60, _environ=environment, color_system=colours)
    times = np.arange(3.0)
    drawn = PartPlot("nodes", ("used", "idle, unused"), times, np.array([4, 8, 8]), np.array([4, 2, 8]), 3.0)
    console.print(drawn)
    file.flush()
    seen = octets.getvalue().decode()
    assert ("\x1b[34m" in seen) is blue
    assert [line.rstrip() for line in ANSI.sub("", seen).splitlines()] == drawn.lines(60)


def test_short_bursts_are_shaded_up_to_their_height() -> None:
    values = [1.0] * 2000
    values[1000] = 80.0
    rows = picture(plot(values).lines(60))
    assert [row.count("░") for row in rows] == [1] * (HEIGHT - 1) + [0]
    assert set(rows[-1]) <= set("▁▂▃▄▅▆▇█")  # 1 of 80 is little, but can be seen


@pytest.mark.parametrize("width", [24, 33, 40, 44, 60, 80, 120, 200, 400, 1000])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("step_s", [60.0, 3600.0, DAY])
@pytest.mark.parametrize("top", [1, 4654, 1e6])
def test_no_line_is_wider_than_asked_and_the_floor_is_full(width: int, plain: bool, step_s: float, top: float) -> None:  # noqa: FBT001 - as pytest calls it
    lines = plot([0, top, top / 3, 0, top / 2], step_s=step_s, begin_s=1.6e9).lines(width, plain=plain)
    assert max(map(len, lines)) <= width
    assert len(lines) == HEIGHT + 3
    floor = lines[-2]
    assert len(floor) == min(width, len(floor))
    assert floor.endswith("-" if plain else "─")
    assert "\n".join(lines).isascii() == plain
    assert f"{top:,.0f} " in lines[1]


def test_small_numbers_keep_their_decimals() -> None:
    lines = plot([0.5, 0.25]).lines(40)
    assert [lines[place].split()[0] for place in (1, 5, 9)] == ["0.5", "0.25", "0"]


@pytest.mark.parametrize(
    ("given", "width"),
    [
        (plot([0, 0, 0]), 80),
        (plot([5]), 10),
        (StepPlot("x", np.array([3.0]), np.array([5]), 3.0), 80),
        (StepPlot("x", np.array([-1e308]), np.array([5]), 1e308), 80),
        (StepPlot("x", np.array([0.0, 1.0]), np.array([1.0, np.inf]), 3.0), 80),
    ],
)
def test_where_there_is_nothing_to_draw_nothing_is_drawn(given: StepPlot, width: int) -> None:
    with np.errstate(over="ignore"):
        assert given.lines(width) == []


@pytest.mark.parametrize(
    ("span_s", "width", "axis"),
    [
        (3600.0, 80, ["2021-02-10 10:00", "2021-02-10 10:30", "2021-02-10 11:00"]),
        (10 * DAY, 80, ["2021-02-10 10:00", "2021-02-15 10:00", "2021-02-20 10:00"]),
        (10 * DAY, 44, ["2021-02-10", "2021-02-15", "2021-02-20"]),
        (10 * DAY, 30, ["02-10", "02-15", "02-20"]),
        (3600.0, 30, ["10:00", "10:30", "11:00"]),
    ],
)
def test_the_axis_says_when_as_far_as_there_is_room(span_s: float, width: int, axis: list[str]) -> None:
    last = plot([1], end_s=1612951200.0 + span_s, begin_s=1612951200.0).lines(width)[-1]
    assert [part.strip() for part in last.split("  ") if part.strip()] == axis


@pytest.mark.parametrize(
    ("span_s", "axis"),
    [
        (140_588.0, ["0", "19.5 h", "39.1 h"]),
        (1500 * DAY, ["0", "750 d", "1,500 d"]),
        (90.0, ["0", "45 s", "90 s"]),
        (0.5, ["0", "0.25 s", "0.5 s"]),
    ],
)
def test_a_log_with_a_zero_of_its_own_counts_from_it(span_s: float, axis: list[str]) -> None:
    given = StepPlot("x", np.array([0.0]), np.array([5]), span_s)
    last = given.lines(80)[-1]
    assert [part.strip() for part in last.split("  ") if part.strip()] == axis


def test_times_beyond_the_calendar_are_reported_in_seconds() -> None:
    assert "1e+300 s" in plot([1, 2], begin_s=1e300, end_s=1.5e300, step_s=1e299).lines(80)[-1]


@pytest.mark.parametrize(
    ("encoding", "terminal", "width", "plain", "expected"),
    [("utf-8", True, 40, False, 40), ("utf-8", False, 200, False, PIPE_WIDTH), ("ascii", True, 100, True, 100)],
)
def test_rich_prints_it_as_the_output_allows(
    encoding: str, terminal: bool, width: int, plain: bool, expected: int  # noqa: FBT001 - as pytest calls it
) -> None:  # fmt: skip
    octets = io.BytesIO()
    file = io.TextIOWrapper(octets, encoding=encoding)
    console = Console(file=file, force_terminal=terminal, width=width, _environ={"TERM": "xterm"}, color_system=None)
    console.print(plot([1, 2, 3]))
    file.flush()
    lines = octets.getvalue().decode(encoding).splitlines()
    assert lines == plot([1, 2, 3]).lines(expected, plain=plain)
    assert max(map(len, lines)) == expected
