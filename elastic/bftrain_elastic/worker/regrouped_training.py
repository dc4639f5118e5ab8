"""Training in groups that form and dissolve by the agent's orders."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, ElasticError
from bftrain_elastic.wire.worker_messages import FormGroup, LeaveTask, StateNotOnDisk, WorkerReady
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.batch_shares import BATCH
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_saving import report_on_disk, save
from bftrain_elastic.worker.state_values import StateInternals, inner
from bftrain_elastic.worker.termination import follows_sigterm, grace_s, on_sigterm

ADDRESS: Final = "BFTRAIN_ADDRESS"  # address of this node for other nodes
SIZE: Final = "BFTRAIN_SIZE"  # number of nodes of the group
FORMING_GROUP: Final = "forming"  # activity of a worker in a forming group
REASON_LETTERS: Final = 300
NOT_SAVED: Final = os.EX_IOERR  # exit code of a worker that failed to write the state before it left
_LEAVING_AGAIN_S: Final = 0.5  # delay before a leaving worker retries a write
NOTHING: Final = -1  # step of a worker without state, generation of a worker outside any group


class RegroupedTraining:
    """A script's training in groups that form and dissolve by the agent's orders; ``state`` counts its steps."""

    def __init__(self, state: State, train: Callable[[], Any], channel: AgentChannel) -> None:
        self._state = state
        self._train = train
        self._own = inner(state)
        self._channel = channel
        self._holds_state = False
        self._training = NOTHING  # generation of the current group

    def _serve(self, abort: Callable[[], None]) -> Any:  # noqa: ANN401 - the result of the script's function
        """Follow the agent's orders until training is over; another thread calls ``abort`` if a member is dead."""
        self._own.progress.report = self._channel.mention
        self._channel.on_abort = abort
        self._channel.position = lambda: (self._own.group.activity, self._own.group.commits)
        self._channel.listen()
        with on_sigterm(go_on):
            self._say_ready(0, "")
            while (order := self._channel.next()) is not None:
                if isinstance(order, LeaveTask):
                    if order.save:
                        save_or_end(self._own, self._write, order.grace_s)
                    raise SystemExit(0)  # the script's code after ``run`` is for workers that finish
                if isinstance(order, FormGroup):
                    over, result = self._in_group(order)
                    if over:
                        return result
            raise SystemExit("bftrain: the agent is gone")

    def _in_group(self, order: FormGroup) -> tuple[bool, Any]:
        """Train in one group; return whether the training is over, and its result."""
        place = GroupRank(order.generation, order.rank, order.workers, order.size)
        os.environ[BATCH] = str(order.batch)
        self._training = place.generation
        self._own.group.activity, self._own.group.commits = FORMING_GROUP, 0
        try:
            self._join(place, order)
            progress_report.use(self._reporter(place))
            self._own.group.activity = "script"
            result = self._train()
            self._own.group.activity = "the end of train"
            self._finish(place)
        except BaseException as error:
            self._training = NOTHING
            reason = self._restore_after_error(error, place)
            if reason is None:
                raise
        else:
            self._training = NOTHING
            return True, result
        self._own.group.activity = "between two groups"
        self._leave_group(broken=bool(reason))
        self._say_ready(place.generation, reason)
        return False, None

    def _say_ready(self, generation: int, reason: str) -> None:
        report_on_disk(self._own)
        step = self._own.progress.step if self._holds_state else NOTHING
        self._channel.send(WorkerReady(step, generation, self._meeting_point(), reason))

    def _reporter(self, place: GroupRank) -> progress_report.Report:
        return progress_report.GroupReport(self._channel, self._state, place)

    def _meeting_point(self) -> tuple[str, int]:
        """Return the address of this worker's store, if it leads the next group."""
        raise NotImplementedError

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        """Form the group and make sure that all members have the same state."""
        raise NotImplementedError

    def _finish(self, place: GroupRank) -> None:
        """Handle that the script is done; no member leaves earlier."""
        raise NotImplementedError

    def _restore_after_error(self, error: BaseException, place: GroupRank) -> str | None:
        """Restore the state after ``train`` raised; return why the group was lost, or ``None`` to raise the error."""
        raise NotImplementedError

    def _leave_group(self, *, broken: bool) -> None:
        raise NotImplementedError

    def _write(self) -> None:
        save(self._state)


def is_caused_by_notice(error: Exception) -> bool:
    """Return whether a script's error is due to a SIGTERM that announces the loss of the node."""
    notice_s = grace_s()
    return notice_s > 0 and not isinstance(error, ElasticError) and follows_sigterm(notice_s)


def reason_left(error: Exception, *, lost_others: bool) -> str:
    """Return why a worker left its group, as text."""
    words = str(error) if lost_others else f"after SIGTERM the script raised {type(error).__name__}: {error}"
    return words[:REASON_LETTERS]


def go_on() -> None:
    """Ignore SIGTERM: schedulers send it to all processes of a node, and the agent handles it."""


def save_or_end(own: StateInternals, write: Callable[[], None], grace_s: float) -> None:
    """Save the state by ``write`` before this worker exits, and retry for ``grace_s`` seconds.

    After the last failure the worker exits with a special code, so that the state does not count as saved.
    """
    deadline = time.monotonic() + grace_s
    while True:
        try:
            return write()
        except (OSError, BadCommit) as error:
            own.progress.report(StateNotOnDisk(own.progress.step, str(error)[:REASON_LETTERS]))
            if time.monotonic() + _LEAVING_AGAIN_S > deadline:
                sys.stderr.write(f"bftrain: the state of step {own.progress.step} is not on disk: {error}\n")
                raise SystemExit(NOT_SAVED) from error
        time.sleep(_LEAVING_AGAIN_S)


def end_together(state: State) -> None:
    """Write the state after the training; return once all members have done so."""
    group, shards = inner(state).group, inner(state).shards
    if shards is not None:
        shards.save_together(state)
    elif group.place.rank == 0:
        save(state)
        with suppress(RuntimeError):  # other members died, but the state is saved
            group.largest(0)
    else:
        group.largest(0)
