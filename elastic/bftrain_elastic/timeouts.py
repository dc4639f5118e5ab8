"""Timeouts and intervals between manager, agents and workers, in one table.

Units are seconds. Each line names the two sides of a wait. Jobs set ``stop_grace_s`` and ``stall_limit_s``, agents
``patience_s`` and ``grace_s``; the modules of workers have timeouts of their own. Modules read ``TIMEOUTS`` when they
need a value; tests replace it.

Nesting: the manager gives a node up after ``agent_silence_s`` and starts its workers elsewhere. The old workers must be
gone by then: a prefork server that hears no agent for ``prefork_silence_s`` kills them, and so does an agent that hears
no manager for ``manager_silence_s`` or ``partition_s``. Even ``partition_s`` plus ``heartbeat_s`` is shorter than
``agent_silence_s``. A restarted manager waits ``absence_s`` for agents, which is longer than their default patience.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    # Manager and agents
    heartbeat_s: float = 3.0  # a silent agent sends a heartbeat after this time
    agent_silence_s: float = 12.0  # the manager waits for an agent's message before it gives the node up
    manager_silence_s: float = 3.0  # an agent waits for the manager's heartbeat, if workers must not outlive it
    partition_s: float = 8.0  # the same wait, if workers may outlive the manager
    successor_s: float = 5.0  # an agent heard this recently is alive: a second agent on its node must exit
    authentication_s: float = 5.0  # a server waits for a client to authenticate
    accept_retry_s: float = 1.0  # the manager accepts connections again after a failure
    worker_accept_s: float = 0.05  # an agent accepts workers again after a failure
    connect_s: float = 0.15  # an agent waits for a connection; it must answer a SIGTERM within 0.2 s
    connect_retry_s: float = 0.5  # delay before an agent connects again
    goodbye_retry_s: float = 5.0  # delay of the same after a manager's goodbye, if the agent stays
    hub_tick_s: float = 0.1  # period of the lifecycles
    silence_check_s: float = 0.5  # period of the check for silent agents
    closing_s: float = 30.0  # a launcher waits for the exit of its workers

    # An agent and its processes
    prefork_beat_s: float = 1.0  # heartbeats to the prefork servers
    prefork_silence_s: float = 8.0  # a prefork server waits for its agent before it ends its workers
    prefork_obeys_s: float = 3.0  # an agent waits for a prefork server to carry out an order
    prefork_retry_s: float = 0.2  # first delay before a restart of a server that never became ready
    prefork_longest_retry_s: float = 60.0
    one_notice_s: float = 1.0  # a notice reaches all processes; a scheduler may send SIGTERM directly and by srun
    reap_s: float = 0.02  # a leaving agent collects the last exits before it reports them

    # Copies
    copy_accept_retry_s: float = 0.1  # a copy server accepts workers again after a failure
    copy_idle_s: float = 60.0  # a copy server waits for a worker, which connects again
    copy_silence_s: float = 10.0  # a peer that moves no byte for so long is lost
    copy_retry_s: float = 60.0  # a node that refused a state is asked again
    together_s: float = 60.0  # nodes whose agents started within this time joined together

    # Start and end of a task
    absence_s: float = 45.0  # a task waits for a former manager's agents; by default these stop workers sooner
    company_s: float = 5.0  # ready or adopted workers wait for the rest of their group
    farewell_s: float = 5.0  # the other ranks have this time to finish after the first one
    epilogue_s: float = 300.0  # a rank may evaluate or save after it reported that it is done
    least_start_s: float = 120.0  # the shortest limit of a program's start-up
    least_write_s: float = 60.0  # the shortest extra time of a worker that writes the state before it exits
    silent_command_s: float = 10.0  # age at which a silent command counts as running
    broken_grace_s: float = 2.0  # processes of a broken group have this time to exit, not ``stop_grace_s``

    # Groups of a task
    repeat_s: float = 2.0  # an ignored order to gather is repeated
    abort_s: float = 0.5  # time from a member's death to cutting the other members' connections
    stalled_s: float = 5.0  # members have this time to leave a stalled group
    hang_s: float = 60.0  # the shortest limit for a member to leave a broken group
    retry_s: float = 0.25  # delay before a lost group is formed again; doubles each time
    longest_retry_s: float = 8.0
    growth_retry_s: float = 10.0  # delay before a failed growth is retried; doubles each time
    growth_longest_retry_s: float = 600.0
    meeting_s: float = 20.0  # the members of a group have this time to meet
    loading_s: float = 300.0  # time without progress while the state is loaded and spread; doubles with each failure
    least_forming_s: float = 120.0  # the shortest total limit for consecutive groups that do not form

    # Stalls of a task
    stall_look_s: float = 30.0  # the shortest time without a step before ranks are asked for their position
    position_s: float = 3.0  # ranks have this time to report it


TIMEOUTS: Final = Timeouts()
