"""Colours: words can be read on what lies under them, and parts are distinguishable with any colour vision."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bftrain import compare
from bftrain_replay.comparing import comparison_page
from bftrain_replay.comparing.comparison_charts import BAR_COLOURS
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlPage, HtmlText
from bftrain_replay.drawing.theme import DARK, HUES, LIGHT, SHADES
from bftrain_replay.reporting import report, report_data, task_sizes
from bftrain_replay.reporting.losses import CAUSES
from bftrain_replay.sweeping.sweep_charts import MOST_LINES, figures
from bftrain_replay.sweeping.sweep_table import metrics_of
from tests.unit.replay.cases import task
from tests.unit.replay.sweeping.sweep_case import done_rows

READABLE = 4.5  # contrast of text, WCAG 2.2, 1.4.3
VISIBLE = 3.0  # contrast of what is not text, WCAG 2.2, 1.4.11
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])

# Machado, Oliveira and Fernandes 2009, severity 1, for linear red, green and blue
VISIONS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> npt.NDArray[np.float64]:
    values = np.array(list(bytes.fromhex(colour[1:]))) / 255.0
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIELAB of a colour as it is seen."""
    x, y, z = XYZ @ np.clip(vision @ linear(colour), 0.0, 1.0) / XYZ.sum(axis=1)
    x, y, z = (value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116 for value in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(one: str, other: str, vision: npt.NDArray[np.float64]) -> float:
    """Difference of two colours; 2 or 3 is just seen side by side."""
    return float(np.linalg.norm(lab(one, vision) - lab(other, vision)))


@THEMES
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("ink", "page"), ("soft", "page"), ("link", "page"), ("ink", "card"), ("soft", "card"), ("page", "ink"),
        ("ink", "idle"), ("over", "unused"), ("over", "preempted"), ("over", "rescaling"),
        ("page", "start"), ("page", "unnoticed"), ("page", "spread"), ("page", "used"),
    ],
)  # fmt: skip
def test_words_can_be_read(theme: Mapping[str, str], text: str, ground: str) -> None:
    assert contrast(theme[text], theme[ground]) >= READABLE


@THEMES
@pytest.mark.parametrize("role", sorted({"used", *(cause.colour[1:] for cause in CAUSES)}))
def test_parts_of_pictures_can_be_seen(theme: Mapping[str, str], role: str) -> None:
    least = (
        VISIBLE if theme is DARK or role not in {"rescaling", "start", "unused"} else 2.0
    )  # beside words, light hues
    assert contrast(theme[role], theme["page"]) >= least


@THEMES
@pytest.mark.parametrize("vision", VISIONS)
def test_causes_are_distinguished(theme: Mapping[str, str], vision: str) -> None:
    roles = sorted({"used", "idle", *(cause.colour[1:] for cause in CAUSES)})
    near = {pair: apart(theme[pair[0]], theme[pair[1]], VISIONS[vision]) for pair in combinations(roles, 2)}
    assert min(near.values()) >= 10.0, min(near.items(), key=lambda item: item[1])


@pytest.mark.parametrize("vision", VISIONS)
def test_hues_are_distinguished(vision: str) -> None:
    near = {pair: apart(*pair, VISIONS[vision]) for pair in combinations(HUES, 2)}
    assert min(near.values()) >= 10.0, min(near.items(), key=lambda item: item[1])


def legends(part: object) -> Iterator[tuple[str, ...]]:
    """Yield the colours of each legend of a page."""
    if isinstance(part, HtmlPage):
        yield from legends([section.parts for section in part.sections if section])
    elif isinstance(part, HtmlText):
        yield tuple(f"@{role}" for role in re.findall(r"background:var\(--(\w+)\)", part))
    elif isinstance(part, ChartFigure):
        yield from legends(part.spec)
        yield (*part.raster.colours, *part.raster.packed(part.moments)["hues"]) if part.raster and part.moments else ()
    elif isinstance(part, dict):
        scale = part.get("scale") or {}
        if part.get("legend") is not None and isinstance(scale.get("domain"), list):
            colours = scale.get("range", HUES[: len(scale["domain"])])
            yield tuple(colours) if isinstance(colours[0], str) else ()
        yield from legends(list(part.values()))
    elif isinstance(part, list | tuple):
        for each in part:
            yield from legends(each)


def all_legends(make: Callable[..., Path]) -> set[tuple[str, ...]]:
    """Return the legends of a report, a comparison and a sweep, and those with all causes and sizes."""
    of_users = [task(f"t{number}", user=f"u{number}", campaign="c", work_samples=900.0) for number in range(9)]
    folders = [make(f"run-{number}", tasks=of_users, max_tasks=number + 1) for number in range(len(HUES))]
    points = ({"solver": f"s{number}", "max_tasks": tasks} for number in range(MOST_LINES) for tasks in (1, 2))
    swept = done_rows(*points, efficiency=lambda one: one["max_tasks"] / 3)
    return {
        *legends(report.page(report_data.of_folder(folders[0]))),
        *legends(comparison_page.page(compare(*folders))),
        *legends(list(figures(swept, metrics_of((), swept)))),
        tuple(BAR_COLOURS.values()),
        ("@ink", "@idle", "@reason1", *HUES),  # nodes, unused ones, and tasks on the page of a live run
        *(tuple(task_sizes.key(largest).values()) for largest in range(1, 200)),
    }


def test_colours_of_a_legend_are_distinguished(make: Callable[..., Path]) -> None:
    found = all_legends(make)
    assert {len(colours) for colours in found} >= {2, 3, len(HUES), 1 + len(CAUSES)}
    for colours, theme, vision in product(found, (LIGHT, DARK), VISIONS):
        for pair in combinations(colours, 2):
            one, other = (theme.get(colour[1:], colour) for colour in pair)
            assert apart(one, other, VISIONS[vision]) >= 10.0, (pair, vision)


@THEMES
@pytest.mark.parametrize("vision", VISIONS)
def test_shades_go_one_way_from_the_ground(theme: Mapping[str, str], vision: str) -> None:
    light = [float(lab(theme[name], VISIONS[vision])[0]) for name in ("busy", *(f"shade{n}" for n in range(SHADES)))]
    steps = [b - a for a, b in pairwise(light)]
    assert all(step < 0.0 for step in steps) or all(step > 0.0 for step in steps)
    assert abs(steps[0]) >= 4.0  # one node is more than none


@THEMES
def test_idle_is_seen_on_what_the_batch_queue_has(theme: Mapping[str, str]) -> None:
    for vision in VISIONS.values():
        assert apart(theme["idle"], theme["busy"], vision) >= 15.0
