"""Tests that take hours: each is marked ``soak``, and writes its figures to ``soak.log`` as soon as it has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "soak.log"
Log = Callable[[Mapping[str, float]], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def soak_log(request: pytest.FixtureRequest) -> Log:
    """Return what writes the figures of a test to the log."""
    began = time.monotonic()

    def write(figures: Mapping[str, float]) -> None:
        now, took_s = time.strftime("%Y-%m-%d %H:%M:%S"), time.monotonic() - began
        with LOG.open("a") as log:
            log.write(f"{now}  {request.node.name}  passed after {took_s:,.0f} s\n")
            log.writelines(f"    {what}: {number:,g}\n" for what, number in figures.items())

    return write


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Write what failed to the log."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        with LOG.open("a") as log:
            log.write(
                f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {item.name}  failed ({call.when})\n{report.longreprtext}\n"
            )
    return outcome
