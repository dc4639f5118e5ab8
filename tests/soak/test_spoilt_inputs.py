"""The long versions of the tests that spoil settings and logs."""

from __future__ import annotations

from tests.helpers.spoilt_settings import check_log_lines, check_settings
from tests.soak.conftest import Log


def test_ten_thousand_spoilt_settings(soak_log: Log) -> None:
    soak_log(check_settings(cases=10_000, seed=2))


def test_a_million_spoilt_lines(soak_log: Log) -> None:
    soak_log(check_log_lines(lines=1_000_000, seed=2))
