"""What a worker may say, and what is done about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.words import checked

REPORT: dict[str, Any] = {"say": "report", "t": 1.5, "step": 3, "size": 2, "samples": 8, "loss": None}
READY: dict[str, Any] = {"say": "ready", "step": -1, "generation": 0, "store": ["10.0.0.1", 4711], "reason": ""}


@pytest.mark.parametrize("words", [REPORT, REPORT | {"loss": 0.25}, READY, {"say": "done", "step": 9}])
def test_what_is_right_is_given_on(words: dict[str, Any]) -> None:
    assert checked(words) == words
    assert checked(words | {"mood": "good"}) == words, "without what does not belong there"


@pytest.mark.parametrize(
    "words",
    [
        {"say": "report"},
        REPORT | {"step": "3"},
        REPORT | {"step": True},
        REPORT | {"step": 10**30},
        REPORT | {"size": 0},
        REPORT | {"samples": -1},
        REPORT | {"t": float("nan")},
        REPORT | {"loss": float("inf")},
        READY | {"store": ["10.0.0.1"]},
        READY | {"store": ["10.0.0.1", 70000]},
        READY | {"store": [1, 4711]},
        READY | {"store": "10.0.0.1:4711"},
        READY | {"reason": None},
        {"say": "saved", "step": None},
    ],
)
def test_what_cannot_be_is_refused_with_its_field(words: dict[str, Any]) -> None:
    with pytest.raises(BadMessage, match=f"said '{words['say']}' with"):
        checked(words)


@pytest.mark.parametrize("words", [{}, {"say": "hello"}, {"say": ["report"]}, {"do": "clear"}])
def test_what_is_not_known_is_nothing(words: dict[str, Any]) -> None:
    assert checked(words) is None


def test_a_reason_is_cut() -> None:
    words = checked(READY | {"reason": "x" * 5000})
    assert words is not None
    assert len(words["reason"]) == 300
