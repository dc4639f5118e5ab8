"""What a worker may say, and what is done about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.messages import checked

REPORT: dict[str, Any] = {"type": "report", "t": 1.5, "step": 3, "size": 2, "samples": 8, "loss": None}
READY: dict[str, Any] = {"type": "ready", "step": -1, "generation": 0, "store": ["10.0.0.1", 4711], "reason": ""}


@pytest.mark.parametrize("words", [REPORT, REPORT | {"loss": 0.25}, READY, {"type": "done", "step": 9}])
def test_what_is_right_is_given_on(words: dict[str, Any]) -> None:
    found = checked(words)
    assert found is not None
    assert words.items() <= found.items()
    assert checked(words | {"mood": "good"}) == found, "without what does not belong there"


@pytest.mark.parametrize(
    "words",
    [
        {"type": "report"},
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
        {"type": "on_disk", "step": None},
        {"type": "position", "place": "commit", "line": "fit.py:3", "commits": -1},
        {"type": "drift", "step": 3, "relative": float("nan")},
    ],
)
def test_what_cannot_be_is_refused_with_its_field(words: dict[str, Any]) -> None:
    with pytest.raises(BadMessage, match=f"said '{words['type']}' with"):
        checked(words)


@pytest.mark.parametrize("words", [{}, {"type": "hello"}, {"type": ["report"]}, {"type": "clear"}])
def test_what_is_not_known_is_nothing(words: dict[str, Any]) -> None:
    assert checked(words) is None


def test_a_reason_is_cut() -> None:
    words = checked(READY | {"reason": "x" * 5000})
    assert words is not None
    assert len(words["reason"]) == 300


def test_what_may_be_left_out_of_a_report_is_filled_in_and_what_cannot_be_is_left_out() -> None:
    assert checked(REPORT) == REPORT | {"total": None, "since": 0, "nan": False, "restarted": False}
    more = {"total": 12, "since": 3, "nan": True, "restarted": True}
    assert checked(REPORT | more) == REPORT | more
    assert checked(REPORT | {"total": -1, "since": "x", "nan": 1}) == checked(REPORT)
