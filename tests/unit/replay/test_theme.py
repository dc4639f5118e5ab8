"""Colours: words can be read on what lies under them, and parts are distinguishable with any colour vision."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from bftrain_replay.drawing.theme import DARK, HUES, LIGHT, SHADES

CAUSES = ("preempted", "rescaling", "spread", "start", "unnoticed", "unused")  # of losses, by their colour
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
@pytest.mark.parametrize("role", ["used", *CAUSES])
def test_parts_of_pictures_can_be_seen(theme: Mapping[str, str], role: str) -> None:
    least = (
        VISIBLE if theme is DARK or role not in {"rescaling", "start", "unused"} else 2.0
    )  # beside words, light hues
    assert contrast(theme[role], theme["page"]) >= least


@THEMES
@pytest.mark.parametrize("vision", VISIONS)
def test_causes_are_distinguished(theme: Mapping[str, str], vision: str) -> None:
    roles = ("used", "idle", *CAUSES)
    near = {pair: apart(theme[pair[0]], theme[pair[1]], VISIONS[vision]) for pair in combinations(roles, 2)}
    assert min(near.values()) >= 10.0, min(near.items(), key=lambda item: item[1])


@pytest.mark.parametrize("vision", VISIONS)
def test_hues_are_distinguished(vision: str) -> None:
    near = {pair: apart(*pair, VISIONS[vision]) for pair in combinations(HUES, 2)}
    assert min(near.values()) >= 10.0, min(near.items(), key=lambda item: item[1])


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
