"""What tasks may be called and what they may run."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain import BadValue, Run, Submission


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"argv": ()}, "must be a script or command"),
        ({"argv": ("a", "")}, "must be a script or command"),
        ({"argv": ("a\0",)}, "NUL"),
        ({"argv": ("a",), "cwd": "b"}, "must be an absolute path"),
        ({"argv": ("a",), "folder": "b"}, "must be an absolute path"),
        ({"argv": ("a",), "env": {"": "x"}}, "must not be empty"),
        ({"argv": ("a",), "env": {"A=B": "x"}}, "nor hold '='"),
        ({"argv": ("a",), "env": {"A": "x\0"}}, "NUL"),
        ({"argv": ("a" * 100_001,)}, "too long"),
        ({"argv": ("a",), "stop_grace_s": -1.0}, "at least 0"),
        ({"argv": ("a",), "workers_per_node": -1}, "at least 0"),
    ],
)
def test_what_cannot_be_run(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Run(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_nodes": 0}, "at least 1"),
        ({"max_nodes": 1_000_001}, "at most 1000000"),
        ({"max_nodes": 2, "min_nodes": 0}, "at least 1"),
        ({"max_nodes": 2, "min_nodes": 3}, "below min_nodes = 3"),
        ({"max_nodes": 2, "name": "a/b"}, "letters, digits"),
    ],
)
def test_what_cannot_be_handed_in(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Submission(run=Run(argv=("a",)), **given)
