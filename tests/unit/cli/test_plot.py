"""The picture of a number over time: true to the figures, as wide as asked, and in ASCII where need be."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from bftrain.cli.plot import HEIGHT, LOW, PIPE_WIDTH, PartPlot, StepPlot
from tests.helpers.program import ANSI

DAY = 86_400.0
TIMES = np.arange(3.0)


def plot(values: list[float], end_s: float | None = None, step_s: float = 1.0, begin_s: float = 0.0) -> StepPlot:
    times = begin_s + step_s * np.arange(len(values), dtype=np.float64)
    end = begin_s + step_s * len(values) if end_s is None else end_s
    return StepPlot("idle nodes", times, np.array(values), end)


def test_means_are_weighted_by_time_and_the_largest_is_found() -> None:
    given = StepPlot("x", np.array([0.0, 3.0, 3.5, 4.0]), np.array([2, 100, 0, 8]), 8.0)
    means, largest = given.resampled(2)
    assert (means.tolist(), largest.tolist()) == ([(3 * 2 + 0.5 * 100) / 4, 8.0], [100.0, 8.0])
    means, largest = given.resampled(16)  # narrower than what changes
    assert means.tolist() == largest.tolist() == [2.0] * 6 + [100.0, 0.0] + [8.0] * 8


def test_a_staircase_is_a_staircase() -> None:
    assert plot([0, 1, 2, 3, 4, 5, 6, 7, 8] * 2).lines(21) == [
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
    drawn = PartPlot("nodes", ("used", "idle, unused"), 3600.0 * np.arange(24.0), whole, part, 24 * 3600.0)
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
    assert plain[:2] == ["nodes: # used, : idle, unuse", "12 +   #:: ::=##   #:: ::=##"]
    assert "\n".join(plain).isascii()


@pytest.mark.parametrize("width", [24, 80, 1000])
@pytest.mark.parametrize("plain", [False, True])
def test_a_part_fits_any_width_and_has_its_own_height(width: int, *, plain: bool) -> None:
    whole = 1000.0 + 300.0 * np.sin(np.arange(5000.0) / 300.0)
    whole[2500] = 9000.0
    times = 1.6e9 + 600.0 * np.arange(5000.0)
    drawn = PartPlot("nodes", ("used", "idle, unused"), times, whole, whole / 3, times[-1] + 600.0)
    lines = drawn.lines(width, plain=plain)
    assert max(map(len, lines)) <= width
    below = ("nodes: # used, : idle, unused" if plain else "nodes: █ used, ▒ idle, unused") in lines[-1]
    assert len(lines) == LOW + 2 + (not below)
    assert lines[not below].startswith(("1,", "2,"))  # the largest mean of a column, not the largest of all


@pytest.mark.parametrize("width", [24, 44, 80, 1000])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("step_s", [60.0, DAY])
@pytest.mark.parametrize("top", [1, 4654, 1e6])
def test_no_line_is_wider_than_asked(width: int, step_s: float, top: float, *, plain: bool) -> None:
    lines = plot([0, top, top / 3, 0, top / 2], step_s=step_s, begin_s=1.6e9).lines(width, plain=plain)
    assert (max(map(len, lines)) <= width, len(lines), "\n".join(lines).isascii()) == (True, HEIGHT + 3, plain)
    assert f"{top:,.0f} " in lines[1]


def test_short_bursts_are_shaded_up_to_their_height_and_small_numbers_keep_their_decimals() -> None:
    values = [1.0] * 2000
    values[1000] = 80.0
    rows = plot(values).lines(60)[1:-2]
    assert [row.count("░") for row in rows] == [1] * (HEIGHT - 1) + [0]
    assert set(rows[-1]) & set("▁▂▃▄▅▆▇█")  # 1 of 80 is little, but can be seen
    lines = plot([0.5, 0.25]).lines(40)
    assert [lines[place].split()[0] for place in (1, 5, 9)] == ["0.5", "0.25", "0"]


@pytest.mark.parametrize(
    "given",
    [
        plot([0, 0, 0]),
        StepPlot("x", np.array([3.0]), np.array([5]), 3.0),
        StepPlot("x", np.array([-1e308]), np.array([5]), 1e308),
        StepPlot("x", np.array([0.0, 1.0]), np.array([1.0, np.inf]), 3.0),
        PartPlot("n", ("a", "b"), TIMES, np.zeros(3), np.zeros(3), 3.0),
        PartPlot("n", ("a", "b"), np.zeros(0), np.zeros(0), np.zeros(0), 3.0),
    ],
)
def test_where_there_is_nothing_to_draw_nothing_is_drawn(given: StepPlot | PartPlot) -> None:
    with np.errstate(over="ignore"):
        assert given.lines(80) == []


@pytest.mark.parametrize(
    ("begin_s", "span_s", "width", "axis"),
    [
        (1612951200.0, 3600.0, 80, ["2021-02-10 10:00", "2021-02-10 10:30", "2021-02-10 11:00"]),
        (1612951200.0, 10 * DAY, 44, ["2021-02-10", "2021-02-15", "2021-02-20"]),
        (1612951200.0, 10 * DAY, 30, ["02-10", "02-15", "02-20"]),
        (1612951200.0, 3600.0, 30, ["10:00", "10:30", "11:00"]),
        (0.0, 140_588.0, 80, ["0", "19.5 h", "39.1 h"]),  # a log with a zero of its own counts from it
        (0.0, 1500 * DAY, 80, ["0", "750 d", "1,500 d"]),
        (0.0, 0.5, 80, ["0", "0.25 s", "0.5 s"]),
    ],
)
def test_the_axis_tells_the_time_as_far_as_there_is_room(
    begin_s: float, span_s: float, width: int, axis: list[str]
) -> None:
    last = plot([1], end_s=begin_s + span_s, begin_s=begin_s).lines(width)[-1]
    assert [part.strip() for part in last.split("  ") if part.strip()] == axis


@pytest.mark.parametrize(
    ("encoding", "terminal", "width", "plain", "expected"),
    [("utf-8", True, 40, False, 40), ("utf-8", False, 200, False, PIPE_WIDTH), ("ascii", True, 100, True, 100)],
)
@pytest.mark.parametrize("colours", [True, False])
def test_rich_prints_it_as_the_output_allows(
    encoding: str, width: int, expected: int, *, terminal: bool, plain: bool, colours: bool
) -> None:
    octets = io.BytesIO()
    file = io.TextIOWrapper(octets, encoding=encoding)
    environment = {"TERM": "xterm"} if colours else {"TERM": "xterm", "NO_COLOR": "1"}
    console = Console(
        file=file,
        force_terminal=terminal,
        width=width,
        _environ=environment,
        color_system="standard" if terminal else None,
    )
    drawn = PartPlot("nodes", ("used", "idle, unused"), TIMES, np.array([4, 8, 8]), np.array([4, 2, 8]), 3.0)
    console.print(drawn)
    file.flush()
    seen = octets.getvalue().decode(encoding)
    assert ("\x1b[34m" in seen) is (colours and terminal)
    assert [line.rstrip() for line in ANSI.sub("", seen).splitlines()] == drawn.lines(expected, plain=plain)
