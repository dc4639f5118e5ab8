"""Replays in folders, as tests of comparisons need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import ReplaySettings, TaskSpec
from tests.unit.replay.compared import LOG, TASKS


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that replays and writes the folder of that name."""

    def replayed(
        name: str,
        *,
        log: Any = LOG,  # noqa: ANN401 - an EventLog, or a part of one
        tasks: Sequence[TaskSpec] = TASKS,
        baseline: str = "",
        tables: str = "csv",
        watch: Any = None,  # noqa: ANN401 - as bftrain.replay() takes it
        **settings: Any,  # noqa: ANN401 - the fields' own types
    ) -> Path:
        settings = {"horizon_s": 120.0, "placement": "grouped", **settings}
        done = bftrain.replay(log, tasks, ReplaySettings(**settings), baseline=baseline, watch=watch)
        done.write(tmp_path / name, tables=tables, overwrite=True)
        return tmp_path / name

    return replayed
