"""What tests of a live run share."""

from __future__ import annotations

import pytest

from tests.helpers.live_limits import set_limits


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a live run does now and then, or tries again, come soon."""
    set_limits(
        monkeypatch,
        beat_s=0.05,
        give_back_again_s=0.02,
        journal_retry_s=0.01,
        node_look_s=0.001,
        pilot_away_s=0.02,
        pilot_look_s=0.001,
        pilot_quiet_s=0.0,
        scheduler_retry_s=0.005,
        task_retry_s=0.01,
        tick_s=0.01,
    )
