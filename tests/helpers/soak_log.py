"""``soak.log``: how each test marked ``soak`` ended, and its figures, written as soon as they are known."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

LOG: Final = Path(__file__).parents[2] / "soak.log"


def write(item: pytest.Item, report: pytest.TestReport) -> None:
    """Write that a test passed, or why it failed."""
    if report.failed:
        append(f"{item.name}  failed ({report.when})", report.longreprtext.splitlines())
    elif report.when == "call" and report.passed:
        append(f"{item.name}  passed after {report.duration:,.0f} s")


def append(text: str, lines: Iterable[str] = ()) -> None:
    """Write one entry with the time, and lines that belong to it."""
    with LOG.open("a") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        log.writelines(f"    {line}\n" for line in lines)
