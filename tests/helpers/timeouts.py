"""Replaces timeouts and limits of live runs for one test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrain.live import timeouts
from bftrain.live.timeouts import Timeouts

__all__ = ["Timeouts", "set_limits", "set_timeouts"]


def set_timeouts(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Replace fields of ``Timeouts``; the others stay."""
    monkeypatch.setattr(timeouts, "TIMEOUTS", replace(timeouts.TIMEOUTS, **seconds))


def set_limits(monkeypatch: pytest.MonkeyPatch, **numbers: int) -> None:
    """Replace fields of ``Limits``; the others stay."""
    monkeypatch.setattr(timeouts, "LIMITS", replace(timeouts.LIMITS, **numbers))
