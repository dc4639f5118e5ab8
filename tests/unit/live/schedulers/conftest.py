"""Fixtures for tests of schedulers."""

from __future__ import annotations

import pytest


@pytest.fixture
def quick_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at pilots without a pause, and do not wait for a scheduler that is away."""
    monkeypatch.setattr("bftrain.live.schedulers.pilot_manager._BETWEEN_S", 0.001)
    monkeypatch.setattr("bftrain.live.schedulers.pilot_manager._MOST_AWAY_S", 0.02)
    monkeypatch.setattr("bftrain.live.schedulers.pilot_manager._QUIET_S", 0.0)
