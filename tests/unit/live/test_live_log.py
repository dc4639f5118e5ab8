"""The log of a live run: times and levels in each line, for people, programs and journald; a full disk is no end."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from bftrain.live.run.live_log import LiveLog, writes_to_journald


def lines(**how: Any) -> list[str]:  # noqa: ANN401 - any field
    found: list[str] = []
    log = LiveLog(found.append, clock=lambda: 1_795_628_733.25, **how)
    log.info("running")
    log.warning("the disk\nis full")
    return found


def test_each_line_has_its_time_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lines()
    assert first.endswith(" info: running")
    assert second.partition(" warning: ")[2] == "the disk\nis full"
    found = [json.loads(line) for line in lines(form="json")]
    assert found == [
        {"time": "2026-11-25T17:45:33.250Z", "level": "info", "text": "running"},
        {"time": "2026-11-25T17:45:33.250Z", "level": "warning", "text": "the disk\nis full"},
    ]
    assert lines(for_journald=True) == ["<6>running", "<4>the disk\n<4>is full"]
    about = os.fstat(1)
    monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino}")
    assert writes_to_journald(1)
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not writes_to_journald(1)
