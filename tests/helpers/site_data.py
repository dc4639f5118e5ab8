"""Real logs of real sites, for those who have them: tests that want one skip where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


def site_data(name: str) -> Path:
    """Return the path of a real log such as ``summit/...``, or skip the test that asks for it."""
    folder = Path(os.environ.get("BFTRAIN_SITE_DATA", _BESIDE_THE_REPOSITORY))
    path = folder / name
    if not path.exists():
        pytest.skip(f"no {name} here: set BFTRAIN_SITE_DATA to a folder that has it")
    return path
