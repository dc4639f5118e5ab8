"""Tests that take hours: each is marked ``soak``, and writes its figures to ``soak.log``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.helpers import soak_log as log

Log = Callable[[Mapping[str, float]], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def soak_log(request: pytest.FixtureRequest) -> Log:
    """Return what writes the figures of a test to the log."""

    def write(figures: Mapping[str, float]) -> None:
        log.append(request.node.name, (f"{what}: {number:,g}" for what, number in figures.items()))

    return write
