"""The picture of a number over time: true to the figures, as wide as asked, and in ASCII where need be."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from bftrain.cli.plot import HEIGHT, PIPE_WIDTH, StepPlot

DAY = 86_400.0


def plot(values: list[float], end_s: float | None = None, step_s: float = 1.0, begin_s: float = 0.0) -> StepPlot:
    times = begin_s + step_s * np.arange(len(values), dtype=np.float64)
    end = begin_s + step_s * len(values) if end_s is None else end_s
    return StepPlot("idle nodes", times, np.array(values), end)


def picture(lines: list[str], signs: str = "┤│") -> list[str]:
    """Give the rows without their axis."""
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
        "   00:00        00:00",
    ]


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


def test_times_beyond_the_calendar_are_told_in_seconds() -> None:
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
