"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def events() -> Path:
    """Return the example of five steps."""
    return EXAMPLES / "events.jsonl"


@pytest.fixture
def journal(bftrain: CommandLine, events: Path, tmp_path: Path) -> Path:
    """Return a journal of the example's five steps."""
    path = tmp_path / "harvest.db"
    assert bftrain("decide", events, "--journal", path).code == 0
    return path
