"""run: a script's training, in one group after another."""

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

from bftrain_elastic.errors import BadScript, ElasticError
from bftrain_elastic.wire.messages import Message, encode
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.process_groups import (
    FORMING,
    GroupRank,
    GroupStore,
    listen_on,
    lost,
    outlive_others,
    warm_up,
)
from bftrain_elastic.worker.replica_check import watch_optimizers
from bftrain_elastic.worker.state import RegroupSignal, State, leave_group, report_in_memory
from bftrain_elastic.worker.state_transfer import describe, prepare, share_state
from bftrain_elastic.worker.state_values import (
    NO_STEP,
    compared_values,
    inner,
    keep,
    load,
    report_on_disk,
    rescue,
    restore,
    save,
    save_if_only_here,
    save_or_end,
    tidy,
)
from bftrain_elastic.worker.termination import follows_sigterm, grace_s, on_sigterm

FOLDER: Final = "BFTRAIN_FOLDER"  # where commits are kept
LAUNCHER: Final = "BFTRAIN_LAUNCHER"  # who started this worker
ADDRESS: Final = "BFTRAIN_ADDRESS"  # where other nodes reach this one
SIZE: Final = "BFTRAIN_SIZE"  # how many nodes the group runs on
PEER: Final = "BFTRAIN_PEER"  # where a worker is reached that has the state: host:port
LOADING: Final = "loading the state"  # the place of a worker that reads the folder
_NOTHING: Final = -1  # the step of a worker that has no state yet
_REASON_LETTERS: Final = 300
_STUCK_S: Final = 1.0  # how long a worker may take to notice that it was cut off,
_STUCK_STEPS: Final = 3.0  # or so many of its steps, if these are long

Train = Callable[[State], None]
trained: Final[set[str]] = set()  # the folders for which this process was asked to


def run(state: State, train: Train) -> None:
    """Call ``train(state)`` once for every group that this worker is part of, until it returns.

    Without a manager there is one group: of one worker, or the one that torchrun's environment names. SIGTERM does not
    end a worker in here: its agent says what it is to do, or it leaves ``train`` at the next commit and saves.
    """
    watch_optimizers()
    folder = os.environ.get(FOLDER)
    inner(state).folder = Path(folder) if folder else None
    if folder:
        once(folder)
    channel = AgentChannel.from_environment()
    if channel is not None and os.environ.get(LAUNCHER) == "native":
        _NativeTraining(state, train, channel).run()
    else:
        _once(state, train, channel)


def once(folder: str) -> None:
    """Demand that a script trains once: its folder holds one state, and when that is done so is the task."""
    if folder in trained:
        fix = "train it all in one, and keep in the state how far it is"
        raise BadScript("a script can train only once under a launcher", where="run", fix=fix)
    trained.add(folder)


class RegroupedTraining:
    """A script's training in groups that come and go as the agent says; ``state`` counts its steps."""

    def __init__(self, state: State, train: Callable[[], Any], channel: AgentChannel) -> None:
        self._state = state
        self._train = train
        self._own = inner(state)
        self._channel = channel
        self._holds_state = False
        self._training = _NOTHING  # the generation of the group that this worker is in

    def _serve(self, abort: Callable[[], None]) -> Any:  # noqa: ANN401 - the result of the script's function
        """Do what the agent says until the training is over; another thread calls ``abort`` if a member is dead."""
        self._own.report = report_sender(self._channel)
        self._channel.on_abort = abort
        self._channel.position = lambda: (self._own.place, self._own.commits)
        self._channel.listen()
        with on_sigterm(go_on):
            self._say_ready(0, "")
            while (order := self._channel.next()) is not None:
                if order.get("type") == "leave":
                    if order.get("save"):
                        save_or_end(self._own, self._write, float(order.get("grace_s", 0.0)))
                    raise SystemExit(0)  # what comes after ``run`` in the script is for those who finish
                if order.get("type") == "go":
                    over, result = self._in_group(order)
                    if over:
                        return result
            raise SystemExit("bftrain: the agent is gone")

    def _in_group(self, order: Message) -> tuple[bool, Any]:
        """Train in one group; tell whether the training is over, and what it gave."""
        place = GroupRank(order["generation"], order["rank"], order["workers"], order["size"])
        self._training = place.generation
        self._own.place, self._own.commits = "forming", 0
        try:
            self._join(place, order)
            progress_report.use(self._reporter(place))
            self._own.place = "script"
            result = self._train()
            self._own.place = "the end of train"
            self._finish(place)
        except BaseException as error:
            self._training = _NOTHING
            reason = self._take_error(error, place)
            if reason is None:
                raise
        else:
            self._training = _NOTHING
            return True, result
        self._own.place = "between two groups"
        self._leave_group(broken=bool(reason))
        self._say_ready(place.generation, reason)
        return False, None

    def _say_ready(self, generation: int, reason: str) -> None:
        report_on_disk(self._own)
        step = self._own.step if self._holds_state else _NOTHING
        ready = {"type": "ready", "step": step, "generation": generation}
        self._channel.send({**ready, "store": self._meeting_point(), "reason": reason})

    def _reporter(self, place: GroupRank) -> progress_report.Report:
        return progress_report.GroupReport(self._channel, self._state, place)

    def _meeting_point(self) -> list[Any]:
        """Return where others find this worker if it leads the next group."""
        raise NotImplementedError

    def _join(self, place: GroupRank, order: Message) -> None:
        """Form the group and make sure that all hold the same state."""
        raise NotImplementedError

    def _finish(self, place: GroupRank) -> None:
        """Know that the script is done; no member leaves before that."""
        raise NotImplementedError

    def _take_error(self, error: BaseException, place: GroupRank) -> str | None:
        """Put the state in order after what ended the script; return why the group was lost, or nothing to raise it."""
        raise NotImplementedError

    def _leave_group(self, *, broken: bool) -> None:
        raise NotImplementedError

    def _write(self) -> None:
        save(self._state)


class _NativeTraining(RegroupedTraining):
    """Training under the native launcher."""

    def __init__(self, state: State, train: Train, channel: AgentChannel) -> None:
        super().__init__(state, partial(train, state), channel)
        self._address = os.environ.get(ADDRESS, "127.0.0.1")

    def run(self) -> None:
        listen_on(self._address)
        outlive_others()
        warm_up()
        self._store = GroupStore(self._address)
        self._own.asked = lambda: self._channel.gather
        self._own.keeps_alone = grace_s() > 0
        self._own.describe = partial(describe, self._store.store)
        prepare(self._state, os.environ.get(PEER, ""))
        self._serve(self._abort)
        self._own.place = "after train"

    def _abort(self) -> None:
        """Cut the connections to the others; called by the channel's thread when one of them is dead.

        Now and then Gloo does not see that and waits on. Then this thread writes the last commit down and ends the
        worker: another one takes its place.
        """
        generation = self._training
        self._own.group.abort()
        if self._own.place == LOADING:  # it waits for a file, and will see later that the others are gone
            return
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._own.pace_s)
        while self._training == generation != _NOTHING and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation != _NOTHING:
            with suppress(Exception):  # also what a broken GPU raises: the worker ends either way
                rescue(self._state)
            os._exit(os.EX_TEMPFAIL)

    def _meeting_point(self) -> list[Any]:
        return [self._store.host, self._store.port]

    def _take_error(self, error: BaseException, place: GroupRank) -> str | None:
        own = self._own
        if isinstance(error, RegroupSignal):
            return ""
        lost_others = place.workers > 1 and isinstance(error, RuntimeError) and lost(error)
        has_copy = own.copy is not None and self._holds_state
        if not isinstance(error, Exception) or not (lost_others or (has_copy and is_of_notice(error))):
            return None
        # Without a step a copy was being made, and the state is as committed
        if own.copy is not None and self._holds_state and own.copy_step != NO_STEP:
            restore(self._state, own.copy)
        return why_left(error, lost_others=lost_others)

    def _leave_group(self, *, broken: bool) -> None:
        leave_group(self._state, broken=broken)

    def _join(self, place: GroupRank, order: Message) -> None:
        group = self._own.group
        store = self._store.store
        if place.rank:
            import torch.distributed as dist

            host, port = order["store"]
            store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=FORMING)
        group.join(place, store)
        group.settle()  # what follows takes as long as the state is large
        if place.rank == 0:
            self._channel.send({"type": "joined", "generation": place.generation})
        tidy(self._state)
        if not self._holds_state and place.rank == 0:
            self._load()
        self._own.place = "forming"
        if place.workers > 1:
            if order["sync"]:
                self._spread()
            if self._own.copy_step != self._own.step:
                keep(self._state)
            group.largest(0)  # all are through
        elif self._own.keeps_alone:
            keep(self._state)
        if place.rank == 0:
            self._channel.send({"type": "confirmed", "generation": place.generation, "step": self._own.step})
            if place.size > 1:
                report_in_memory(self._own)
            save_if_only_here(self._state)

    def _load(self) -> None:
        self._own.place = LOADING
        if not load(self._state) and self._own.mixed:
            raise SystemExit(os.EX_TEMPFAIL)  # another worker takes its place, with the script's own first state
        self._holds_state = True

    def _spread(self) -> None:
        """Give the state to the members that lack it."""
        own = self._own
        step = own.step if self._holds_state else _NOTHING
        sources = own.group.same_as_first([step, compared_values(self._state).digest()])
        share_state(self._state, sources, fresh=not self._holds_state)
        self._holds_state = True

    def _finish(self, _place: GroupRank) -> None:
        """Know that the script is done.

        The others say so only when the last state is on disk: if rank 0 dies while it writes, they go on from theirs.
        """
        progress_report.flush()
        end_together(self._state)
        self._channel.send({"type": "done", "step": self._own.step})
        with suppress(RuntimeError):
            self._own.group.largest(0)
        leave_group(self._state)


def report_sender(channel: AgentChannel) -> Callable[[Message], None]:
    """Return how a state tells its agent something, which never waits for the agent."""
    return lambda message: channel.mention(str(message["type"]), encode(message))


def is_of_notice(error: Exception) -> bool:
    """Return whether an error of the script is due to a SIGTERM that announces the loss of the node."""
    notice_s = grace_s()
    return notice_s > 0 and not isinstance(error, ElasticError) and follows_sigterm(notice_s)


def why_left(error: Exception, *, lost_others: bool) -> str:
    """Say why a worker left its group."""
    words = str(error) if lost_others else f"after SIGTERM the script raised {type(error).__name__}: {error}"
    return words[:_REASON_LETTERS]


def end_together(state: State) -> None:
    """Write the state at the end of a training; when it returns that is done on all members."""
    group = inner(state).group
    if group.place.rank == 0:
        save(state)
        with suppress(RuntimeError):  # others died, and nothing is lost
            group.largest(0)
    else:
        group.largest(0)


def go_on() -> None:
    """Do nothing when SIGTERM comes: schedulers send it to all processes of a node, and the agent knows what is due."""


def _once(state: State, train: Train, channel: AgentChannel | None) -> None:
    """Train in the one group that the environment names, from the last commit in the folder on."""
    workers, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = GroupRank(0, rank, workers, int(os.environ.get(SIZE, str(workers))))
    own = inner(state)
    if channel is not None:
        tell = report_sender(channel)
        # When a node leaves all are started again, from what is on disk: what is in memory does not count
        own.report = lambda message: None if message["type"] == "in_memory" else tell(message)
        own.keeps_alone = own.folder is not None
        channel.position = lambda: (own.place, own.commits)
        channel.listen()
        progress_report.use(progress_report.GroupReport(channel, state, place))
    asked: list[int] = []  # SIGTERM ends the training at the next commit, where all workers know of it
    if own.folder is not None:
        own.asked = lambda: len(asked)
    with on_sigterm(lambda: asked.append(1)) if own.folder is not None else nullcontext():
        try:
            said = _train_once(state, train, place)
        except Exception as error:
            if workers > 1 and channel is not None and isinstance(error, RuntimeError) and lost(error):
                sys.stderr.write(f"bftrain: the other workers are lost: {str(error)[:_REASON_LETTERS]}\n")
                with suppress(Exception):  # also what a broken GPU raises: the worker ends either way
                    rescue(state)  # what all of them committed last: rank 0 may be dead
                sys.stderr.flush()
                os._exit(os.EX_TEMPFAIL)  # what is left of the group could wait for the others
            if channel is not None and not isinstance(error, ElasticError) and follows_sigterm(math.inf):
                _end_on_order(state, channel, error)
            raise
        if channel is not None:
            channel.send({"type": said, "step": own.step})
        own.place = "after train"
        if said == "stopped":
            raise SystemExit(0)


def _train_once(state: State, train: Train, place: GroupRank) -> str:
    """Train in the one group; return ``done``, or ``stopped`` if that was asked for."""
    own = inner(state)
    own.place, said = "forming", "done"
    own.group.join(place, _named_store(place) if place.workers > 1 else None)
    own.group.settle()
    if place.rank == 0:
        tidy(state)
        load(state)
    if place.workers > 1:
        share_state(state, [0], fresh=True)
    own.place = "script"
    try:
        train(state)
    except RegroupSignal:
        said = "stopped"
    own.place = "the end of train"
    progress_report.flush()
    end_together(state)
    leave_group(state)
    return said


def _end_on_order(state: State, channel: AgentChannel, error: Exception) -> None:
    """End after SIGTERM has ended what the script needs, with the last commit on disk; return if there is none."""
    own = inner(state)
    if own.copy is None:
        return
    if own.copy_step == NO_STEP:  # a copy was being made
        save(state)
    else:
        rescue(state)
    sys.stderr.write(f"bftrain: {why_left(error, lost_others=False)}\n")
    channel.send({"type": "stopped", "step": max(own.copy_step, own.commit_step)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what is left of the group could wait for the others


def _named_store(place: GroupRank) -> Any:  # noqa: ANN401 - torch.distributed.Store
    """Give the meeting point that torchrun's environment names; rank 0 opens it, on that address alone."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listen_on(os.environ.get(ADDRESS, address))
    if place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return GroupStore(address, port).store
    import torch.distributed as dist

    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
