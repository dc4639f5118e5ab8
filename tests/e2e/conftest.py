"""What several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.one_node import OneNode


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[OneNode]:
    """Yield a node on which an agent can be started, and the manager's side of it."""
    running = OneNode(tmp_path)
    yield running
    running.close()
