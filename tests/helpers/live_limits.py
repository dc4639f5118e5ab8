"""Periods, timeouts and limits of a live run that are no settings. Tests change them here alone."""

from __future__ import annotations

from typing import Any, Final

import pytest

_PLACES: Final = {
    "api_connections": "api.server._CONNECTIONS",
    "api_connections_of_user": "api.server._OF_ONE",
    "away_node_s": "monitor.status_stream._AWAY_S",
    "beat_s": "monitor.status_stream._BEAT_S",
    "client_restart_s": "client.client._RESTART_S",
    "first_tasks_s": "run.daemon._TAKE_UP_S",
    "fewest_steps": "model.keep_settings._FEWEST_STEPS",
    "folder_patience_s": "api.service._PATIENCE_S",
    "give_back_again_s": "nodes.node_manager._SWEEP_S",
    "hook_silence_s": "schedulers.hook_spool._SILENT_S",
    "journal_retry_s": "decision_loop._AGAIN_S",
    "journal_rows": "run.housekeeping._ROWS",
    "look_patience_s": "run.daemon._LOOK_PATIENCE_S",
    "most_unfinished": "api.service._MOST_UNFINISHED",
    "most_unfinished_of_user": "api.service._MOST_OF_ONE",
    "node_look_s": "schedulers.node_polling._BETWEEN_S",
    "node_tidying_s": "schedulers.node_polling._TIDYING_S",
    "one_task_s": "run.daemon._LEAST_S",
    "pilot_away_s": "schedulers.pilot_manager._MOST_AWAY_S",
    "pilot_leaving_s": "schedulers.pilot_manager._LEAVING_S",
    "pilot_limits_s": "schedulers.pilot_manager._LIMITS_S",
    "pilot_look_s": "schedulers.pilot_manager._BETWEEN_S",
    "pilot_quiet_s": "schedulers.pilot_manager._QUIET_S",
    "request_s": "api.http_connection._HEAD_S",
    "rows": "monitor.status_stream._ROWS",
    "scheduler_retry_s": "schedulers.pools._AGAIN_S",
    "slot_kill_s": "schedulers.local._ENDING_S",
    "slot_restart_s": "schedulers.local._RESTART_S",
    "slow_answer_s": "nodes.node_manager._SLOW_S",
    "snapshot_steps": "decision_loop._KEEP_EVERY",
    "solver_overtime_s": "decision_loop._OVERTIME_S",
    "spool_look_s": "schedulers.hook_spool._SURE_S",
    "submission_waits_s": "schedulers.pilot_policy._WAITS_S",
    "task_retry_s": "run.daemon._TRY_AGAIN_S",
    "tick_s": "run.daemon._TICK_S",
    "write_s": "run.daemon._WRITE_S",
}


def set_limits(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:  # noqa: ANN401 - mostly seconds
    """Set limits by the names above, for one test."""
    for name, value in values.items():
        monkeypatch.setattr(f"bftrain.live.{_PLACES[name]}", value)
