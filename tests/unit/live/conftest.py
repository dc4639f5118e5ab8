"""What tests of a live run share."""

from __future__ import annotations

import pytest

from tests.helpers.timeouts import set_timeouts


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a live run does now and then, or tries again, come soon."""
    set_timeouts(
        monkeypatch,
        update_s=0.05,
        sweep_s=0.02,
        journal_retry_s=0.01,
        pilot_retry_s=0.02,
        look_gap_s=0.001,
        after_preemption_s=0.0,
        scheduler_retry_s=0.005,
        task_retry_s=0.01,
        tick_s=0.01,
    )
