"""Spoilt settings, task files, sweeps and the like end a command in words, in time and in little memory."""

from __future__ import annotations

from bftrain import BadInput
from tests.helpers.spoilt_settings import check_log_lines, check_settings, end_of


def test_spoilt_settings_are_no_fault_of_ours() -> None:
    found = check_settings(cases=210, seed=2)
    for name in ("settings", "rounds", "tasks", "sweep", "shares", "site"):
        assert found[f"{name} 0"] > 0, "what is spoilt a little goes through as well"
        assert found[f"{name} {BadInput.exit_code}"] > 0


def test_spoilt_lines_of_logs_are_no_fault_of_ours() -> None:
    check_log_lines(lines=20_000, seed=1)


def test_more_than_a_gigabyte_is_found() -> None:
    assert end_of(lambda: bytearray(2 << 30)) == 5
