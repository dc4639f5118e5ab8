"""Timeouts and intervals of a live run: waits for other processes, in one table.

Units are seconds. Each line names the two sides of a wait, or what happens at that interval. The pilot policy and the
commands have timeouts of their own. The site's file sets ``[times]``, ``patience_s`` and ``grace_s`` of ``[agents]``,
and ``poll_s`` of ``[scheduler]``. Modules read ``TIMEOUTS`` and ``LIMITS`` when they need a value; tests replace them.

Nesting: an agent waits ``patience_s`` for a daemon, so a daemon that restarts within that time keeps its agents. A
client waits ``answer_s`` for a response. The daemon waits at most twice ``file_system_s`` for the file system of a
submitted task, so the client receives the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    # The daemon's loop
    tick_s: float = 1.0  # period of the daemon's timer, for measurements and pauses
    write_s: float = 10.0  # the daemon writes the progress of tasks to the journal
    task_retry_s: float = 30.0  # the daemon retries tasks after failures of a file system or launcher
    restore_s: float = 30.0  # time at startup for the file systems of all tasks together
    restore_task_s: float = 1.0  # minimum wait for each task
    first_look_s: float = 20.0  # time at startup for the scheduler to check the settings, and then to list our nodes
    sweep_s: float = 10.0  # the daemon retries the release of surplus nodes
    journal_retry_s: float = 2.0  # the decision loop tries again to write the journal, such as on a full disk
    solver_overtime_s: float = 10.0  # the decision loop waits for a solver beyond its deadline
    file_system_s: float = 10.0  # a submission waits for the folder of its task, and again to register it
    close_s: float = 2.0  # time at shutdown to close connections and inform agents
    linger_s: float = 1.0  # the server waits for a client to close a finished connection
    agent_exit_s: float = 5.0  # the daemon, or the local scheduler, waits for an agent to exit
    housekeeping_s: float = 3600.0  # the daemon removes expired data
    housekeeping_first_s: float = 60.0  # the first time after a start
    repeated_notice_s: float = 600.0  # a notice without a repetition for this long is printed again

    # The API
    request_s: float = 20.0  # the server waits for a request to arrive as a whole
    send_s: float = 30.0  # the server waits for a client to read the answer
    update_s: float = 1.0  # the longest time between two updates of a stream
    update_gap_s: float = 0.2  # the shortest time between two updates
    update_decision_s: float = 0.02  # an update waits for the decision that follows an event
    away_node_s: float = 3600.0  # a node that left is still shown

    # Clients
    answer_s: float = 30.0  # a client waits for an answer
    restart_s: float = 3.0  # a client waits for a daemon that restarts

    # Schedulers
    look_gap_s: float = 0.3  # minimum time between two polls
    after_preemption_s: float = 1.0  # no command runs, because the job that takes the node starts now
    limits_s: float = 600.0  # limits of partitions, queues and accounts are read again
    pilot_retry_s: float = 10.0  # maximum time until a scheduler that did not list pilots is polled again
    scheduler_retry_s: float = 1.0  # a scheduler that raised an error is run again; twice as long each time
    scheduler_retry_most_s: float = 60.0  # the longest such time
    pilots_gone_s: float = 30.0  # time at shutdown for the scheduler to cancel all pilots
    node_tidying_s: float = 60.0  # the daemon waits for the epilog of a finished job

    # Hooks
    hook_look_s: float = 0.02  # the modification time of the spool folder is read
    hook_sure_s: float = 1.0  # the spool is read though this time has not changed
    hook_file_s: float = 3.0  # the daemon waits for a hook to finish its file

    # The local scheduler
    agent_restart_s: float = 2.0  # minimum time between two starts of a slot's agent, if it exits unexpectedly


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers."""

    connections: int = 512  # concurrent connections; operators and TCP clients with the token do not count
    connections_of_user: int = 128  # one user, or all over TCP, must not lock out the rest
    unfinished_tasks: int = 10_000  # each is looked at in every decision
    unfinished_tasks_of_user: int = 2_000  # limit per user; operators have none
    shown_tasks: int = 1000  # tasks per update of a stream
    rows_at_once: int = 1000  # journal rows removed in one step of the loop
    snapshot_steps: int = 1000  # steps between two snapshots in the journal
    fewest_journal_steps: int = 5000  # the smallest journal_steps of a site


TIMEOUTS: Final = Timeouts()
LIMITS: Final = Limits()
