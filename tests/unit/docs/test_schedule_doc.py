"""The page on schedules: every column, figure, policy and option is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bftrain import schedule
from bftrain.cli.settings import option_of
from bftrain.registry import BUILT_IN
from bftrain_datasets.scheduling.schedule_settings import ESTIMATES
from bftrain_datasets.scheduling.schedule_tables import tables
from bftrain_datasets.scheduling.scheduling import ScheduleResult
from bftrain_replay.commands.schedule import OPTIONS
from tests.helpers.schedules import Row, swf

PAGE = (Path(__file__).parents[3] / "docs" / "schedule.md").read_text()
WORDS = set(re.findall(r"`([\w-]+)`", PAGE))


@pytest.fixture
def result(tmp_path: Path) -> ScheduleResult:
    return schedule(swf(tmp_path / "log.swf", [Row(0, 9), Row(1, 9)], "MaxNodes: 1"))


def test_every_column_of_every_table_is_documented(result: ScheduleResult) -> None:
    for name, table in tables(result).items():
        assert f"**{name}**" in PAGE
        assert set(table) <= WORDS, name


def test_every_policy_estimate_and_option_is_documented() -> None:
    assert set(BUILT_IN["queue_policy"]) | set(ESTIMATES) <= WORDS
    documented = set(re.findall(r"(--[a-z-]+)", PAGE))
    assert {option_of(name) for name in OPTIONS} <= documented
