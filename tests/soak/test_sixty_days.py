"""Sixty days of 500 nodes, 20 users and 5,000 tasks: the disk is bounded, hours are exact, no task is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bftrain.live.model.site_config import KeepSettings
from tests.helpers.simulated_site import SimulatedSite
from tests.soak.conftest import Log

KEEP = KeepSettings(journal_steps=5000, archive_days=7, commit_days=3, task_days=10, folders_gb=0.02)


def test_sixty_days(tmp_path: Path, soak_log: Log) -> None:
    site = SimulatedSite(tmp_path, days=60, nodes=500, users=20, tasks=5000, seed=1, keep=KEEP)
    asyncio.run(site.run())
    soak_log(site.figures)
    assert site.wrongs == []
    assert site.figures["tasks done"] == 5000
    assert site.figures["removed steps"] > 0
    assert max(site.disk_bytes[40:]) < 1.3 * max(site.disk_bytes[20:40]), "it has stopped growing"
    assert site.verify() == 0
