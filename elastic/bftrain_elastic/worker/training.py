"""``run()``: a script's training alone, in the group of its environment, or in groups that an agent's orders form."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, BadScript, ElasticError
from bftrain_elastic.wire.worker_messages import (
    NO_STEP,
    CopyPlace,
    FormGroup,
    GroupConfirmed,
    GroupJoined,
    LeaveTask,
    StateInMemory,
    StateNotOnDisk,
    TrainingDone,
    TrainingStopped,
    WorkerReady,
)
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.data import BATCH
from bftrain_elastic.worker.lazy_torch import dist
from bftrain_elastic.worker.process_groups import FORMING, GroupRank, GroupStore, listen_on, lost, warm_up
from bftrain_elastic.worker.sharded_training import ShardedCommits, ShardedTraining
from bftrain_elastic.worker.state import RegroupSignal, State, leave_group, mark_large_values, report_in_memory
from bftrain_elastic.worker.state_transfer import describe, prepare, share_state
from bftrain_elastic.worker.state_values import (
    REASON_LETTERS,
    StateInternals,
    capture,
    compared_values,
    inner,
    keep_unless_recent,
    restore,
)
from bftrain_elastic.worker.termination import follows_sigterm, grace_s, on_sigterm

ADDRESS: Final = "BFTRAIN_ADDRESS"  # address of this node for other nodes
FORMING_GROUP: Final = "forming"  # activity of a worker in a forming group
NOT_SAVED: Final = os.EX_IOERR  # exit code of a worker that failed to write the state before it left
_LEAVING_AGAIN_S: Final = 0.5  # delay before a leaving worker retries a write
_NO_GROUP: Final = -1  # generation of a worker outside any group
PEER: Final = "BFTRAIN_PEER"  # address of a worker that has the state: host:port
LOADING: Final = "loading the state"  # activity of a worker that reads the state from the folder or from a copy server
# Time for a worker to notice cut connections: the larger of _STUCK_S and _STUCK_STEPS of its steps
_STUCK_S: Final = 1.0
_STUCK_STEPS: Final = 3.0
FOLDER: Final = "BFTRAIN_FOLDER"  # folder of the commits
LAUNCHER: Final = "BFTRAIN_LAUNCHER"  # launcher that started this worker
_trained_folders: Final[set[str]] = set()  # folders that this process has trained in


class RegroupedTraining:
    """A script's training in groups that form and dissolve by the agent's orders; ``state`` counts its steps."""

    def __init__(self, state: State, train: Callable[[], Any], channel: AgentChannel) -> None:
        self._state = state
        self._train = train
        self._own = inner(state)
        self._channel = channel
        self._holds_state = False
        self._training = _NO_GROUP  # generation of the group that it is in

    def _serve(self, abort: Callable[[], None]) -> Any:  # noqa: ANN401 - the result of the script's function
        """Follow the agent's orders until training is over; another thread calls ``abort`` if a member is dead."""
        self._own.progress.report = self._channel.send_nonblocking
        self._channel.on_abort = abort
        self._channel.position = lambda: (self._own.group.activity, self._own.group.commits)
        self._channel.listen()
        with on_sigterm(ignore_sigterm):
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
            self._training = _NO_GROUP
            reason = self._restore_after_error(error, place)
            if reason is None:
                raise
        else:
            self._training = _NO_GROUP
            return True, result
        self._own.group.activity = "between two groups"
        leave_group(self._state, broken=bool(reason))
        self._say_ready(place.generation, reason)
        return False, None

    def _say_ready(self, generation: int, reason: str) -> None:
        self._own.saver.report()
        step = self._own.progress.step if self._holds_state else NO_STEP
        meeting = self._own.group.meeting
        self._channel.send(WorkerReady(step, generation, (meeting.host, meeting.port), reason))

    def _reporter(self, place: GroupRank) -> progress_report.Report:
        return progress_report.GroupReport(self._channel, self._state, place)

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        """Form the group and make sure that all members have the same state."""
        raise NotImplementedError

    def _finish(self, place: GroupRank) -> None:
        """Finish when the script is done; all members leave together."""
        raise NotImplementedError

    def _restore_after_error(self, error: BaseException, place: GroupRank) -> str | None:
        """Restore the state after ``train`` raised; return why the group was lost, or ``None`` to raise the error."""
        raise NotImplementedError

    def _write(self) -> None:
        self._own.saver.save()


def is_caused_by_notice(error: Exception) -> bool:
    """Return whether a script's error is due to a SIGTERM that announces the loss of the node."""
    notice_s = grace_s()
    return notice_s > 0 and not isinstance(error, ElasticError) and follows_sigterm(notice_s)


def reason_left(error: Exception, *, lost_others: bool) -> str:
    """Return why a worker left its group, as text."""
    text = str(error) if lost_others else f"after SIGTERM the script raised {type(error).__name__}: {error}"
    return text[:REASON_LETTERS]


def ignore_sigterm() -> None:
    """Do nothing: schedulers send SIGTERM to all processes of a node, and the agent handles it."""


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
        inner(state).saver.save()
        with suppress(RuntimeError):  # other members died, but the state is saved
            group.largest(0)
    else:
        group.largest(0)


class NativeTraining(RegroupedTraining):
    """Training under the native launcher."""

    def run(self) -> None:
        """Train until the script is done, or this worker must leave."""
        address = os.environ.get(ADDRESS, "127.0.0.1")
        listen_on(address)
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # otherwise NCCL aborts when a member dies
        warm_up()
        self._own.group.meeting = meeting = GroupStore(address)
        self._own.group.asked = lambda: self._channel.gather
        self._own.copies.alone = grace_s() > 0
        self._channel.on_copies = self._own.outside.aim
        self._own.saver.describe = partial(describe, meeting.store)
        prepare(self._state, os.environ.get(PEER, ""))
        self._serve(self._abort)
        self._own.group.activity = "after train"

    def _abort(self) -> None:
        """Cut the connections to the other members; called by the channel's thread when a member is dead.

        Rarely, Gloo does not notice that and still waits. Then this thread saves the last commit and ends the process:
        a new worker takes its place.
        """
        generation = self._training
        self._own.group.abort()
        # While it loads the state, it waits for a file, and will notice the lost members later
        if generation == _NO_GROUP or self._own.group.activity == LOADING:
            return
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._own.group.pace_s)
        while self._training == generation and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation:
            with suppress(Exception):  # including errors of a broken GPU: the worker exits in any case
                self._own.saver.rescue()
            os._exit(os.EX_TEMPFAIL)

    def _restore_after_error(self, error: BaseException, place: GroupRank) -> str | None:
        own = self._own
        if isinstance(error, RegroupSignal):
            return ""
        lost_others = place.workers > 1 and isinstance(error, RuntimeError) and lost(error)
        has_copy = own.copies.last is not None and self._holds_state
        if not isinstance(error, Exception) or not (lost_others or (has_copy and is_caused_by_notice(error))):
            return None
        # With no step, a copy was being made and the state is as committed; the same is true while a group forms
        as_committed = own.copies.step == NO_STEP or (
            own.group.activity == FORMING_GROUP and not (own.copies.mixed or own.shards)
        )
        if own.copies.last is not None and self._holds_state and not as_committed:
            restore(self._state, own.copies.last)
        return reason_left(error, lost_others=lost_others)

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        group = self._own.group
        store = group.meeting.store
        if place.rank:
            store = dist.TCPStore(*order.store, is_master=False, wait_for_workers=False, timeout=FORMING)
        group.join(place, store)
        group.settle()  # the next part takes time in proportion to the state's size
        if place.rank == 0:
            self._channel.send(GroupJoined(place.generation))
        self._own.saver.tidy()
        size = 0
        if self._own.shards is not None:
            self._own.shards.regroup(self._state, holds=self._holds_state)
            self._holds_state = True
            group.largest(0)
        else:
            size = self._agree(place, order)
        mark_large_values(self._state)
        if place.rank == 0:
            self._channel.send(GroupConfirmed(place.generation, self._own.progress.step, size))
            if place.size > 1 and self._own.copies.step == self._own.progress.step:
                report_in_memory(self._own)
            self._own.saver.save_if_only_here()

    def _agree(self, place: GroupRank, order: FormGroup) -> int:
        """Synchronize the state of all members, and copy it; return its size in bytes."""
        if not self._holds_state and place.rank == 0:
            self._load(order.copy)
        self._own.group.activity = FORMING_GROUP
        if place.workers > 1:
            if order.sync:
                self._spread()
            keep_unless_recent(self._state)
            self._own.group.largest(0)  # all members are through
        elif self._own.copies.alone:
            keep_unless_recent(self._state)
        return capture(self._state).size

    def _load(self, copy: CopyPlace | None) -> None:
        self._own.group.activity = LOADING
        if not self._own.saver.load(copy) and self._own.copies.mixed:
            raise SystemExit(os.EX_TEMPFAIL)  # another worker takes its place, with the script's initial state
        self._holds_state = True

    def _spread(self) -> None:
        """Send the state to the members that lack it."""
        step = self._own.progress.step if self._holds_state else NO_STEP
        rows = self._own.group.gathered([step, compared_values(self._state).digest()], "int64")
        sources = [rank for rank, row in enumerate(rows) if row == rows[0]]
        share_state(self._state, sources, fresh=not self._holds_state)
        self._holds_state = True

    def _finish(self, _place: GroupRank) -> None:
        """Finish: the script is done.

        The other members report it only when the last state is on disk: if rank 0 dies while it writes, they resume
        from their own copies.
        """
        progress_report.flush()
        end_together(self._state)
        self._channel.send(TrainingDone(self._own.progress.step))
        with suppress(RuntimeError):
            self._own.group.largest(0)
        leave_group(self._state)


def train_in_one_group(state: State, train: Callable[[State], None], channel: AgentChannel | None) -> None:
    """Train in the group that the environment names, from the last commit in the folder, if there is one."""
    workers, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = GroupRank(0, rank, workers, int(os.environ.get(progress_report.SIZE, str(workers))))
    own = inner(state)
    if channel is not None:
        # When a node leaves, all restart from disk: copies in memory are lost
        own.progress.report = lambda message: (
            None if isinstance(message, StateInMemory) else channel.send_nonblocking(message)
        )
        own.copies.alone = own.saver.folder is not None
        channel.position = lambda: (own.group.activity, own.group.commits)
        channel.listen()
        progress_report.use(progress_report.GroupReport(channel, state, place))
    signals: list[int] = []  # SIGTERM stops the training at the next commit, where all workers learn of it
    if own.saver.folder is not None:
        own.group.asked = lambda: len(signals)
    with on_sigterm(lambda: signals.append(1)) if own.saver.folder is not None else nullcontext():
        try:
            stopped = _train_once(state, train, place)
        except Exception as error:
            if workers > 1 and channel is not None and isinstance(error, RuntimeError) and lost(error):
                sys.stderr.write(f"bftrain: the other workers are lost: {str(error)[:REASON_LETTERS]}\n")
                with suppress(Exception):  # including errors of a broken GPU: the worker exits in any case
                    own.saver.rescue()  # their latest common commit: rank 0 may be dead
                sys.stderr.flush()
                os._exit(os.EX_TEMPFAIL)  # the remaining group could wait for the other members
            if channel is not None and not isinstance(error, ElasticError) and follows_sigterm(math.inf):
                _end_on_order(state, channel, error)
            raise
        if channel is not None:
            channel.send((TrainingStopped if stopped else TrainingDone)(own.progress.step))
        own.group.activity = "after train"
        if stopped:
            raise SystemExit(0)


def _train_once(state: State, train: Callable[[State], None], place: GroupRank) -> bool:
    """Train in the only group; return whether it stopped on request, before the script was done."""
    own, stopped = inner(state), False
    own.group.activity = FORMING_GROUP
    own.group.join(place, _named_store(place) if place.workers > 1 else None)
    own.group.settle()
    if place.rank == 0:
        own.saver.tidy()
    if own.shards is not None:
        own.shards.regroup(state, holds=False)
    elif place.rank == 0:
        own.saver.load()
    if place.workers > 1 and own.shards is None:
        share_state(state, [0], fresh=True)
    own.group.activity = "script"
    try:
        train(state)
    except RegroupSignal:
        stopped = True
    own.group.activity = "the end of train"
    progress_report.flush()
    end_together(state)
    leave_group(state)
    return stopped


def _end_on_order(state: State, channel: AgentChannel, error: Exception) -> None:
    """Exit with the latest commit on disk, after a SIGTERM made the script raise; return if there is no commit."""
    own = inner(state)
    if own.copies.last is None:
        return
    if own.copies.step == NO_STEP:  # a copy was being made
        own.saver.save()
    else:
        own.saver.rescue()
    own.saver.report()  # including earlier saves
    sys.stderr.write(f"bftrain: {reason_left(error, lost_others=False)}\n")
    channel.send(TrainingStopped(own.progress.commit_step if own.copies.step == NO_STEP else own.copies.step))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the remaining group could wait for the other members


def _named_store(place: GroupRank) -> Any:  # noqa: ANN401 - torch.distributed.Store
    """Return the store named in torchrun's environment. Unless torchrun's agent has one, rank 0 opens it."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listen_on(os.environ.get(ADDRESS, address))
    if place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return GroupStore(address, port).store
    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)


def run(state: State, train: Callable[[State], None]) -> None:
    """Call ``train`` with ``state`` once for every group of this worker, until it returns.

    Without a manager there is one group: a single worker, or the group in torchrun's environment. Under a launcher,
    SIGTERM does not stop a worker in here: it follows its agent's order, or it leaves ``train`` at the next commit and
    saves. Raises ``BadScript`` if a script trains a second time under a launcher.

    >>> from bftrain_elastic import State, run
    >>> def train(state):
    ...     while state.position < 3:
    ...         state.position += 1
    ...         state.commit()
    >>> state = State(position=0)
    >>> run(state, train)
    >>> state.position
    3
    """
    folder = os.environ.get(FOLDER)
    inner(state).saver.folder = Path(folder) if folder else None
    if folder:
        refuse_second_training(folder)
    if parts := {name: one for name, one in vars(state).items() if isinstance(one, ShardedTraining)}:
        inner(state).shards = ShardedCommits(state, parts)
    channel = AgentChannel.from_environment()
    if channel is not None and os.environ.get(LAUNCHER) == "native":
        NativeTraining(state, partial(train, state), channel).run()
    else:
        train_in_one_group(state, train, channel)


def refuse_second_training(folder: str) -> None:
    """Raise if this process has trained in this folder: a folder has one state and belongs to one task."""
    if folder in _trained_folders:
        fix = "call run() once for the whole training, and keep its position in the state"
        raise BadScript("a script can train only once under a launcher", where="run", fix=fix)
    _trained_folders.add(folder)
